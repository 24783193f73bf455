"""Flash attention by warps with different tasks: one copies tiles, two groups of four compute, each in its turn."""

from kernels.base import AttentionKernel
from kernels.flash_ws.limits import refuse, refuse_problem, why_not_on
from kernels.flash_ws.schedule import ORDERS, cut, l2_sm_bounds, schedule, temporaries

KERNELS = (
    AttentionKernel(
        name="flash_ws",
        title="Flash, warp-specialised",
        rung=54,
        schedule=schedule,
        temporaries=temporaries,
        refuse=refuse,
        refuse_problem=refuse_problem,
        why_not_on=why_not_on,
        cut=cut,
        orders=ORDERS,
        has_timeline=True,
        has_backward=True,
        l2_sm_bounds=l2_sm_bounds,
    ),
)
