"""Flash attention: Q tiles stay on chip, K and V stream past them, the score matrix never reaches HBM."""

from kernels.base import AttentionKernel
from kernels.flash.limits import SHARED, refuse
from kernels.flash.schedule import ORDERS, cut, l2_sm_bounds, schedule, temporaries

KERNELS = (
    AttentionKernel(
        name="flash",
        title="Flash",
        rung=50,
        schedule=schedule,
        temporaries=temporaries,
        refuse=refuse,
        refuse_shared_memory=SHARED.refuse,
        cut=cut,
        orders=ORDERS,
        has_trace=True,
        has_timeline=True,
        has_backward=True,
        l2_sm_bounds=l2_sm_bounds,
    ),
)
