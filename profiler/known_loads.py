"""Loads for an audit: operations whose HBM bytes are known beforehand, and cuDNN's attention."""

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch

from kernels.base import all_kernels
from kernels.problem import Refused, TileConfig
from kernels.run import LaunchHook
from profiler.audit_grid import LIBRARY, OPERATIONS, REPEATS, KnownWork, LibraryWork
from profiler.bench import Load, draw_inputs
from profiler.codec import encode
from profiler.run import DeviceInfo, Measurement

ELEMENT_BYTES = 4


class KnownLoad(Load):
    """A copy, a fill or a sum of `work.size` bytes of float32; with L2 cold and drained its HBM bytes are `known`.

    The copy flips the sign: a plain one may go to the copy engine, which is no launch that ncu sees.
    Raises Refused for an operation that is not known.
    """

    repeats = REPEATS

    def __init__(self, work: KnownWork, device: DeviceInfo) -> None:
        super().__init__(device)
        if work.operation not in OPERATIONS:
            raise Refused(f"Operation {work.operation!r} is not known; choose {', '.join(OPERATIONS)}.")
        self.spec = {"known": encode(work)}
        self.work, self.launch_names = work, (work.operation,)
        reads, writes = OPERATIONS[work.operation]
        self.known = {"hbm_read_bytes": reads * work.size, "hbm_write_bytes": writes * work.size}
        self.compulsory_bytes = (reads + writes) * work.size
        where: dict[str, Any] = {"dtype": torch.float32, "device": device.device}
        count = work.size // ELEMENT_BYTES
        self._source = torch.ones(count if reads else 0, **where)
        self._target = torch.zeros(count if writes else (), **where)

    def launch(self, hook: LaunchHook = nullcontext) -> torch.Tensor:
        """One launch, asynchronous."""
        with hook(self.work.operation):
            if self.work.operation == "copy":
                return torch.neg(self._source, out=self._target)
            if self.work.operation == "fill":
                return self._target.fill_(1.0)
            return torch.sum(self._source, dim=0, out=self._target)

    def measurements(self) -> tuple[Measurement, ...]:
        """`known` as Measurements of source model."""
        note = f"{self.work.operation} of {self.work.size:,} B: each byte once"
        return tuple(Measurement(name, float(value), "B", "model", note) for name, value in self.known.items())


class LibraryLoad(Load):
    """One forward pass of torch's attention by cuDNN, on the inputs that Bench draws.

    Raises Refused, with torch's reasons, where cuDNN does not take the problem.
    """

    repeats = REPEATS

    def __init__(self, work: LibraryWork, device: DeviceInfo) -> None:
        super().__init__(device)
        problem, kernel = work.problem, all_kernels()[LIBRARY]
        # torch aligns a causal mask top-left.
        if problem.window is not None or (problem.causal and problem.seq_len_q != problem.seq_len_kv):
            raise Refused("torch's attention has no window, and its causal mask wants seq_len_q = seq_len_kv.")
        self.spec = {"library": encode(work)}
        self.compulsory_bytes, self.launch_names = problem.compulsory_bytes, (LIBRARY,)
        self._inputs = draw_inputs(problem, work.seed, device.device)
        self._attend = partial(kernel.forward, *self._inputs, problem, TileConfig(), finite=True)
        if kernel.prepare is not None:
            kernel.prepare(problem, TileConfig(), device.device)

    def launch(self, hook: LaunchHook = nullcontext) -> torch.Tensor:
        """O [batch, heads, seq_len, head_dim], asynchronous."""
        with hook(LIBRARY):
            o: torch.Tensor = self._attend().o
            return o
