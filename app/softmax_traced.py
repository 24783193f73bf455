"""Which of the Runs shown recorded a softmax state, and under which names they are told apart."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from app.selection import MAX_COMPARED, names
from app.softmax_recording import Recording, recording
from app.subject import FLASH
from kernels.base import all_kernels
from profiler.run import Run


@dataclass(frozen=True, eq=False)
class Traced:
    """A Run with its trace, under a name of its own."""

    name: str
    run: Run
    found: Recording


def traced(runs: Sequence[Run]) -> list[Traced]:
    """The traced Runs that share the newest Run's problem but for its dtype, MAX_COMPARED at most.

    Newest first, but those of flash before the others: its one running state is the plainest to read.
    """
    distinct = sorted(dict.fromkeys(runs), key=lambda run: run.created)
    if not distinct:
        return []
    newest = distinct[-1].workload.problem
    same = [run for run in distinct if replace(run.workload.problem, dtype=newest.dtype) == newest][-MAX_COMPARED:]
    both = ((name, run, recording(run)) for run, name in reversed(_named(same).items()))
    kept = [Traced(name, run, found) for name, run, found in both if found is not None]
    return sorted(kept, key=lambda one: one.run.workload.kernel != FLASH)


def _named(runs: Sequence[Run]) -> dict[Run, str]:
    """Names as other pages give them; behind them the dtype where there are several."""
    told: dict[Run, str] = {}
    for dtype in (dtypes := {run.workload.problem.dtype for run in runs}):
        alike = [run for run in runs if run.workload.problem.dtype == dtype]
        ending = f", {dtype}" if len(dtypes) > 1 else ""
        told |= {run: name + ending for run, name in zip(alike, names(alike), strict=True)}
    return {run: told[run] for run in runs}


def missing() -> str:
    """What to do where no Run has a trace."""
    *most, last = [kernel.name for kernel in all_kernels().values() if kernel.has_trace]
    either = f"{', '.join(most)} or {last}" if most else last
    return f"None of these Runs recorded its softmax state: run {either}, or open a recorded H200 run that did."
