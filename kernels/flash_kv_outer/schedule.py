"""FlashAttention-1's loop order: one launch; each program keeps a KV tile and streams the Q tiles that see it."""

from kernels.column_walk import ColumnWalk
from kernels.on_chip import tiled
from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Launch, Schedule
from kernels.tile_grid import TileGrid


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """K and V are read once for each head; Q, and acc, m and l both ways, once for each tile that the mask shows.

    acc, m and l are also written once to begin with and read once to end with; O and LSE are written once.
    """
    walk = ColumnWalk(TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N))
    held = tiled(problem, tile.BLOCK_M, tile.BLOCK_N, "one step", "all Q tiles that see it", "one step")
    return Schedule("flash_kv_outer", problem, (Launch.of_walk("flash_kv_outer", walk, held),))


def temporaries(problem: AttentionProblem, tile: TileConfig) -> dict[str, int]:
    """The state of every row, in float32, and LSE."""
    row = problem.tensor_bytes["lse"]
    return {"acc": row * problem.head_dim, "m": row, "l": row, "lse": row}
