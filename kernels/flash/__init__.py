"""Flash attention: Q tiles stay on chip, K and V stream past them, the score matrix never reaches HBM."""

from kernels.base import AttentionKernel
from kernels.flash.limits import refuse, refuse_shared_memory
from kernels.flash.schedule import l2_sm_bounds, schedule

KERNEL = AttentionKernel(
    name="flash",
    title="Flash",
    schedule=schedule,
    temporaries=lambda problem: {"lse": problem.tensor_bytes["lse"]},
    refuse=refuse,
    refuse_shared_memory=refuse_shared_memory,
    is_tiled=True,
    has_trace=True,
    l2_sm_bounds=l2_sm_bounds,
)
