"""A Load kept running without a gap, for sources that look at the GPU in mid-load."""

import math
from collections import deque
from collections.abc import Iterator

import torch

from profiler.bench import Load

QUEUED_SECONDS = 0.03  # work that stands behind a border, so that the GPU does not run dry while the host looks
MAX_QUEUED = 64


def borders(load: Load) -> Iterator[torch.cuda.Event]:
    """The event at the end of each pass, one after the other as they pass, while more passes stand in the queue.

    Endless; who has seen enough waits for what is still queued by load.synchronize().
    """
    depth = _queue_depth(load)
    queued: deque[torch.cuda.Event] = deque()
    while True:
        while len(queued) < depth:
            load.launch()
            queued.append(mark_border(load))
        border = queued.popleft()
        border.synchronize()
        yield border


def mark_border(load: Load) -> torch.cuda.Event:
    """An event after everything launched so far."""
    event = torch.cuda.Event(enable_timing=True)
    event.record(torch.cuda.current_stream(load.device.device))
    return event


def _queue_depth(load: Load) -> int:
    """Passes to keep in the queue: QUEUED_SECONDS behind a border, and few of long ones."""
    load.launch()
    begin = mark_border(load)
    load.launch()
    end = mark_border(load)
    end.synchronize()
    seconds = max(float(begin.elapsed_time(end)) * 1e-3, QUEUED_SECONDS / MAX_QUEUED)
    return 1 + math.ceil(QUEUED_SECONDS / seconds)
