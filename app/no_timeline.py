"""Why Runs have no timeline of their programs, and what to do about it."""

from collections.abc import Sequence

from app.subject import schedule_of
from kernels.base import all_kernels
from profiler.run import Run
from profiler.trace_plan import MAX_TIMED_PROGRAMS

OR_OPEN = "or open a recorded H200 run"


def why_no_timeline(runs: Sequence[Run]) -> str:
    """One sentence: the reason of the Run that could come nearest to one; `runs` have none that can be drawn."""
    if not runs:
        return f"There is no Run to show the programs of: run {_those_with_one()} on a GPU, {OR_OPEN}."
    return min((_reason(run) for run in runs), key=lambda reason: reason[0])[1]


def _reason(run: Run) -> tuple[int, str]:
    """(how far the Run is from a timeline, why it has none)."""
    kernel = run.workload.attention_kernel
    walk = schedule_of(run).walk
    if run.timeline is not None:
        return 0, f"The timeline of {kernel.name} does not fit together: record it again."
    if not kernel.has_timeline:
        instead = f"run {_those_with_one()} on a GPU, {OR_OPEN}"
        return 4, f"{kernel.title} has no timeline, since its programs do not note when they start and end: {instead}."
    if walk is not None and walk.total_programs > MAX_TIMED_PROGRAMS:
        return 2, (
            f"{kernel.title} has no timeline here, since its launch has {walk.total_programs:,} programs and start and "
            f"end of at most {MAX_TIMED_PROGRAMS:,} are kept: measure a smaller problem."
        )
    if not run.workload.on_gpu:
        return 3, (
            f"{kernel.title} has no timeline here, since it ran through the interpreter, one program after another: "
            f"run it on a GPU, {OR_OPEN}."
        )
    return 1, f"{kernel.title} has no timeline here, since it was not traced: run it again with tracing on."


def _those_with_one() -> str:
    *most, last = [kernel.name for kernel in all_kernels().values() if kernel.has_timeline]
    return f"{', '.join(most)} or {last}" if most else last
