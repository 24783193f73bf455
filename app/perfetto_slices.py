"""The programs of one Run as slices of a Chrome trace, merged where there are too many."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.lanes import Lanes
from app.program_work import Work, requested, walk_of
from kernels.problem import Int64Array
from kernels.walk import Walk
from profiler.run import Run

SLOTS = 64  # numbers kept for the lanes of an SM, which holds 32 CTAs at most


@dataclass(frozen=True)
class LaneSlices:
    """Programs in order of lane and start, int64 [programs]; what one does not know of its work is left out.

    A slice ends where the next one of its lane begins, if not before: the clock's tick may make them overlap.
    With a window of w ns, all slices of a lane that lie within the same stretch from k · w to (k + 1) · w are one
    slice, from its first program's start to its last one's end. What lasts longer, or lies across the border of two
    stretches, stays as it is: so the shortest neighbours are merged.
    """

    found: Lanes
    walk: Walk | None
    program: Int64Array
    start: Int64Array
    end: Int64Array

    @property
    def programs(self) -> int:
        """How many there are."""
        return len(self.program)

    @property
    def duration(self) -> int:
        """From the first start to the last end, ns."""
        return self.found.duration

    @property
    def named(self) -> int:
        """Events that name and sort the lanes."""
        return 2 * (int(self.found.lane.max()) + 1)

    def first_of(self, window: int) -> Int64Array:
        """The index of the first program of each slice."""
        if window == 0:
            return np.arange(self.programs)
        at, until = self.start // window, np.maximum(self.end - 1, self.start) // window
        # What does not fit into one stretch gets a number that no other slice has.
        own = np.where(at == until, at, -1 - np.arange(self.programs))
        lane = self.found.lane[self.program]
        starts = (np.diff(own, prepend=own[0]) != 0) | (np.diff(lane, prepend=lane[0]) != 0)
        starts[0] = True
        return np.flatnonzero(starts)

    def count(self, window: int) -> int:
        """How many slices there are with a window."""
        return len(self.first_of(window))

    def events(self, pid: int, window: int) -> Iterator[dict[str, Any]]:
        """Names of lanes, then slices."""
        found, asked = self.found, None if self.walk is None else requested(self.walk)
        at = np.unique(found.lane, return_index=True)[1]
        for sm, slot in zip(found.sm[at].tolist(), found.slot[at].tolist(), strict=True):
            tid = sm * SLOTS + slot
            label = f"SM {sm}" if slot == 0 else f"SM {sm}, CTA {slot + 1}"
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_name", "args": {"name": label}}
            yield {"ph": "M", "pid": pid, "tid": tid, "name": "thread_sort_index", "args": {"sort_index": tid}}
        first = self.first_of(window)
        for low, high in zip(first.tolist(), [*first[1:].tolist(), self.programs], strict=True):
            program = int(self.program[low])
            sm, start, end = int(found.sm[program]), int(self.start[low]), int(self.end[high - 1])
            args: dict[str, Any] = {"sm": sm, "wave": int(found.wave[program])}
            if high == low + 1:
                name = f"program {program}"
                args |= {"program": program} | ({} if self.walk is None else _work(self.walk, program))
            else:
                name = f"{high - low} programs"
                busy = int((self.end[low:high] - self.start[low:high]).sum())
                args |= {"programs": high - low, "first_program": program, "last_program": int(self.program[high - 1])}
                args |= {"busy_us": busy / 1000}
                if asked is not None:
                    args["requested_bytes"] = int(asked[self.program[low:high] % len(asked)].sum())
            # Chrome traces count in microseconds.
            when = {"ts": start / 1000, "dur": (end - start) / 1000}
            yield {"ph": "X", "pid": pid, "tid": sm * SLOTS + int(found.slot[program]), "name": name, "cat": "program",
                   **when, "args": args}  # fmt: skip


def lane_slices(run: Run, found: Lanes) -> LaneSlices:
    """The slices of a Run whose timeline was unpacked."""
    order = np.lexsort((found.start, found.lane))
    start, end, lane = found.start[order], found.end[order].copy(), found.lane[order]
    same = lane[1:] == lane[:-1]
    end[:-1] = np.where(same, np.minimum(end[:-1], start[1:]), end[:-1])
    return LaneSlices(found, walk_of(run, found), order, start, end)


def _work(walk: Walk, program: int) -> dict[str, Any]:
    work = Work.of(walk, program)
    heads = work.query_heads(walk)
    return {
        "batch": work.batch,
        **({"head": work.head} if heads is None else {"kv_head": work.head, "query_heads": _span(heads)}),
        "q_tile": _span(work.q_tiles),
        "kv_tiles": "none" if work.kv_tiles is None else _span(work.kv_tiles),
        "requested_bytes": work.requested_bytes,
    }


def _span(ends: tuple[int, int]) -> int | str:
    first, last = ends
    return first if first == last else f"{first} to {last}"
