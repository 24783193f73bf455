"""What row streaming cannot run: a row of scores beyond the registers of a program, or too many queries."""

from kernels.base import GpuLimits
from kernels.gpu_limits import MAX_TENSOR_ELEMENTS, refuse_bfloat16, refuse_grid, register_bytes
from kernels.problem import FLOAT32_BYTES, AttentionProblem, Refused, TileConfig
from kernels.row_streaming.schedule import chunks

MAX_WARPS = 32


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a grid, row or dtype beyond the GPU; `gpu` None means interpreted."""
    refuse_grid(problem.batch * problem.heads * problem.seq_len_q, "choose a shorter seq_len_q, fewer heads or flash")
    scores = chunks(problem, tile) * tile.BLOCK_N
    if scores > MAX_TENSOR_ELEMENTS:
        raise Refused(
            f"A row of {problem.seq_len_kv:,} scores is a tensor of {scores:,} elements, and Triton's largest has "
            f"{MAX_TENSOR_ELEMENTS:,}; choose seq_len_kv {MAX_TENSOR_ELEMENTS:,} or less; flash takes any length."
        )
    if gpu is None:
        return
    refuse_bfloat16(problem, gpu)
    needed, limit = scores * FLOAT32_BYTES, register_bytes(tile.num_warps)
    if needed >= limit:
        raise Refused(
            f"A row of {problem.seq_len_kv:,} float32 scores needs {needed / 1024:,.0f} KB of registers, beside K, V "
            f"and acc; {gpu.name} gives a program with num_warps {tile.num_warps} at most {limit / 1024:.1f} KB; "
            f"seq_len_kv {longest_seq(tile):,} or less fits{_more_warps(needed, tile)}, flash takes any length."
        )


def longest_seq(tile: TileConfig) -> int:
    """The largest seq_len_kv whose row of scores leaves room in the registers of a program of tile.num_warps."""
    longest = 1
    while 2 * longest * FLOAT32_BYTES < register_bytes(tile.num_warps):
        longest *= 2
    return longest


def _more_warps(needed: int, tile: TileConfig) -> str:
    """How many warps would have room for this row, in words; empty where none would."""
    warps = 2 * tile.num_warps
    while warps <= MAX_WARPS and register_bytes(warps) <= needed:
        warps *= 2
    return f", this row fits with num_warps {warps}" if warps <= MAX_WARPS else ""
