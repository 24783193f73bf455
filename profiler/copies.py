"""Work whose bandwidth is a memory roof of a GPU: a copy through HBM, and a copy and a read that never leave L2."""

# As in kernels/*/kernel.py: what a Triton kernel takes has no Python type.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-incomplete-defs=False

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

ELEMENT_BYTES = 4
BLOCK = 4096  # elements that a program within L2 moves at once
BLOCK_BYTES = BLOCK * ELEMENT_BYTES
NUM_WARPS = 8
# With 48 KiB of loads on their way an SM is never short of them; more programs would meet at the same block, and what
# SMs ask for together may reach L2 as one.
PROGRAMS_OF_AN_SM = 3
# Of an L2: what the working set takes, both sides of a copy together. An H200's L2 is two halves, and each keeps what
# its SMs read.
SHARE_OF_L2 = 4


@dataclass(frozen=True)
class Traffic:
    """Work ready to launch; one launch reads and writes `moved` bytes together. `words` say how."""

    launch: Callable[[], object]
    moved: int
    words: str


def hbm_copy(size: int, device: str) -> Traffic:
    """`size` bytes of random float32, read once and written once with the sign flipped, as torch does it.

    A plain copy may go to the copy engine instead of the SMs.
    """
    source = _random(size, device)
    target = torch.empty_like(source)
    words = f"{size >> 20} MiB of random float32, read once and written once"
    return Traffic(lambda: torch.neg(source, out=target), 2 * size, words)


def l2_copy(l2_bytes: int, sm_count: int, moved: int, device: str) -> Traffic:
    """At least `moved` bytes read and written within a working set of 1 / SHARE_OF_L2 of L2, in one launch."""
    blocks, programs = max(1, l2_bytes // SHARE_OF_L2 // 2 // BLOCK_BYTES), sm_count * PROGRAMS_OF_AN_SM
    turns = -(-moved // (2 * BLOCK_BYTES * programs))
    source = _random(blocks * BLOCK_BYTES, device)
    target = torch.empty_like(source)
    return Traffic(
        lambda: copy_in_turns[(programs,)](source, target, blocks, turns, BLOCK=BLOCK, num_warps=NUM_WARPS),
        2 * BLOCK_BYTES * programs * turns,
        f"{source.nbytes / 2**20:.3g} MiB of random float32, read and written again and again in one launch",
    )


def l2_read(l2_bytes: int, sm_count: int, moved: int, device: str) -> Traffic:
    """As l2_copy, but read only: what attention asks of L2 is nearly all reads, and L2 serves them another way."""
    blocks, programs = max(1, l2_bytes // SHARE_OF_L2 // BLOCK_BYTES), sm_count * PROGRAMS_OF_AN_SM
    turns = -(-moved // (BLOCK_BYTES * programs))
    source = _random(blocks * BLOCK_BYTES, device)
    sums = torch.empty(programs, dtype=torch.float32, device=device)
    return Traffic(
        lambda: read_in_turns[(programs,)](source, sums, blocks, turns, BLOCK=BLOCK, num_warps=NUM_WARPS),
        BLOCK_BYTES * programs * turns,
        f"{source.nbytes / 2**20:.3g} MiB of random float32, read again and again in one launch",
    )


@triton.jit
def copy_in_turns(source_ptr, target_ptr, blocks, turns, BLOCK: tl.constexpr):
    """Each program copies one block a turn, and the one that is num_programs further in the next, round and round.

    Programs may copy the same block at a time: they write the same values.
    """
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    for turn in range(turns):
        block = (program + turn * programs) % blocks
        at = block * BLOCK + tl.arange(0, BLOCK)
        # .cg passes L1 by: all SMs' L1 together would hold the whole working set.
        tl.store(target_ptr + at, tl.load(source_ptr + at, cache_modifier=".cg"))


@triton.jit
def read_in_turns(source_ptr, sums_ptr, blocks, turns, BLOCK: tl.constexpr):
    """The same blocks in the same order, added up: sums [programs], without which no load would be left."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    acc = tl.zeros((BLOCK,), tl.float32)
    for turn in range(turns):
        block = (program + turn * programs) % blocks
        acc += tl.load(source_ptr + block * BLOCK + tl.arange(0, BLOCK), cache_modifier=".cg")
    tl.store(sums_ptr + program, tl.sum(acc))


def _random(size: int, device: str) -> torch.Tensor:
    return torch.randn(size // ELEMENT_BYTES, dtype=torch.float32, device=device)
