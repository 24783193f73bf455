"""A Triton kernel that writes where nothing is: the CUDA error that loses a process its GPU."""

from typing import Any

import triton
import triton.language as tl


@triton.jit  # type: ignore[untyped-decorator]
def write_far_away(ptr: Any) -> None:
    """Write 16 TiB behind `ptr`."""
    tl.store(ptr + (1 << 43), 1.0)
