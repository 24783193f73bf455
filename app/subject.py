"""Whose schedule is looked at: a kernel on a problem, with the Run that measured it where there is one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from app.selection import compare
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Schedule
from profiler.run import Run


@dataclass(frozen=True)
class Subject:
    """A kernel with problem and tile; `run` is None where the schedule alone is looked at."""

    name: str
    kernel: str
    problem: AttentionProblem
    tile: TileConfig
    run: Run | None = None

    @property
    def schedule(self) -> Schedule:
        """The kernel's schedule; kept, since pages ask for it again at every step."""
        return _schedule(self.kernel, self.problem, self.tile)


@lru_cache(maxsize=16)
def _schedule(kernel: str, problem: AttentionProblem, tile: TileConfig) -> Schedule:
    return all_kernels()[kernel].schedule(problem, tile)


def schedule_of(run: Run) -> Schedule:
    """The schedule that a Run went through."""
    return _schedule(run.workload.kernel, run.workload.problem, run.workload.tile or TileConfig())


def subjects(runs: Sequence[Run], problem: AttentionProblem, tile: TileConfig) -> tuple[Subject, ...]:
    """The comparable Runs, then the kernels that none of them used; tiled kernels first, newer Runs first.

    Without any Run all kernels stand on `problem` and `tile`.
    """
    found = compare(runs)
    problem = found.runs[-1].workload.problem if found.runs else problem
    tile = next((run.workload.tile for run in reversed(found.runs) if run.workload.tile), tile)
    named = zip(reversed(found.names), reversed(found.runs), strict=True)
    seen = [Subject(name, run.workload.kernel, problem, run.workload.tile or tile, run) for name, run in named]
    kernels = {subject.kernel for subject in seen}
    unseen = [Subject(name, name, problem, tile) for name in all_kernels() if name not in kernels]
    return tuple(sorted([*seen, *unseen], key=lambda subject: not all_kernels()[subject.kernel].is_tiled))
