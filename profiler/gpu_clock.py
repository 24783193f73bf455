"""When work starts and ends by the GPU's own clock, read by a kernel of one program before and after it."""

# As in kernels/*/kernel.py: what a Triton kernel takes has no Python type.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False

from collections.abc import Iterator
from contextlib import contextmanager
from time import time_ns

import torch
import triton
import triton.language as tl
from triton.language.extra import cuda as cuda_extra

LOOKS = 8


@triton.jit(do_not_specialize=["slot"])
def write_time(times_ptr, slot):
    """Writes %globaltimer, ns, to times[slot] (int64)."""
    tl.store(times_ptr + slot, cuda_extra.globaltimer())


class GpuClock:
    """Up to `max_spans` spans of work on this thread's current stream of a GPU, in absolute ns of %globaltimer.

    host_ahead_ns is how far the host's time.time_ns is ahead of that, to within half of what it takes to launch a
    kernel and wait for it. Building a GpuClock compiles the kernel, so that later launches take microseconds.
    """

    def __init__(self, device: str, max_spans: int) -> None:
        self._names: list[str] = []
        self._times = torch.zeros(2 * max_spans, dtype=torch.int64, device=device)
        self._look()
        _, self.host_ahead_ns = min(self._look() for _ in range(LOOKS))

    def _look(self) -> tuple[int, int]:
        """How long it took to launch the kernel and wait, and the host's time half-way less the GPU's; ns."""
        torch.cuda.synchronize()
        before = time_ns()
        self._mark(0)
        torch.cuda.synchronize()
        after = time_ns()
        return after - before, (before + after) // 2 - int(self._times[0])

    @contextmanager
    def span(self, name: str) -> Iterator[None]:
        """Marks the GPU's time before and after the work launched inside, without waiting for it."""
        slot = 2 * len(self._names)
        if slot == len(self._times):
            raise ValueError(f"Span {name} is one more than max_spans, {slot // 2}; raise max_spans.")
        self._names.append(name)
        self._mark(slot)
        yield
        self._mark(slot + 1)

    def _mark(self, slot: int) -> None:
        write_time[(1,)](self._times, slot, num_warps=1)

    def spans(self) -> list[tuple[str, int, int]]:
        """Name, start and end in ns of each span, in order; waits for the GPU."""
        pairs: list[list[int]] = self._times.view(-1, 2).tolist()
        return [(name, start, end) for name, (start, end) in zip(self._names, pairs, strict=False)]
