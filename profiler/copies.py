"""Copies whose bandwidths are the memory roofs of a GPU: one through HBM, and one that never leaves L2.

Both count each byte read and each byte written.
"""

# As in kernels/*/kernel.py: what a Triton kernel takes has no Python type.
# mypy: disallow-untyped-defs=False, disallow-untyped-decorators=False, disallow-incomplete-defs=False

from collections.abc import Callable
from dataclasses import dataclass

import torch
import triton
import triton.language as tl

ELEMENT_BYTES = 4
BLOCK = 4096  # elements that a program of the L2 copy moves at once
NUM_WARPS = 8
PROGRAMS_OF_AN_SM = 4
# Of an L2: what both sides of the copy take together. An H200's L2 is two halves, and each keeps what its SMs read.
SHARE_OF_L2 = 4


@dataclass(frozen=True)
class Copy:
    """A copy ready to launch; one launch reads and writes `moved` bytes together. `words` say how."""

    launch: Callable[[], object]
    moved: int
    words: str


def hbm_copy(size: int, device: str) -> Copy:
    """`size` bytes of random float32, read once and written once with the sign flipped, as torch does it.

    A plain copy may go to the copy engine instead of the SMs.
    """
    source = _random(size, device)
    target = torch.empty_like(source)
    words = f"{size >> 20} MiB of random float32, read once and written once"
    return Copy(lambda: torch.neg(source, out=target), 2 * size, words)


def l2_copy(l2_bytes: int, sm_count: int, moved: int, device: str) -> Copy:
    """At least `moved` bytes read and written within a working set of 1 / SHARE_OF_L2 of L2, in one launch."""
    block_bytes = BLOCK * ELEMENT_BYTES
    blocks = max(1, l2_bytes // SHARE_OF_L2 // 2 // block_bytes)
    programs = sm_count * PROGRAMS_OF_AN_SM
    turns = -(-moved // (2 * block_bytes * programs))
    source = _random(blocks * block_bytes, device)
    target = torch.empty_like(source)
    words = f"{blocks * block_bytes / 2**20:.3g} MiB of random float32, read and written again and again in one launch"
    return Copy(
        lambda: copy_in_turns[(programs,)](source, target, blocks, turns, BLOCK=BLOCK, num_warps=NUM_WARPS),
        2 * block_bytes * programs * turns,
        words,
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


def _random(size: int, device: str) -> torch.Tensor:
    return torch.randn(size // ELEMENT_BYTES, dtype=torch.float32, device=device)
