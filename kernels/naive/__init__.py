"""Naive attention: the score matrix is written to HBM and read back between launches."""

from kernels.base import AttentionKernel
from kernels.naive.schedule import l2_sm_bounds, schedule, temporaries

KERNEL = AttentionKernel(
    name="naive",
    title="Naive",
    schedule=schedule,
    temporaries=temporaries,
    refuse=lambda problem, tile, gpu: None,
    refuse_shared_memory=None,
    is_tiled=False,
    has_trace=False,
    l2_sm_bounds=l2_sm_bounds,
)
