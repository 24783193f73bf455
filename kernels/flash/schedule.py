"""Flash attention: one launch; each program owns a Q tile and streams the KV tiles its mask lets it see."""

from kernels.problem import ELEMENT_BYTES, AttentionProblem, TileConfig
from kernels.schedule import Launch, Schedule, TileGrid

SECTOR_BYTES = 32  # what L2 hands over at a time


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """FlashAttention-2 order: Q is read once, K and V once for each Q tile, O and LSE are written once."""
    return Schedule("flash", problem, (Launch.of_tiles("flash", TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)),))


def l2_sm_bounds(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """The compulsory bytes, and the requested bytes in whole sectors: what is asked for crosses at most once.

    Rows that do not fill sectors may begin and end within one. What a program spills comes on top.
    """
    row = problem.head_dim * ELEMENT_BYTES[problem.dtype]
    touched = row if row % SECTOR_BYTES == 0 else (row // SECTOR_BYTES + 2) * SECTOR_BYTES
    plan = schedule(problem, tile)
    requested = plan.requested_read_bytes + plan.requested_write_bytes
    return problem.compulsory_bytes, -(-requested * touched // row)
