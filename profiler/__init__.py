"""Measures attention kernels: clocks, counters, worker processes, the command line; `profile` for use from Python."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from kernels.problem import TileConfig
    from profiler.run import Run


def profile(
    function: Callable[..., Any],
    q: "torch.Tensor",
    k: "torch.Tensor",
    v: "torch.Tensor",
    causal: bool = False,
    *,
    tile: "TileConfig | None" = None,
    l2: str = "cold",
    passes: int = 20,
    counters: str = "auto",
    drain: bool = True,
    detail: bool = False,
) -> "Run":
    """A Run of function(q, k, v, causal) -> o, measured in this process on these tensors; a notebook draws it.

    q is [batch, heads, seq_len_q, head_dim]; k and v are [batch, kv_heads, seq_len_kv, head_dim]. `tile` goes to a
    function that takes BLOCK_M and BLOCK_N. The options are those of `python -m profiler run`. On a GPU every source
    answers but ncu, and no other process measures on it meanwhile; on the CPU nothing is said about time, HBM or L2,
    and Triton kernels run where TRITON_INTERPRET=1 was set before triton was imported.

    Raises Refused for tensors that are no attention problem, KernelFault where the function fails; both say why.
    """
    # torch loads here, and not with the package: the dashboard imports that too, and never loads torch.
    from profiler.in_process import measure_here

    how = {"l2": l2, "repeats": passes, "counters": counters, "drain": drain, "detail": detail}
    return measure_here(function, (q, k, v), causal, tile, how)
