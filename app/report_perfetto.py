"""Measured timelines and sampled bandwidths of Runs as Chrome trace JSON, which ui.perfetto.dev opens."""

import json
from collections.abc import Sequence
from typing import Any

from app.lanes import lanes
from app.no_timeline import why_no_timeline
from app.perfetto_counters import counters
from app.perfetto_slices import LaneSlices, lane_slices
from app.sampled import sampled
from app.selection import names
from kernels.problem import Refused
from profiler.run import Run

MOST_EVENTS = 200_000
MOST_COUNTED = 50_000  # of them may be counters

Event = dict[str, Any]


def perfetto(runs: Sequence[Run]) -> str:
    """A process for each Run's timeline, a thread for each lane, a slice for each program; beside it one for its HBM.

    HBM was sampled in another pass, so it is a process with a clock of its own: launches as slices, read and write as
    counters in B/s. At most MOST_EVENTS events: slices are merged (see LaneSlices), samples averaged, and process
    names and otherData say so. Raises Refused where no Run has a timeline: nothing is drawn that was not measured.
    """
    named = list(zip(names(runs), runs, strict=True))
    timed = [(name, run, found) for name, run in named if run.timeline and (found := lanes(run.timeline)) is not None]
    if not timed:
        raise Refused(why_no_timeline(runs))
    measured = [(name, samples) for name, run in named if not isinstance(samples := sampled(run), str)]
    notes: dict[str, str] = {}
    counted: list[Event] = []
    for pid, (name, samples) in enumerate(measured, len(timed) + 1):
        events, note = counters(samples, pid, MOST_COUNTED // (2 * len(measured)))
        title = f"{name}, HBM of another pass{', ' if note else ''}{note}"
        counted += [*_process(pid, title), *events]
        notes |= {f"samples of {name}": note} if note else {}
    slices = [lane_slices(run, found) for _, run, found in timed]
    window = _window(slices, MOST_EVENTS - len(counted))
    sliced: list[Event] = []
    for pid, ((name, run, _), lane) in enumerate(zip(timed, slices, strict=True), 1):
        note = f"slices within {window / 1000:g} µs of a lane are merged" if lane.count(window) < lane.programs else ""
        title = f"{name}, programs of {run.timeline.launch if run.timeline else ''}{', ' if note else ''}{note}"
        sliced += [*_process(pid, title), *lane.events(pid, window)]
        notes |= {f"programs of {name}": note} if note else {}
    document = {
        "displayTimeUnit": "ns",
        "otherData": {
            "programs": "start, end and SM as the running kernel read them (%globaltimer, %smid)",
            "HBM": "GPU counters sampled over time in a pass of its own (cupti-sampling)",
            "down-sampled": "; ".join(f"{of}: {how}" for of, how in notes.items()) or "no",
        },
        "traceEvents": sliced + counted,
    }
    return json.dumps(document, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _process(pid: int, name: str) -> list[Event]:
    return [
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}},
        {"ph": "M", "pid": pid, "tid": 0, "name": "process_sort_index", "args": {"sort_index": pid}},
    ]


def _window(slices: Sequence[LaneSlices], room: int) -> int:
    """The least of 0 ns (nothing is merged) and the powers of two at which all slices fit into so many events."""
    fixed = sum(2 + lane.named for lane in slices)
    longest = max(lane.duration for lane in slices)
    window = 0
    while fixed + sum(lane.count(window) for lane in slices) > room:
        if window > longest:
            raise Refused(f"These Runs have more lanes than {MOST_EVENTS:,} events can show; export fewer of them.")
        window = max(1, 2 * window)
    return window
