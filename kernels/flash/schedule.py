"""Flash attention: one launch; each program owns a Q tile and streams the KV tiles its mask lets it see."""

from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Launch, Schedule, TileGrid


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """FlashAttention-2 order: Q is read once, K and V once for each Q tile, O and LSE are written once."""
    return Schedule("flash", problem, (Launch.of_tiles("flash", TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)),))
