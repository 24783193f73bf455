"""Row streaming: one launch; each program owns one query, streams the K it sees past it and then the V."""

from dataclasses import replace

from kernels.on_chip import REGISTERS, Held
from kernels.problem import FLOAT32_BYTES, LINEAR, AttentionProblem, TileConfig, require_a_tile
from kernels.row_walk import RowWalk
from kernels.schedule import Launch, Schedule
from kernels.sectors import SECTOR_BYTES, whole_sectors
from kernels.tile_grid import TileGrid


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """Q is read once, K and V once for each query, O and LSE are written once; only BLOCK_N of `tile` matters."""
    grid = TileGrid(problem, 1, tile.BLOCK_N)
    walk = RowWalk.whole_rows(grid, {"o": grid.row_bytes, "lse": FLOAT32_BYTES}, sweeps=2)
    return Schedule("row_streaming", problem, (Launch.of_walk("row_streaming", walk, held(problem, tile)),))


def cut(problem: AttentionProblem, tile: TileConfig) -> TileConfig:
    """One query a program, in linear order. num_stages is 1: Triton pipelines no load that feeds no matrix product."""
    require_a_tile(tile)
    return replace(tile, BLOCK_M=1, num_stages=1, order=LINEAR)


def chunks(problem: AttentionProblem, tile: TileConfig) -> int:
    """BLOCK_N-long pieces of the row of scores, the next power of two that covers seq_len_kv."""
    return 1 << (-(-problem.seq_len_kv // tile.BLOCK_N) - 1).bit_length()


def held(problem: AttentionProblem, tile: TileConfig) -> tuple[Held, ...]:
    """What a program holds: nothing of it needs shared memory, since no matrix unit reads it."""
    q, kv = (1, problem.padded_head_dim), (tile.BLOCK_N, problem.padded_head_dim)
    return (
        Held("Q", "q", q, problem.dtype, REGISTERS, "while K streams"),
        Held("K", "k", kv, problem.dtype, REGISTERS, "one step"),
        Held("V", "v", kv, problem.dtype, REGISTERS, "one step"),
        Held("S, then P", "s", (chunks(problem, tile), tile.BLOCK_N), "float32", REGISTERS, "all steps"),
        Held("acc", "acc", q, "float32", REGISTERS, "while V streams"),
        Held("m", "m", (1,), "float32", REGISTERS, "once K has streamed"),
        Held("l", "l", (1,), "float32", REGISTERS, "once K has streamed"),
    )


def l2_sm_bounds(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """The compulsory bytes, and the requested bytes in whole sectors: what is asked for crosses at most once.

    Each program writes its one LSE for itself, a sector. What a program spills comes on top.
    """
    lse = problem.batch * problem.heads * problem.seq_len_q * (SECTOR_BYTES - FLOAT32_BYTES)
    return problem.compulsory_bytes, whole_sectors(problem, schedule(problem, tile)) + lse
