"""What interpreted programs really load and store: bytes by program, direction and address."""

import os
from collections import Counter as Tally
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch


@dataclass
class AccessTrace:
    """Masked-in bytes of every load, store and atomic, as (program, direction, first address) -> bytes.

    An atomic counts as a write: it is L2 that reads and adds, and no SM is given what was there.
    """

    accesses: Tally[tuple[int, str, int]] = field(default_factory=Tally)
    left_out: list[tuple[int, int]] = field(default_factory=list)  # addresses, half-open

    def leave_out(self, *tensors: torch.Tensor) -> None:
        """Book nothing of these tensors: what a traced kernel writes about itself is not in its schedule."""
        storages = [tensor.untyped_storage() for tensor in tensors]
        self.left_out += [(storage.data_ptr(), storage.data_ptr() + storage.nbytes()) for storage in storages]

    def note(self, program: int, direction: str, ptrs: Any, mask: Any) -> None:
        """Book one access; `ptrs` and `mask` are the interpreter's handles."""
        # A mask built with a scalar comparison comes as integers, which would pick elements 0 and 1.
        active = np.broadcast_to(mask.data, ptrs.data.shape).astype(bool)
        count = int(active.sum())
        first = int(ptrs.data[active].min()) if count else 0
        if count and not any(start <= first < end for start, end in self.left_out):
            size = max(1, ptrs.get_element_ty().primitive_bitwidth // 8)
            self.accesses[program, direction, first] += count * size

    def total(self, direction: str) -> int:
        """Bytes of all loads ("read"), or of all stores and atomics ("write")."""
        return sum(size for (_, way, _), size in self.accesses.items() if way == direction)


def is_interpreting() -> bool:
    """Whether Triton kernels are interpreted in this process."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@contextmanager
def traced_accesses() -> Iterator[AccessTrace]:
    """Record every access of Triton kernels launched inside; needs TRITON_INTERPRET=1 before triton is imported."""
    if not is_interpreting():
        raise RuntimeError("Accesses can be traced only where Triton's interpreter runs: set TRITON_INTERPRET=1 first.")
    from triton.runtime.interpreter import InterpreterBuilder

    trace = AccessTrace()
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store
    atomic = InterpreterBuilder.create_atomic_rmw

    # Plain and descriptor accesses all pass through the first two.
    # Accesses by descriptor give the mask as a bare array, and what follows it by name.
    def traced_load(self: Any, ptrs: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        trace.note(self.grid_idx[0], "read", ptrs, mask)
        return load(self, ptrs, mask, *rest, **named)

    def traced_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any, **named: Any) -> Any:
        trace.note(self.grid_idx[0], "write", ptrs, mask)
        return store(self, ptrs, value, mask, *rest, **named)

    def traced_atomic(self: Any, operation: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        trace.note(self.grid_idx[0], "write", ptrs, mask)
        return atomic(self, operation, ptrs, value, mask, *rest)

    InterpreterBuilder.create_masked_load = traced_load
    InterpreterBuilder.create_masked_store = traced_store
    InterpreterBuilder.create_atomic_rmw = traced_atomic
    try:
        yield trace
    finally:
        InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = load, store
        InterpreterBuilder.create_atomic_rmw = atomic
