"""Timelines as a GPU's scheduler would make them: the next program goes to the lane that is free first."""

import heapq

import numpy as np

from kernels.walk import Walk
from profiler.codec import PackedArray
from profiler.run import ProgramTrace

TICK = 32


def scheduled(walk: Walk, lanes: int, step_ns: int, uneven: float = 0.0) -> ProgramTrace:
    """Programs in launch order on lanes of one SM each; a step takes step_ns, on each SM up to `uneven` more."""
    draw = np.random.default_rng(0)
    pace = step_ns * (1 + uneven * draw.random(lanes))
    free = [(0, lane) for lane in range(lanes)]
    sm, start, end = (np.zeros(walk.total_programs, np.int64) for _ in range(3))
    for program in range(walk.total_programs):
        at, lane = heapq.heappop(free)
        until = at + round(int(walk.steps[program % walk.programs]) * pace[lane] / TICK) * TICK
        sm[program], start[program], end[program] = lane, at, until
        heapq.heappush(free, (until, lane))
    return traced(sm, start, end)


def traced(sm: object, start: object, end: object) -> ProgramTrace:
    """A ProgramTrace of these SMs and times in ns."""
    times = [PackedArray.pack(np.asarray(time, np.int64)) for time in (start, end)]
    return ProgramTrace("flash", PackedArray.pack(np.asarray(sm, np.int32)), *times, TICK)
