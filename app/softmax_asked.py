"""The row that was chosen on another page: whether a trace holds it, what is said if not, and what would record it."""

from dataclasses import dataclass, replace

import streamlit as st

from app.softmax_recording import Recording
from kernels.problem import AttentionProblem
from profiler.run import Run
from profiler.workload import TraceRequest, Workload


@dataclass(frozen=True)
class Asked:
    """A row of one (batch, head); it need not exist."""

    batch: int
    head: int
    row: int

    @classmethod
    def here(cls, found: Recording) -> "Asked":
        """At the place that the pages share; what was not chosen yet is as recorded, and the last row of it."""
        trace, state = found.trace, st.session_state
        recorded = {"batch": trace.batch, "head": trace.head, "row": trace.row_stop - 1}
        return cls(*(int(state.get(name, value)) for name, value in recorded.items()))

    def is_in(self, found: Recording) -> bool:
        """True where the trace holds the row."""
        trace = found.trace
        same_head = (self.batch, self.head) == (trace.batch, trace.head)
        return same_head and trace.row_start <= self.row < trace.row_stop

    def exists(self, problem: AttentionProblem) -> bool:
        """True where the problem has such a row."""
        sizes = ((self.batch, problem.batch), (self.head, problem.heads), (self.row, problem.seq_len_q))
        return all(0 <= value < size for value, size in sizes)

    def named(self, problem: AttentionProblem) -> str:
        """The row in words; batch and head where there are several, or where this one does not exist."""
        return f"row {self.row:,}{_of(self.batch, self.head, problem)}"

    def workload(self, run: Run) -> tuple[Workload, ...]:
        """The Run's Workload with a trace around this row. Raises Refused where there is no such row."""
        return (replace(run.workload, trace=TraceRequest(self.batch, self.head, self.row)),)


def sentence(asked: Asked, found: Recording, shown: int) -> str:
    """Which row is shown instead of the one that was asked for, and why; empty where the trace holds that one."""
    if asked.is_in(found):
        return ""
    trace, problem = found.trace, found.walk.grid.unpacked
    instead = f"this is {Asked(trace.batch, trace.head, shown).named(problem)}"
    what = asked.named(problem).capitalize()
    if not asked.exists(problem):
        return f"{what}, chosen elsewhere, does not exist in this problem: {instead}."
    first, last = trace.row_start, trace.row_stop - 1
    rows = f"row {first:,}" if first == last else f"rows {first:,} to {last:,}"
    were = "was" if first == last else "were"
    of_head = _of(trace.batch, trace.head, problem)
    return f"{what}, chosen elsewhere, was not recorded; {rows}{of_head} {were}: {instead}."


def _of(batch: int, head: int, problem: AttentionProblem) -> str:
    several = problem.batch > 1 or batch > 0, problem.heads > 1 or head > 0
    named = ([f"batch {batch:,}"] if several[0] else []) + ([f"head {head:,}"] if several[1] else [])
    return f" of {', '.join(named)}" if named else ""
