"""Whose schedule is looked at: a kernel on a problem, with the Run that measured it where there is one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.selection import compare
from kernels.base import AttentionKernel, all_kernels
from kernels.own import is_own, kernel_named
from kernels.problem import LINEAR, AttentionProblem, Refused, TileConfig
from kernels.schedule import Schedule
from kernels.walk import Walk
from profiler.run import DeviceInfo, Run
from profiler.same_schedule import has_schedule
from profiler.workload import CPU, workloads

FLASH = "flash"  # what the article arrives at: the first to look at


@dataclass(frozen=True)
class Subject:
    """A kernel with problem and tile; `run` is None where the schedule alone is looked at.

    `device` is what its levels are held against: its Run's, or that of the Runs beside it.
    """

    name: str
    kernel: str
    problem: AttentionProblem
    tile: TileConfig
    run: Run | None = None
    device: DeviceInfo | None = None

    @property
    def schedule(self) -> Schedule:
        """The kernel's schedule, in the waves of its Run; kept, since pages ask for it again at every step."""
        return _schedule(self.attention_kernel, self.problem, self.tile, None if self.run is None else _wave(self.run))

    @property
    def attention_kernel(self) -> AttentionKernel:
        """The kernel's light half; of an own kernel with the schedule that its Run tells."""
        return kernel_named(self.kernel, "" if self.run is None else self.run.workload.like)

    @property
    def tensor_bytes(self) -> dict[str, int]:
        """Bytes of every whole tensor in HBM: inputs, outputs, and the temporaries that are alive at peak."""
        temporaries = self.attention_kernel.temporaries(self.problem, self.tile)
        used = self.schedule.by_tensor
        whole = {name: size for name, size in self.problem.tensor_bytes.items() if name in used}
        # What is not there yet at the peak is in HBM before the end.
        return whole | {name: size for name, size in temporaries.items() if size}


@lru_cache(maxsize=16)
def _schedule(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig, wave: int | None) -> Schedule:
    plan = kernel.schedule(problem, tile)
    return plan if wave is None else plan.with_wave(wave)


def _wave(run: Run) -> int | None:
    """Programs that the Run's GPU held at once: what sawtooth turns on; None where it is not known."""
    found = run.value("programs_at_once")
    return int(found) if found else None


def schedule_of(run: Run) -> Schedule:
    """The schedule that a Run went through, in the waves of its GPU."""
    work = run.workload
    return _schedule(work.attention_kernel, work.problem, work.tile or TileConfig(), _wave(run))


def known_schedule(run: Run) -> Schedule | None:
    """schedule_of a Run; None for one of another version of its kernel, which asked for other bytes."""
    plan = schedule_of(run)
    return plan if has_schedule(run, plan) else None


def walk_of(run: Run) -> Walk | None:
    """The Walk that a Run's programs went through; None where none is known, as for another version of the kernel."""
    plan = known_schedule(run)
    return None if plan is None else plan.walk


def subjects(runs: Sequence[Run], problem: AttentionProblem, tile: TileConfig) -> tuple[Subject, ...]:
    """The comparable Runs, then the kernels that none of them used; tiled ones first, newer Runs first.

    Of the tiled ones those of the user's own come first, then flash.

    Without any Run all kernels stand on `problem` and `tile`. A tiled kernel that refuses them everywhere is left out,
    unless that is since its rows of scores do not fit on chip: these are worth looking at.
    """
    found = compare(runs)
    problem = found.runs[-1].workload.problem if found.runs else problem
    tile = next((run.workload.tile for run in reversed(found.runs) if run.workload.tile), tile)
    named = zip(reversed(found.names), reversed(found.runs), strict=True)
    seen = [
        Subject(name, run.workload.kernel, problem, run.workload.tile or tile, run, run.device) for name, run in named
    ]
    device = next((run.device for run in reversed(found.runs)), None)
    kernels = {subject.kernel for subject in seen}
    unseen = [
        Subject(name, name, problem, used, None, device)
        for name, kernel in all_kernels().items()
        if name not in kernels and (used := _cut(kernel, problem, tile)) is not None
    ]
    return tuple(sorted([*seen, *unseen], key=_place))


def _place(one: Subject) -> tuple[bool, bool, bool]:
    return not one.attention_kernel.is_tiled, not is_own(one.kernel), one.kernel != FLASH


def _cut(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> TileConfig | None:
    """The tile as the kernel uses it; None where there is nothing to look at."""
    try:
        used = workloads((kernel.name,), problem, tile, CPU, trace=None, orders=(LINEAR,))[0].tile or tile
        if kernel.is_tiled and kernel.row_block is None:
            kernel.refuse(problem, used, None)
    except Refused:
        return None
    return used
