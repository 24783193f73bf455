"""FlexAttention: torch's Triton template, compiled for one problem and its mask; eager on the CPU."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
import torch._inductor.config
from torch._dynamo.exc import TorchDynamoException
from torch.nn.attention.flex_attention import AuxRequest, flex_attention
from triton.runtime.errors import OutOfResources

from kernels.finite_values import kept_out, zeros
from kernels.library.far_rows import require_near_rows
from kernels.library.flex_mask import flex_mask
from kernels.library.schedule import FLEX
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.run import LaunchHook, Output

MOST_WORDS = 300

# That it is not fused on the CPU is said at the head of kernel.py.
warnings.filterwarnings("ignore", "flex_attention called without torch.compile", UserWarning)


def flex(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    launch: LaunchHook = nullcontext,
    finite: bool = False,
    prepared: Callable[..., Any] | None = None,
) -> Output:
    """O and LSE of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem."""
    if q.is_cuda:
        require_near_rows(q, k, v)
    run = prepare_flex(problem, tile, q.device) if prepared is None else prepared

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        o: torch.Tensor = run(q, k, v)[0]
        return o

    with launch(FLEX):
        o, beside = run(q, k, v)
    if problem.is_masked and not finite:
        o = kept_out(o, attend, q, k, v)
    return Output(o, beside.lse)


def prepare_flex(problem: AttentionProblem, tile: TileConfig, device: torch.device | str) -> Callable[..., Any]:
    """FlexAttention for this problem: takes q, k, v and gives O and, beside it, the LSE.

    On a GPU it is compiled here, by a pass over tensors of 0; on the CPU it stays eager. Raises Refused with torch's
    reason where it does not compile.
    """
    options: dict[str, Any] = {
        "block_mask": flex_mask(problem, device),
        "scale": problem.sm_scale,
        "enable_gqa": problem.group > 1,
        # One kernel for every length: the one for short queries splits K and V, and merges in another launch.
        "kernel_options": {"BACKEND": "TRITON"},
        "return_aux": AuxRequest(lse=True),
    }
    if torch.device(device).type == "cpu":
        return partial(_eager, **options)
    # torch compiles a function for a few problems, and then no more of them.
    torch.compiler.reset()
    # One kernel needs no pool of compiling processes, which could outlive this one.
    torch._inductor.config.compile_threads = 1
    run = partial(torch.compile(flex_attention, dynamic=False, fullgraph=True), **options)
    try:
        run(*zeros(problem, device))
    except (TorchDynamoException, OutOfResources) as error:
        reason = " ".join(str(error).split())[:MOST_WORDS].rstrip(" .")
        raise Refused(f"FlexAttention does not compile here: {reason}; choose another kernel.") from error
    return run


def _eager(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, **options: Any) -> Any:
    """Not even its own wrapper is compiled: for small problems that takes longer than to attend.

    bfloat16 is computed in float32: torch's bfloat16 products on a CPU read one element beyond a row of odd length, and
    NaN there would spoil the row.
    """
    with torch.compiler.set_stance("force_eager"):
        if q.dtype != torch.bfloat16:
            return flex_attention(q, k, v, **options)
        o, beside = flex_attention(q.float(), k.float(), v.float(), **options)
        return o.bfloat16(), beside
