"""What flash cannot run, told before anything is compiled or launched."""

from kernels.base import GpuLimits
from kernels.gpu_limits import refuse_grid
from kernels.problem import AttentionProblem, TileConfig
from kernels.shared_memory import STREAMED_KV
from kernels.streamed_q_limits import both_passes, refuse_backward_grid

SHARED = both_passes(STREAMED_KV)


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a grid, block, dtype or shared memory beyond the GPU; `gpu` None means interpreted."""
    programs = problem.batch * problem.heads * -(-problem.seq_len_q // tile.BLOCK_M)
    refuse_grid(programs, "choose a larger BLOCK_M")
    refuse_backward_grid(problem, tile)
    if gpu is not None:
        SHARED.refuse_tile(problem, tile, gpu)
