"""Flash, warp-specialised: the Q tiles of flash, 128 rows each, and the orders in which they are begun."""

from dataclasses import replace

from kernels.flash_ws import gradient_schedule
from kernels.flash_ws.gradient_schedule import width_of
from kernels.flash_ws.sections import side_by_side
from kernels.on_chip import ONE_STEP, REGISTERS, SHARED, Held
from kernels.problem import FLOAT32_BYTES, LONGEST_FIRST, PERSISTENT, SAWTOOTH, AttentionProblem, TileConfig
from kernels.row_walk import RowWalk
from kernels.schedule import Schedule
from kernels.streamed_kv import ORDERS as STREAMED_ORDERS
from kernels.streamed_kv import in_any_order, requested_at_most
from kernels.streamed_q import backward_launches, backward_temporaries, with_backward
from kernels.tile_grid import TileGrid

__all__ = ["ORDERS", "cut", "l2_sm_bounds", "schedule", "temporaries"]

ORDERS = (*STREAMED_ORDERS, PERSISTENT)
CONSUMERS = 2  # warp groups that compute
ROWS = 64  # of Q for each of them: the height of one warpgroup product
BLOCK_M = CONSUMERS * ROWS
WARPS = 4 * CONSUMERS
# By width: keys of a tile, and tiles of K and of V that shared memory holds at once.
BLOCK_N = {64: 256, 128: 128, 256: 64}
STAGES = {64: 2, 128: 2, 256: 2}
MOST_KEYS_IN_REGISTERS = 128  # of a tile whose P has room there beside the S of the next
O_HAS_ROOM_TO = 128  # width
LANES = 4  # that share a row, each with its part of l
BACKWARD_STAGES = 3  # tiles of Q and of dO at once


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """As flash with 128 queries a tile, whatever `tile` says, but for where programs begin and which way they scan.

    Every program scans K and V from its last tile to its first, so that the tiles that need a mask come first; with
    sawtooth every second wave scans forwards. longest_first launches the last Q tile first, of section_of heads side
    by side: the longest programs of several heads start together, and the shortest of them fill the gaps. persistent
    begins the Q tiles of all heads side by side behind a causal mask, and in rising order without one.
    """
    tile = cut(problem, tile)
    grid = TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    at_end = {"o": grid.row_bytes, "lse": FLOAT32_BYTES}
    walk = RowWalk.whole_rows(grid, at_end, begins_with_the_longest(problem, tile), int(tile.order == SAWTOOTH))
    walk = replace(walk, descending=True, section=section_of(problem, tile))
    if gradient_schedule.is_specialised(problem):
        backward = gradient_schedule.backward_launches(problem)
    else:
        backward = backward_launches(problem, tile)
    return with_backward("flash_ws", walk, held(problem, tile), backward)


def temporaries(problem: AttentionProblem, tile: TileConfig) -> dict[str, int]:
    """LSE, and what the backward pass needs."""
    is_specialised = gradient_schedule.is_specialised(problem)
    more = (gradient_schedule.backward_temporaries if is_specialised else backward_temporaries)(problem)
    return {"lse": problem.tensor_bytes["lse"]} | more


def cut(problem: AttentionProblem, tile: TileConfig) -> TileConfig:
    """The one tile that the kernel has for this head_dim; only the order is a choice.

    num_warps are those that compute; a warp that copies comes on top. Raises Refused for longest_first where all
    programs are equally long.
    """
    width = width_of(problem)
    return in_any_order(problem, TileConfig(BLOCK_M, BLOCK_N[width], WARPS, STAGES[width], tile.order), ORDERS)


def backward_tile(problem: AttentionProblem, tile: TileConfig) -> TileConfig:
    """The tile from which a backward pass that is not specialised makes its own: as many stages as fit a Hopper."""
    return replace(cut(problem, tile), num_stages=BACKWARD_STAGES)


def shares_p(tile: TileConfig) -> bool:
    """Whether P goes to its product through shared memory: a tile of so many keys leaves no registers for it."""
    return tile.BLOCK_N > MOST_KEYS_IN_REGISTERS


def begins_with_the_longest(problem: AttentionProblem, tile: TileConfig) -> bool:
    """Whether the last Q tile of a (batch, head) is begun first: its mask hides least."""
    return tile.order == LONGEST_FIRST or (tile.order == PERSISTENT and problem.causal)


def section_of(problem: AttentionProblem, tile: TileConfig) -> int:
    """How many (batch, head) are begun side by side: 1 where the longest Q tile is not the first, or K and V are long.

    Where these do not stay in L2 together, all programs at once are on one head, and what one of them reads serves the
    others; on two heads it would serve half as many. A persistent grid has all of them side by side: its shares are
    dealt out beforehand, and are equal only if lengths fall from the first item to the last.
    """
    if not begins_with_the_longest(problem, tile):
        return 1
    size, copies = problem.tensor_bytes, problem.batch * problem.heads
    if tile.order == PERSISTENT:
        return copies
    return side_by_side(copies, (size["k"] + size["v"]) // (problem.batch * problem.kv_heads))


def has_room_for_o(problem: AttentionProblem) -> bool:
    """Whether a persistent program has shared memory for O beside Q, so that the next Q comes before O has left."""
    return width_of(problem) <= O_HAS_ROOM_TO


def held(problem: AttentionProblem, tile: TileConfig) -> tuple[Held, ...]:
    """What a program holds, half of the rows in each group: S of a tile is there beside P of the one before.

    O is on its way out through the memory of Q, or its own, see has_room_for_o.
    """
    width, dtype = width_of(problem), problem.dtype
    q, kv, s, row = (tile.BLOCK_M, width), (tile.BLOCK_N, width), (tile.BLOCK_M, tile.BLOCK_N), (tile.BLOCK_M,)
    streams = f"one step, {tile.num_stages} in flight"
    p = (dtype, SHARED) if shares_p(tile) else ("float32", REGISTERS)
    stays = tile.order == PERSISTENT and has_room_for_o(problem)
    o = (Held("O", "o", q, dtype, SHARED, "until it has left, beside the next Q tile"),) if stays else ()
    return (
        Held("Q", "q", q, dtype, SHARED, "all steps"),
        Held("K", "k", kv, dtype, SHARED, streams),
        Held("V", "v", kv, dtype, SHARED, streams),
        Held("S", "s", s, "float32", REGISTERS, ONE_STEP),
        Held("P", "p", s, *p, "until the next step's scores are on their way"),
        Held("acc", "acc", q, "float32", REGISTERS, "all steps"),
        Held("m", "m", row, "float32", REGISTERS, "all steps"),
        Held("l", "l", (tile.BLOCK_M, LANES), "float32", REGISTERS, "all steps"),
        *o,
    )


def l2_sm_bounds(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """See kernels.streamed_kv.requested_at_most."""
    return requested_at_most(schedule(problem, tile))
