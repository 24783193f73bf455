"""What flash by TMA cannot run, told before anything is compiled or launched."""

from kernels.base import GpuLimits
from kernels.described_limits import refuse_undescribed_rows, refuse_without_tma
from kernels.gpu_limits import refuse_grid
from kernels.problem import AttentionProblem, TileConfig
from kernels.shared_memory import BARRIER_BYTES, SharedMemory
from kernels.streamed_q_limits import both_passes, refuse_backward_grid

TITLE = "Flash, TMA"


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a grid, row, block, dtype or shared memory beyond the GPU; `gpu` None means interpreted."""
    programs = problem.batch * problem.heads * -(-problem.seq_len_q // tile.BLOCK_M)
    refuse_grid(programs, "choose a larger BLOCK_M")
    refuse_backward_grid(problem, tile)
    refuse_problem(problem)
    if gpu is not None:
        refuse_without_tma(TITLE, gpu)
        SHARED.refuse_tile(problem, tile, gpu)


def refuse_problem(problem: AttentionProblem) -> None:
    """Raise Refused for rows that no descriptor can hold."""
    refuse_undescribed_rows(TITLE, problem)


def _at_least(problem: AttentionProblem, tile: TileConfig) -> int:
    """num_stages − 1 stages of K and V, for Q may move into registers; one tile of one of them without a pipeline."""
    row = problem.padded_head_dim * problem.element_bytes
    return max(tile.BLOCK_M, max(1, 2 * (tile.num_stages - 1)) * tile.BLOCK_N) * row


def _at_most(problem: AttentionProblem, tile: TileConfig) -> int:
    """The Q tile and num_stages stages of K and V, which is what Triton 3.7 takes for sm_90 and sm_100."""
    row = problem.padded_head_dim * problem.element_bytes
    return (tile.BLOCK_M + 2 * tile.num_stages * tile.BLOCK_N) * row + BARRIER_BYTES


SHARED = both_passes(SharedMemory(_at_least, _at_most))
