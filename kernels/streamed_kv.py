"""The schedule that kernels share which keep a Q tile and stream K and V past it in one launch, in every order."""

from dataclasses import replace

from kernels.on_chip import tiled
from kernels.problem import (
    FLOAT32_BYTES,
    LINEAR,
    LONGEST_FIRST,
    SAWTOOTH,
    AttentionProblem,
    Refused,
    TileConfig,
    require_a_tile,
)
from kernels.row_walk import RowWalk
from kernels.schedule import Schedule
from kernels.sectors import whole_sectors
from kernels.streamed_q import backward_launches, backward_temporaries, with_backward
from kernels.tile_grid import TileGrid

ORDERS = (LINEAR, SAWTOOTH, LONGEST_FIRST)


def streamed_kv(kernel: str, problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """FlashAttention-2: Q is read once, K and V once for each Q tile, O and LSE are written once.

    linear launches the Q tiles in rising order and scans K and V forwards. sawtooth scans backwards in every second
    wave; a wave is one program here, as where programs run one at a time (see Schedule.with_wave for a GPU's).
    longest_first launches the last Q tile first. `kernel` is the name of the launch, too.
    """
    grid = TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    at_end = {"o": grid.row_bytes, "lse": FLOAT32_BYTES}
    walk = RowWalk.whole_rows(grid, at_end, tile.order == LONGEST_FIRST, int(tile.order == SAWTOOTH))
    stages = tile.num_stages
    streams = f"one step, {stages} in flight" if stages > 1 else "one step"
    held = tiled(problem, tile.BLOCK_M, tile.BLOCK_N, "all steps", streams, "all steps")
    return with_backward(kernel, walk, held, backward_launches(problem, tile))


def temporaries(problem: AttentionProblem, tile: TileConfig) -> dict[str, int]:
    """LSE, and what the backward pass needs."""
    return {"lse": problem.tensor_bytes["lse"]} | backward_temporaries(problem)


def in_any_order(problem: AttentionProblem, tile: TileConfig, orders: tuple[str, ...] = ORDERS) -> TileConfig:
    """The tile as it is, in linear order where it names another than those.

    Raises Refused for longest_first where all programs are equally long.
    """
    require_a_tile(tile)
    if tile.order not in orders:
        return replace(tile, order=LINEAR)
    if tile.order == LONGEST_FIRST and not problem.causal:
        others = [order for order in orders if order != LONGEST_FIRST]
        raise Refused(
            f"{LONGEST_FIRST} launches the programs with most KV tiles first, and without a causal mask no order of Q "
            f"tiles is one of falling length; choose {', '.join(others)}, or causal."
        )
    return tile


def requested_at_most(plan: Schedule) -> tuple[int, int]:
    """The compulsory bytes, and the requested bytes in whole sectors: what is asked for crosses at most once.

    What a program spills comes on top.
    """
    return plan.problem.compulsory_bytes, whole_sectors(plan.problem, plan)
