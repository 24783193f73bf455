"""Query tiled: BLOCK_M queries against all keys in one round; one ordinary softmax over rows that are whole."""

from kernels.base import AttentionKernel, RowBlockNeeds
from kernels.query_tiled.limits import (
    longest_seq,
    longest_seq_in_registers,
    refuse,
    refuse_shared_memory,
    register_needs,
    shared_memory_at_least,
)
from kernels.query_tiled.schedule import cut, l2_sm_bounds, schedule

KERNELS = (
    AttentionKernel(
        name="query_tiled",
        title="Query tiled",
        rung=30,
        schedule=schedule,
        temporaries=lambda problem, tile: {"lse": problem.tensor_bytes["lse"]},
        refuse=refuse,
        refuse_shared_memory=refuse_shared_memory,
        cut=cut,
        has_timeline=True,
        l2_sm_bounds=l2_sm_bounds,
        row_block=RowBlockNeeds(shared_memory_at_least, register_needs, longest_seq, longest_seq_in_registers),
    ),
)
