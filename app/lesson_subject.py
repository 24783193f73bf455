"""Which Runs the walk-through speaks of: those shown, and the recorded ones that stand in where these cannot tell."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from app.peak_check import possible_hbm
from app.recorded import EXAMPLES
from app.selection import compare
from app.softmax_recording import recording
from app.subject import Subject
from kernels.base import all_kernels
from kernels.problem import LINEAR, AttentionProblem, Refused, TileConfig
from kernels.schedule import Schedule
from profiler.codec import NotARun
from profiler.device import limits
from profiler.run import DeviceInfo, Run
from profiler.store import StoreError, load
from profiler.workload import CPU, workloads

RECORDED = EXAMPLES / "full_8k.json"
# Where the kernels are recorded that RECORDED has not: at the article's length, and as long as whole rows fit.
LADDERS = (EXAMPLES / "ladder_8k.json", EXAMPLES / "ladder_512.json")
ARTICLE = AttentionProblem(1, 32, 32, 8192, 8192, 128, "bfloat16")
ARTICLE_TILE = TileConfig(64, 64)


@dataclass(frozen=True)
class Shown:
    """The problem at hand, its tile, and the newest Run of each kernel on it; the article's without any Run."""

    problem: AttentionProblem
    tile: TileConfig
    runs: dict[str, Run]

    @property
    def is_article(self) -> bool:
        """True where no Run is shown."""
        return not self.runs

    def schedule(self, kernel: str) -> Schedule | None:
        """The kernel's schedule for this problem; None where there is no such kernel or it refuses the problem."""
        if kernel not in all_kernels():
            return None
        run = self.runs.get(kernel)
        tile = run.workload.tile if run is not None and run.workload.tile is not None else self.tile
        try:
            order = tile.order if tile.order in all_kernels()[kernel].orders else LINEAR
            (workload,) = workloads((kernel,), self.problem, tile, CPU, trace=None, orders=(order,))
            return Subject(kernel, kernel, self.problem, workload.tile or tile).schedule
        except Refused:
            return None

    def why_not(self, kernel: str) -> str:
        """The kernel's own sentence on why it cannot run on the Runs' device; empty where it can, or none is known."""
        return refusal(kernel, self.problem, self.tile, next((run.device for run in self.runs.values()), None))

    def traced(self) -> Run | None:
        """The flash Run, else another one, that recorded its softmax state."""
        found = sorted(self.runs.values(), key=lambda run: run.workload.kernel != "flash")
        return next((run for run in found if recording(run) is not None), None)

    def pair(self) -> tuple[Run, Run] | None:
        """naive and flash, where HBM bytes of both are known."""
        found = [self.runs[name] for name in ("naive", "flash") if name in self.runs]
        known = [run for run in found if possible_hbm(run).value is not None]
        return (known[0], known[1]) if len(known) == 2 else None


def shown(runs: Sequence[Run]) -> Shown:
    """The comparable Runs by kernel, the newest of each; of forward passes alone, as the article has them."""
    found = compare([run for run in runs if not run.workload.problem.backward]).runs
    if not found:
        return Shown(ARTICLE, ARTICLE_TILE, {})
    # A kernel without m and l is not cut along both queries and keys, and its tile says nothing of the others'.
    cut_twice = [run for run in found if run.workload.attention_kernel.has_trace]
    tiles = [run.workload.tile for run in sorted(cut_twice, key=lambda run: run.workload.kernel != "flash")]
    tile = next((tile for tile in tiles if tile is not None), ARTICLE_TILE)
    return Shown(found[-1].workload.problem, tile, {run.workload.kernel: run for run in found})


def refusal(kernel: str, problem: AttentionProblem, tile: TileConfig, device: DeviceInfo | None) -> str:
    """The kernel's own sentence on why it cannot compute this there; empty where it can, or no limit is known."""
    offered = all_kernels()[kernel]
    try:
        offered.refuse(problem, offered.cut(problem, tile), None if device is None else limits(device))
    except Refused as refused:
        return str(refused)
    return ""


def recorded() -> Shown | None:
    """The Runs of the article's shape that ship with Bytescope; None where their file is missing or damaged."""
    return _shipped(RECORDED)


def stand_ins(kernel: str) -> tuple[Run, ...]:
    """The recorded Runs of a kernel, of the article's length first."""
    found = (_shipped(path) for path in (RECORDED, *LADDERS))
    return tuple(part.runs[kernel] for part in found if part is not None and kernel in part.runs)


@cache
def _shipped(path: Path) -> Shown | None:
    try:
        return shown(load(path))
    except (NotARun, StoreError):
        return None
