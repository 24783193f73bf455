"""Flash-Decoding: several programs share one Q tile and merge their m, l and acc, for short queries and long K/V."""

from kernels.base import AttentionKernel
from kernels.split_kv.limits import SPLIT, refuse
from kernels.split_kv.schedule import schedule, temporaries

KERNELS = (
    AttentionKernel(
        name="split_kv",
        title="Split K/V",
        rung=60,
        schedule=schedule,
        temporaries=temporaries,
        refuse=refuse,
        refuse_shared_memory=SPLIT.refuse,
        has_trace=True,
        has_timeline=True,
    ),
)
