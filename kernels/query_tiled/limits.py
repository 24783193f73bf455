"""Where query tiled stops fitting: K whole in shared memory, the row block in registers, a tensor within Triton's."""

from collections.abc import Callable
from dataclasses import replace

from kernels.base import GpuLimits
from kernels.gpu_limits import (
    MAX_TENSOR_ELEMENTS,
    refuse_bfloat16,
    refuse_grid,
    refuse_small_blocks,
    refuse_wrong_product,
    register_bytes,
)
from kernels.on_chip import REGISTERS, bytes_in
from kernels.problem import MAX_SEQ_LEN, AttentionProblem, Refused, TileConfig
from kernels.query_tiled.schedule import SMALLEST_BLOCK_N, needs, row_length
from kernels.shared_memory import BARRIER_BYTES


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a grid, block, dtype or shared memory beyond the GPU, or a tensor beyond Triton's.

    `gpu` None means interpreted. Rows beyond the registers are not refused: they spill, which is for counters to tell.
    """
    refuse_grid(problem.batch * problem.heads * -(-problem.seq_len_q // tile.BLOCK_M), "choose a larger BLOCK_M")
    if gpu is not None:
        refuse_small_blocks(tile, "BLOCK_M")
        refuse_bfloat16(problem, gpu)
        refuse_shared_memory(problem, tile, gpu, shared_memory_at_least(problem, tile), "at least ")
        refuse_wrong_product(problem, tile, gpu)
    if (elements := largest_tensor(problem, tile)) > MAX_TENSOR_ELEMENTS:
        longest = longest_seq_in_triton(problem, tile)
        raise Refused(
            f"All {problem.seq_len_kv:,} keys at once, with BLOCK_M {tile.BLOCK_M}, make a tensor of {elements:,} "
            f"elements, and Triton's largest has {MAX_TENSOR_ELEMENTS:,}; "
            f"choose seq_len_kv {longest:,} or less; flash takes any length."
        )


def refuse_shared_memory(
    problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits, needed: int, at_least: str = ""
) -> None:
    """Raise Refused if `needed` bytes of shared memory are more than one CTA may have: where the row block ends."""
    if needed <= gpu.shared_memory_per_block:
        return
    advice = _what_fits(problem, tile, gpu.shared_memory_per_block)
    raise Refused(
        f"All {problem.seq_len_kv:,} keys at once need {at_least}{needed / 1024:,.0f} KB of shared memory for K, then "
        f"V, and {register_needs(problem, tile) / 1024:,.0f} KB of registers for {tile.BLOCK_M} rows of scores; "
        f"{gpu.name} gives a CTA {gpu.shared_memory_per_block / 1024:.0f} KB and, with num_warps {tile.num_warps}, "
        f"{register_bytes(tile.num_warps) / 1024:.1f} KB; {advice}."
    )


def shared_memory_at_least(problem: AttentionProblem, tile: TileConfig) -> int:
    """Bytes below which no target compiles: Q or K, whichever is larger; V takes K's place.

    Read off Triton 3.7 for sm_80, 90, 100 and 120, as shared_memory_at_most is.
    """
    q, k, _ = _operands(problem, tile)
    return max(q, k)


def shared_memory_at_most(problem: AttentionProblem, tile: TileConfig) -> int:
    """Bytes above which no target was seen to compile: K with Q, then V with P, which some pass through it."""
    q, k, p = _operands(problem, tile)
    return k + max(q, p) + BARRIER_BYTES


def register_needs(problem: AttentionProblem, tile: TileConfig) -> int:
    """Bytes of S, P, acc, m and l, as if all needed room at once."""
    return bytes_in(REGISTERS, needs(problem, tile))


def fits_registers(problem: AttentionProblem, tile: TileConfig) -> bool:
    """Whether the registers of one program have room for register_needs.

    Where they have none it spills. Where they have, it may still: K and V pass through registers on their way.
    """
    return register_needs(problem, tile) <= register_bytes(tile.num_warps)


def longest_seq(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits) -> int:
    """The largest power-of-two seq_len_kv that can launch on `gpu`; none from the next on. 0 where none can.

    Below it a target that passes P through shared memory may stop sooner; its compiled kernel tells.
    """
    return _longest(problem, lambda keys: shared_memory_at_least(keys, tile) <= gpu.shared_memory_per_block)


def longest_seq_in_registers(problem: AttentionProblem, tile: TileConfig) -> int:
    """The largest power-of-two seq_len_kv for which fits_registers; 0 where there is none."""
    return _longest(problem, lambda keys: fits_registers(keys, tile))


def longest_seq_in_triton(problem: AttentionProblem, tile: TileConfig) -> int:
    """The largest power-of-two seq_len_kv of which Triton can make the tensors, interpreted too."""
    return _longest(problem, lambda keys: largest_tensor(keys, tile) <= MAX_TENSOR_ELEMENTS)


def largest_tensor(problem: AttentionProblem, tile: TileConfig) -> int:
    """Elements of the largest tensor in a program: the row block, or K."""
    return row_length(problem) * max(tile.BLOCK_M, problem.padded_head_dim)


def _operands(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int, int]:
    """Bytes of Q, K and P of one program."""
    size = {held.name: held.size for held in needs(problem, tile)}
    return size["Q"], size["K"], size["P"]


def _what_fits(problem: AttentionProblem, tile: TileConfig, limit: int) -> str:
    """What surely has room in `limit` bytes of shared memory, in words."""
    smaller = (replace(tile, BLOCK_M=size) for size in (512, 256, 128, 64, 32, 16) if size < tile.BLOCK_M)
    block = next((cut.BLOCK_M for cut in smaller if shared_memory_at_most(problem, cut) <= limit), None)
    longest = _longest(problem, lambda keys: shared_memory_at_most(keys, tile) <= limit)
    found = [f"BLOCK_M {block} fits"] if block else []
    found += [f"seq_len_kv {longest:,} or less fits with BLOCK_M {tile.BLOCK_M}"] if longest else []
    return ", ".join([*found, "flash takes any length"])


def _longest(problem: AttentionProblem, fits: Callable[[AttentionProblem], bool]) -> int:
    """The largest power-of-two seq_len_kv, from a smallest tile up, for which the problem fits; 0 where none does."""
    length, found = SMALLEST_BLOCK_N, 0
    while length <= MAX_SEQ_LEN and fits(replace(problem, seq_len_kv=length)):
        length, found = 2 * length, length
    return found
