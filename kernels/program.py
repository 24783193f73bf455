"""What every program does beside attention, in Triton: find its (batch, head), and note its SM and its time."""

import triton
import triton.language as tl
from triton.language.extra import cuda as cuda_extra


@triton.jit
def batch_and_heads(bh, heads, group):
    """(batch, head, kv_head) of the bh-th (batch, head), as int64: what they are multiplied with may pass 2^31."""
    batch = (bh // heads).to(tl.int64)
    head = (bh % heads).to(tl.int64)
    return batch, head, head // group


@triton.jit
def note_start(start_ptr, program, TIMELINE: tl.constexpr):
    """Store the GPU's clock as a program begins, if that is recorded."""
    if TIMELINE:
        tl.store(start_ptr + program, cuda_extra.globaltimer())


@triton.jit
def note_end(sm_ptr, end_ptr, program, TIMELINE: tl.constexpr):
    """Store a program's SM, and the GPU's clock as it ends, if that is recorded."""
    if TIMELINE:
        tl.store(sm_ptr + program, cuda_extra.smid())
        tl.store(end_ptr + program, cuda_extra.globaltimer())
