"""Query tiled: one launch; each program owns a Q tile and takes all of K, then all of V, at once."""

from dataclasses import replace

from kernels.on_chip import REGISTERS, SHARED, Held
from kernels.problem import FLOAT32_BYTES, LINEAR, AttentionProblem, TileConfig
from kernels.row_walk import RowWalk
from kernels.schedule import Launch, Schedule
from kernels.sectors import whole_sectors
from kernels.tile_grid import TileGrid

SMALLEST_BLOCK_N = 16  # tl.dot's, as in padded_head_dim


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """Q is read once, K and V whole for each Q tile that sees a key, O and LSE are written once.

    There is one KV tile, so one step; its length follows from the problem, whatever BLOCK_N `tile` says.
    """
    grid = TileGrid(problem, tile.BLOCK_M, row_length(problem))
    walk = RowWalk.whole_rows(grid, {"o": grid.row_bytes, "lse": FLOAT32_BYTES})
    return Schedule("query_tiled", problem, (Launch.of_walk("query_tiled", walk, needs(problem, tile)),))


def cut(problem: AttentionProblem, tile: TileConfig) -> TileConfig:
    """BLOCK_M as it is; all keys in one tile, so nothing to pipeline and no order to choose."""
    return replace(tile, BLOCK_N=row_length(problem), num_stages=1, order=LINEAR)


def row_length(problem: AttentionProblem) -> int:
    """BLOCK_N: the power of two, from 16 up, that covers seq_len_kv; what is beyond is masked."""
    return max(SMALLEST_BLOCK_N, 1 << (problem.seq_len_kv - 1).bit_length())


def needs(problem: AttentionProblem, tile: TileConfig) -> tuple[Held, ...]:
    """What a program must hold: S is the row block, BLOCK_M whole rows of float32 scores."""
    dtype, head_dim, keys = problem.dtype, problem.padded_head_dim, row_length(problem)
    q, kv, s, row = (tile.BLOCK_M, head_dim), (keys, head_dim), (tile.BLOCK_M, keys), (tile.BLOCK_M,)
    return (
        Held("Q", "q", q, dtype, SHARED, "until S is there"),
        Held("K", "k", kv, dtype, SHARED, "until S is there"),
        Held("V", "v", kv, dtype, SHARED, "in the place of K, once S is there"),
        Held("S", "s", s, "float32", REGISTERS, "all keys at once, until P is there"),
        Held("P", "p", s, dtype, REGISTERS, "all keys at once"),
        Held("acc", "acc", q, "float32", REGISTERS, "once P is there"),
        Held("m", "m", row, "float32", REGISTERS, "once S is there"),
        Held("l", "l", row, "float32", REGISTERS, "once S is there"),
    )


def l2_sm_bounds(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """The compulsory bytes, and the requested bytes in whole sectors: what is asked for crosses at most once.

    What a program spills comes on top.
    """
    return problem.compulsory_bytes, whole_sectors(problem, schedule(problem, tile))
