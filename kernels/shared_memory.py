"""Whether a tile's shared memory fits a GPU, told before a launch, with the nearest tile that does."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from kernels.base import GpuLimits
from kernels.gpu_limits import SMALLEST_GPU_BLOCK, refuse_bfloat16, refuse_small_blocks, refuse_wrong_product
from kernels.problem import AttentionProblem, Refused, TileConfig

BARRIER_BYTES = 1024  # what some targets add for their barriers


@dataclass(frozen=True)
class SharedMemory:
    """What one CTA of a kernel takes of shared memory, in bytes.

    at_least(problem, tile): below it no target compiles. at_most: above it no 16-bit kernel was seen to compile. What a
    target really takes is known once the kernel is compiled. `largest` is the block that counts most.
    """

    at_least: Callable[[AttentionProblem, TileConfig], int]
    at_most: Callable[[AttentionProblem, TileConfig], int]
    largest: str = "BLOCK_N"

    def refuse_tile(self, problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits) -> None:
        """Raise Refused for a block, dtype, shared memory or product that the kernel cannot have on the GPU."""
        refuse_small_blocks(tile, "BLOCK_M", "BLOCK_N")
        refuse_bfloat16(problem, gpu)
        self.refuse(problem, tile, gpu)
        refuse_wrong_product(problem, tile, gpu)

    def refuse(self, problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits, needed: int | None = None) -> None:
        """Raise Refused if `needed` bytes, or the least if not given, are more than one CTA may have."""
        limit, at_least = gpu.shared_memory_per_block, "at least " if needed is None else ""
        needed = self.at_least(problem, tile) if needed is None else needed
        if needed <= limit:
            return
        fit = self.fitting_tile(problem, tile, limit)
        advice = f"{_spell(fit)} fits" if fit else "Choose a smaller head_dim"
        raise Refused(
            f"{_spell(tile)} needs {at_least}{needed / 1024:.0f} KB of shared memory; "
            f"{gpu.name} gives a CTA {limit / 1024:.0f} KB. {advice}."
        )

    def fitting_tile(self, problem: AttentionProblem, tile: TileConfig, limit: int) -> TileConfig | None:
        """The nearest smaller tile that surely fits: fewer stages first, then the largest block, then the other."""
        blocks = (self.largest, "BLOCK_M" if self.largest == "BLOCK_N" else "BLOCK_N")
        while self.at_most(problem, tile) > limit:
            block = next((name for name in blocks if getattr(tile, name) > SMALLEST_GPU_BLOCK), None)
            if tile.num_stages > 2 or (block is None and tile.num_stages > 1):
                tile = replace(tile, num_stages=tile.num_stages - 1)
            elif block is not None:
                tile = replace(tile, **{block: getattr(tile, block) // 2})
            else:
                return None
        return tile


def streamed_kv_at_least(problem: AttentionProblem, tile: TileConfig) -> int:
    """Read off Triton 3.7 for sm_80, 90, 100 and 120 over 306 configurations of flash.

    The Q tile, and num_stages − 1 stages of K and V; one tile of one of them without a pipeline.
    """
    row = problem.padded_head_dim * problem.element_bytes
    return tile.BLOCK_M * row + max(1, 2 * (tile.num_stages - 1)) * tile.BLOCK_N * row


def streamed_kv_at_most(problem: AttentionProblem, tile: TileConfig) -> int:
    """The Q tile and num_stages stages of K and V."""
    row = problem.padded_head_dim * problem.element_bytes
    return (tile.BLOCK_M + 2 * tile.num_stages * tile.BLOCK_N) * row + BARRIER_BYTES


STREAMED_KV = SharedMemory(streamed_kv_at_least, streamed_kv_at_most)  # what streams K and V past a Q tile


def _spell(tile: TileConfig) -> str:
    return f"BLOCK_M {tile.BLOCK_M}, BLOCK_N {tile.BLOCK_N}, num_stages {tile.num_stages}"
