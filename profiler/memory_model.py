"""The tensors that must be alive at once in a pass, and what torch's allocator makes of their sizes; pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from kernels.base import AttentionKernel
from kernels.problem import AttentionProblem, TileConfig

MIB = 2**20
# The caching allocator's own sizes (torch 2.11 and 2.13, c10: kMinBlockSize, kSmallSize, kSmallBuffer, kMinLargeAlloc,
# kLargeBuffer, kRoundLarge).
BLOCK, SMALL, SMALL_SEGMENT = 512, 1 * MIB, 2 * MIB
LARGE, LARGE_SEGMENT, ROUND_LARGE = 10 * MIB, 20 * MIB, 2 * MIB


@dataclass(frozen=True)
class Placed:
    """Bytes of blocks, and of the segments that hold them."""

    allocated: int
    reserved: int


def peak_tensors(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig | None) -> dict[str, int]:
    """Bytes of each tensor that is alive at the peak: inputs, O, gradients, and the kernel's temporaries with LSE.

    What a kernel says is 0 of them is not there yet.
    """
    whole = {name: size for name, size in problem.tensor_bytes.items() if name != "lse"}
    alive = whole | dict(kernel.temporaries(problem, tile or TileConfig()))
    return {name: size for name, size in alive.items() if size}


def placed(sizes: Iterable[int]) -> Placed:
    """Where a fresh caching allocator puts tensors of these sizes that all stay alive, one after the other.

    Blocks are multiples of BLOCK. Up to SMALL they share segments of SMALL_SEGMENT; below LARGE, of LARGE_SEGMENT;
    larger ones have a segment each, a multiple of ROUND_LARGE. The smallest free block that fits is taken, and split
    where the rest is worth it.
    """
    free: dict[bool, list[int]] = {True: [], False: []}
    allocated = reserved = 0
    for size in sizes:
        need = max(1, -(-size // BLOCK)) * BLOCK
        is_small = need <= SMALL
        fitting = [block for block in free[is_small] if block >= need]
        if fitting:
            block = min(fitting)
            free[is_small].remove(block)
        else:
            block = (
                SMALL_SEGMENT if is_small else LARGE_SEGMENT if need < LARGE else -(-need // ROUND_LARGE) * ROUND_LARGE
            )
            reserved += block
        rest = block - need
        is_split = rest >= BLOCK if is_small else rest > SMALL
        if is_split:
            free[is_small].append(rest)
        allocated += need if is_split else block
    return Placed(allocated, reserved)
