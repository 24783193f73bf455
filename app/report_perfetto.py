"""The measured timeline of Runs as Chrome trace JSON, which ui.perfetto.dev and chrome://tracing open."""

import json
from collections.abc import Iterator, Sequence
from typing import Any

from app.selection import names
from kernels.problem import Refused
from profiler.run import ProgramTrace, Run


def perfetto(runs: Sequence[Run]) -> str:
    """A process for each Run with a timeline, a lane for each SM (more where it held several CTAs), a slice a program.

    Raises Refused where no Run has one: nothing is drawn that was not measured.
    """
    timed = [(name, run.timeline) for name, run in zip(names(runs), runs, strict=True) if run.timeline is not None]
    if not timed:
        raise Refused("None of these Runs has a timeline of its programs; run flash on a GPU with the trace on.")
    events = [event for pid, (name, timeline) in enumerate(timed, 1) for event in _events(pid, name, timeline)]
    return json.dumps({"displayTimeUnit": "ns", "traceEvents": events}, ensure_ascii=False, separators=(",", ":"))


def _events(pid: int, name: str, timeline: ProgramTrace) -> Iterator[dict[str, Any]]:
    sms, starts, ends = (part.numpy().tolist() for part in (timeline.sm, timeline.start_ns, timeline.end_ns))
    yield {"ph": "M", "pid": pid, "name": "process_name", "args": {"name": f"{name}, launch {timeline.launch}"}}
    free_at: dict[int, list[int]] = {}  # of each SM, when each of its lanes ends
    for program in sorted(range(len(sms)), key=lambda index: (starts[index], index)):
        sm, start, end = sms[program], starts[program], ends[program]
        lanes = free_at.setdefault(sm, [])
        lane = next((index for index, free in enumerate(lanes) if free <= start), len(lanes))
        tid = sm * 64 + lane  # an SM holds 32 CTAs at most
        if lane == len(lanes):
            lanes.append(end)
            label = f"SM {sm}" if lane == 0 else f"SM {sm}, CTA {lane + 1}"
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": label}}
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}
        lanes[lane] = end
        # Chrome traces count in microseconds.
        shown = {"name": f"program {program}", "ts": start / 1000, "dur": (end - start) / 1000}
        yield {"ph": "X", "pid": pid, "tid": tid, **shown, "args": {"program": program, "sm": sm}}
