"""Flash attention: Q tiles stay on chip, K and V stream past them, the score matrix never reaches HBM."""

from kernels.base import AttentionKernel
from kernels.flash.limits import refuse
from kernels.flash.schedule import schedule

KERNEL = AttentionKernel(
    name="flash",
    title="Flash",
    schedule=schedule,
    temporaries=lambda problem: {"lse": problem.tensor_bytes["lse"]},
    refuse=refuse,
    is_tiled=True,
    has_trace=True,
)
