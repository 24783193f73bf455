"""What flash cannot run, told before anything is compiled or launched."""

from dataclasses import replace

from kernels.base import GpuLimits
from kernels.problem import MAX_PROGRAMS, AttentionProblem, Refused, TileConfig

SMALLEST_GPU_BLOCK = 16  # tl.dot's smallest tile
BARRIER_BYTES = 1024  # what some targets add for their barriers


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a grid, block, dtype or shared memory beyond the GPU; `gpu` None means interpreted."""
    programs = problem.batch * problem.heads * -(-problem.seq_len_q // tile.BLOCK_M)
    if programs > MAX_PROGRAMS:
        raise Refused(f"The grid has {programs:,} programs, above {MAX_PROGRAMS:,}; choose a larger BLOCK_M.")
    if gpu is None:
        return
    for name in ("BLOCK_M", "BLOCK_N"):
        if getattr(tile, name) < SMALLEST_GPU_BLOCK:
            raise Refused(
                f"{name} is {getattr(tile, name)}, but a GPU's matrix units want at least {SMALLEST_GPU_BLOCK}; "
                f"choose {SMALLEST_GPU_BLOCK} or more, or device cpu, where the kernel is interpreted."
            )
    if problem.dtype == "bfloat16" and gpu.compute_capability < (8, 0):
        raise Refused(f"{gpu.name} has no bfloat16 (it came with compute capability 8.0); choose float16.")
    refuse_shared_memory(problem, tile, gpu, shared_memory_at_least(problem, tile), "at least ")


def refuse_shared_memory(
    problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits, needed: int, at_least: str = ""
) -> None:
    """Raise Refused if `needed` bytes of shared memory are more than one CTA may have, naming a tile that fits."""
    limit = gpu.shared_memory_per_block
    if needed <= limit:
        return
    fit = fitting_tile(problem, tile, limit)
    advice = f"{_spell(fit)} fits" if fit else "Choose a smaller head_dim"
    raise Refused(
        f"{_spell(tile)} needs {at_least}{needed / 1024:.0f} KB of shared memory; "
        f"{gpu.name} gives a CTA {limit / 1024:.0f} KB. {advice}."
    )


def shared_memory_at_least(problem: AttentionProblem, tile: TileConfig) -> int:
    """Bytes below which no target compiles: the Q tile and the K and V tiles in flight.

    Read off Triton 3.7 for sm_80, 90, 100 and 120 over 306 configurations: num_stages − 1 stages of K and V, one tile
    of one of them without a pipeline. What a target really takes is known once the kernel is compiled.
    """
    row = problem.padded_head_dim * problem.element_bytes
    return tile.BLOCK_M * row + max(1, 2 * (tile.num_stages - 1)) * tile.BLOCK_N * row


def shared_memory_at_most(problem: AttentionProblem, tile: TileConfig) -> int:
    """Bytes above which no 16-bit kernel was seen to compile: the Q tile and num_stages stages of K and V."""
    row = problem.padded_head_dim * problem.element_bytes
    return (tile.BLOCK_M + 2 * tile.num_stages * tile.BLOCK_N) * row + BARRIER_BYTES


def fitting_tile(problem: AttentionProblem, tile: TileConfig, limit: int) -> TileConfig | None:
    """The nearest smaller tile that surely fits: fewer stages first, then a smaller BLOCK_N, then BLOCK_M."""
    while shared_memory_at_most(problem, tile) > limit:
        if tile.num_stages > 2:
            tile = replace(tile, num_stages=tile.num_stages - 1)
        elif tile.BLOCK_N > SMALLEST_GPU_BLOCK:
            tile = replace(tile, BLOCK_N=tile.BLOCK_N // 2)
        elif tile.BLOCK_M > SMALLEST_GPU_BLOCK:
            tile = replace(tile, BLOCK_M=tile.BLOCK_M // 2)
        elif tile.num_stages > 1:
            tile = replace(tile, num_stages=1)
        else:
            return None
    return tile


def _spell(tile: TileConfig) -> str:
    return f"BLOCK_M {tile.BLOCK_M}, BLOCK_N {tile.BLOCK_N}, num_stages {tile.num_stages}"
