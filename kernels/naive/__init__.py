"""Naive attention: the score matrix is written to HBM and read back between launches."""

from kernels.base import AttentionKernel
from kernels.naive.schedule import l2_sm_bounds, schedule, temporaries

KERNELS = (
    AttentionKernel(
        name="naive",
        title="Naive",
        rung=10,
        schedule=schedule,
        temporaries=temporaries,
        refuse=lambda problem, tile, gpu: None,
        is_tiled=False,
        is_triton=False,
        has_backward=True,
        l2_sm_bounds=l2_sm_bounds,
    ),
)
