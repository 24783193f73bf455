"""Which rows, scores and accumulators a trace keeps, so that a Run's file stays small; pure arithmetic."""

from dataclasses import dataclass

from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.schedule import Schedule
from kernels.tile_grid import TileGrid
from profiler.workload import TraceRequest

STATE_VALUES = 2**14  # rows × KV tiles kept of each quantity
ACC_VALUES = 2**16  # values of acc kept
SCORE_VALUES = 2**14  # scores kept, of more than one row
LONGEST_SCORES = 2**17  # scores kept of one row
MAX_TIMED_PROGRAMS = 2**16  # of which start and end are kept


@dataclass(frozen=True)
class TracePlan:
    """Which rows, scores and steps of acc are recorded, so that a Run's file stays small.

    Rows and Q tiles are those of the score matrix that the kernel cuts (TileGrid.place_of).
    """

    row_start: int
    row_stop: int
    acc_tile: int
    acc_start: int
    acc_stride: int
    score_start: int
    score_stop: int


def plan_trace(problem: AttentionProblem, tile: TileConfig, request: TraceRequest, schedule: Schedule) -> TracePlan:
    """All rows where they fit, else as many as fit from the start of the asked row's Q tile. Raises Refused.

    Where rows are query heads (GQA packing) it is the asked head's alone: the others are of heads not asked for.
    """
    kv_tiles = -(-problem.seq_len_kv // tile.BLOCK_N)
    if kv_tiles > STATE_VALUES:
        raise Refused(f"One row has {kv_tiles:,} KV tiles to record, above {STATE_VALUES:,}; choose a larger BLOCK_N.")
    grid = schedule.tiles or TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    query = problem.seq_len_q - 1 if request.row is None else request.row
    batch_head, row = grid.place_of(request.batch, request.head, query)
    acc_tile = row // tile.BLOCK_M
    count = 1 if grid.packs > 1 else min(problem.seq_len_q, STATE_VALUES // kv_tiles)
    start = max(acc_tile * tile.BLOCK_M, row - count + 1)
    start = min(start, grid.problem.seq_len_q - count)
    steps = max(1, ACC_VALUES // (tile.BLOCK_M * problem.head_dim))
    stride = -(-kv_tiles // steps)
    # Counted back from the tile that is visited last, so that the acc which becomes O is among the kept ones.
    orders = () if schedule.walk is None else schedule.walk.states_of(batch_head, acc_tile)
    last = next((order[-1] for order in reversed(orders) if len(order)), 0)
    scored = min(count, max(SCORE_VALUES // problem.seq_len_kv, int(problem.seq_len_kv <= LONGEST_SCORES)))
    first_scored = max(start, row - scored + 1)
    scores = first_scored, first_scored + scored
    return TracePlan(start, start + count, acc_tile, last % stride, stride, *scores)
