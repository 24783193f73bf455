"""What the backward pass of kernels that leave LSE takes of a GPU, told before anything is compiled or launched."""

from kernels.gpu_limits import refuse_grid
from kernels.problem import FLOAT32_BYTES, AttentionProblem, TileConfig
from kernels.shared_memory import BARRIER_BYTES, SharedMemory
from kernels.streamed_q import turned

WARPGROUP_ROWS = 64  # of the result of a product that a group of four warps makes together


def both_passes(forward: SharedMemory) -> SharedMemory:
    """What a kernel takes whose forward pass takes `forward`, and whose backward pass is this one."""

    def at_least(problem: AttentionProblem, tile: TileConfig) -> int:
        return max(forward.at_least(problem, tile), _at_least(problem, tile))

    def at_most(problem: AttentionProblem, tile: TileConfig) -> int:
        return max(forward.at_most(problem, tile), _at_most(problem, tile))

    return SharedMemory(at_least, at_most, forward.largest)


def refuse_backward_grid(problem: AttentionProblem, tile: TileConfig) -> None:
    """Raise Refused for more programs than a grid has."""
    if problem.backward:
        programs = problem.batch * problem.kv_heads * -(-problem.seq_len_kv // turned(problem, tile).BLOCK_N)
        refuse_grid(programs, "choose a larger BLOCK_M")


def _at_least(problem: AttentionProblem, tile: TileConfig) -> int:
    """num_stages − 1 stages of Q and dO, and no less than a tile of K.

    Read off Triton 3.7 for sm_80, 90 and 120 over 213 configurations in bfloat16, and so is _at_most.
    """
    if not problem.backward:
        return 0
    tile, row = turned(problem, tile), problem.padded_head_dim * problem.element_bytes
    return max(tile.BLOCK_N, tile.BLOCK_M, 2 * (tile.num_stages - 1) * tile.BLOCK_M) * row


def _at_most(problem: AttentionProblem, tile: TileConfig) -> int:
    """K, V, num_stages stages of Q, dO, LSE and delta, dS on its way to dQ, and dQ in float32 on its way to HBM.

    Fewer than 64 queries are no warpgroup product, and want K in another layout as well.
    """
    if not problem.backward:
        return 0
    tile, row = turned(problem, tile), problem.padded_head_dim * problem.element_bytes
    stages = 2 * tile.num_stages * tile.BLOCK_M
    added = tile.BLOCK_M * problem.padded_head_dim * FLOAT32_BYTES
    ds = tile.BLOCK_M * tile.BLOCK_N * problem.element_bytes
    keys = (2 if tile.BLOCK_M >= WARPGROUP_ROWS else 3) * tile.BLOCK_N
    return (keys + stages) * row + stages * FLOAT32_BYTES + ds + added + BARRIER_BYTES
