"""What flash with K/V outside cannot run, told before anything is compiled or launched."""

from kernels.base import GpuLimits
from kernels.gpu_limits import refuse_grid
from kernels.problem import FLOAT32_BYTES, AttentionProblem, TileConfig
from kernels.shared_memory import BARRIER_BYTES, SharedMemory


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a grid, block, dtype or shared memory beyond the GPU; `gpu` None means interpreted."""
    refuse_grid(problem.batch * problem.heads, "choose fewer heads")
    if gpu is not None:
        STREAMED_Q.refuse_tile(problem, tile, gpu)


def _at_least(problem: AttentionProblem, tile: TileConfig) -> int:
    """The K and V tiles, and num_stages − 1 stages of Q."""
    row = problem.padded_head_dim * problem.element_bytes
    return (2 * tile.BLOCK_N + max(1, tile.num_stages - 1) * tile.BLOCK_M) * row


def _at_most(problem: AttentionProblem, tile: TileConfig) -> int:
    """num_stages stages of Q and m, P, and as sm_100 wants it K and V in two layouts, num_stages − 1 stages of acc.

    Read off Triton 3.7 for sm_80, 90, 100 and 120 over 93 configurations.
    """
    row = problem.padded_head_dim * problem.element_bytes
    q_and_m = tile.num_stages * tile.BLOCK_M * (row + FLOAT32_BYTES)
    p = tile.BLOCK_M * tile.BLOCK_N * problem.element_bytes
    acc = tile.BLOCK_M * problem.padded_head_dim * FLOAT32_BYTES
    barriers = tile.num_stages * BARRIER_BYTES
    return 4 * tile.BLOCK_N * row + q_and_m + p + max(1, tile.num_stages - 1) * acc + barriers


STREAMED_Q = SharedMemory(_at_least, _at_most, largest="BLOCK_M")
