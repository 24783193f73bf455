"""FlashAttention-1's loop order: K and V stay on chip, Q streams past them, and acc, m and l go through HBM."""

from kernels.base import AttentionKernel
from kernels.flash_kv_outer.limits import STREAMED_Q, refuse
from kernels.flash_kv_outer.schedule import schedule, temporaries

KERNELS = (
    AttentionKernel(
        name="flash_kv_outer",
        title="Flash, K/V outside",
        rung=40,
        schedule=schedule,
        temporaries=temporaries,
        refuse=refuse,
        refuse_shared_memory=STREAMED_Q.refuse,
        has_trace=True,
        has_timeline=True,
    ),
)
