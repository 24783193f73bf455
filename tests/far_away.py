"""A Triton kernel that writes where nothing is: the CUDA error that loses a process its GPU."""

import triton
import triton.language as tl


@triton.jit
def write_far_away(ptr):  # type: ignore[no-untyped-def]
    """Write 2^43 elements behind `ptr`."""
    tl.store(ptr + (1 << 43), 1.0)
