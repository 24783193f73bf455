"""Row streaming: one query at a time against all of K, then all of V; the whole row of scores stays on chip."""

from kernels.base import AttentionKernel
from kernels.row_streaming.limits import refuse
from kernels.row_streaming.schedule import cut, l2_sm_bounds, schedule

KERNELS = (
    AttentionKernel(
        name="row_streaming",
        title="Row streaming",
        rung=20,
        schedule=schedule,
        temporaries=lambda problem, tile: {"lse": problem.tensor_bytes["lse"]},
        refuse=refuse,
        cut=cut,
        has_timeline=True,
        l2_sm_bounds=l2_sm_bounds,
    ),
)
