"""What split K/V cannot run, told before anything is compiled or launched."""

from kernels.base import GpuLimits
from kernels.gpu_limits import refuse_grid
from kernels.packed_gqa import packed
from kernels.problem import FLOAT32_BYTES, AttentionProblem, TileConfig
from kernels.shared_memory import BARRIER_BYTES, SharedMemory, streamed_kv_at_least, streamed_kv_at_most
from kernels.split_kv.schedule import merged_at_once, splits_of


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a grid, block, dtype or shared memory beyond the GPU; `gpu` None means interpreted."""
    rows = packed(problem)
    (splits, _), (merged, _) = splits_of(rows, tile), merged_at_once(rows, tile)
    programs = max(splits * -(-rows.seq_len_q // tile.BLOCK_M), -(-rows.seq_len_q // merged))
    refuse_grid(rows.batch * rows.heads * programs, "choose a larger BLOCK_M")
    if gpu is not None:
        SPLIT.refuse_tile(problem, tile, gpu)


def _at_most(problem: AttentionProblem, tile: TileConfig) -> int:
    """As where K and V stream past Q, or acc on its way to HBM, which comes after them.

    Read off Triton 3.7 for sm_80, 90, 100 and 120 over 63 configurations, and the least with it.
    """
    acc = tile.BLOCK_M * problem.padded_head_dim * FLOAT32_BYTES
    return max(streamed_kv_at_most(problem, tile), acc + BARRIER_BYTES)


SPLIT = SharedMemory(streamed_kv_at_least, _at_most)
