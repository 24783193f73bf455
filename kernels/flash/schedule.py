"""Flash attention: one launch; each program owns a Q tile and streams the KV tiles its mask lets it see."""

from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Schedule
from kernels.streamed_kv import ORDERS, in_any_order, requested_at_most, streamed_kv, temporaries

__all__ = ["ORDERS", "cut", "l2_sm_bounds", "schedule", "temporaries"]

cut = in_any_order


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """See kernels.streamed_kv."""
    return streamed_kv("flash", problem, tile)


def l2_sm_bounds(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """See kernels.streamed_kv.requested_at_most."""
    return requested_at_most(schedule(problem, tile))
