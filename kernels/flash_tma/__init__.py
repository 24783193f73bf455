"""Flash attention whose tiles come by TMA: the same walk as flash, without a pointer for each element."""

from kernels.base import AttentionKernel
from kernels.flash_tma.limits import SHARED, refuse, refuse_problem
from kernels.flash_tma.schedule import ORDERS, cut, l2_sm_bounds, schedule, temporaries

KERNELS = (
    AttentionKernel(
        name="flash_tma",
        title="Flash, TMA",
        rung=52,
        schedule=schedule,
        temporaries=temporaries,
        refuse=refuse,
        refuse_problem=refuse_problem,
        refuse_shared_memory=SHARED.refuse,
        cut=cut,
        orders=ORDERS,
        has_trace=True,
        has_timeline=True,
        has_backward=True,
        l2_sm_bounds=l2_sm_bounds,
    ),
)
