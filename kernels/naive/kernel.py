"""Naive: attention as written on paper, forward and backward, one library launch for each step.

Nothing is fused: the score matrix S [batch, heads, seq_len_q, seq_len_kv] and the probabilities P go to HBM, and their
gradients dS and dP too.

Grid      the library's
Tiles     the library's
State     none: softmax sees whole rows
HBM       requested read and written: the operands of each launch (equals schedule(); a test checks it)
L2↔SM     at least that; products re-read operands for tiles of 64 × 64 or more, each head its mask (l2_sm_bounds())
Numerics  S, P, dP and dS in the inputs' dtype, S before its scale too, so float16 overflows beyond 65,504; products
          accumulated in float32, mask −inf; float32 means ieee float32
Paper     Dao et al. 2022, Algorithm 0 (standard attention) and 3 (its backward pass)
"""

from contextlib import nullcontext

import torch

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import Gradients, LaunchHook, Output


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    launch: LaunchHook = nullcontext,
    finite: bool = False,
    prepared: torch.Tensor | None = None,
) -> Output:
    """O of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem. GQA folds a group's queries together."""
    folded = (problem.batch, problem.kv_heads, problem.group * problem.seq_len_q)
    by_head = (problem.batch, problem.heads, problem.seq_len_q)
    hidden = prepare(problem, tile, q.device) if prepared is None else prepared
    with launch("qk"):
        s = product(q.reshape(*folded, problem.head_dim), k.transpose(-2, -1), finite)
    with launch("scale"):
        s.mul_(problem.sm_scale)
    if hidden is not None:
        with launch("mask"):
            s.view(*by_head, problem.seq_len_kv).masked_fill_(hidden, float("-inf"))
    with launch("softmax"):
        p = torch.softmax(s, dim=-1)
    if blind := problem.blind_queries:
        with launch("blind_rows"):
            p.view(*by_head, problem.seq_len_kv)[:, :, :blind].zero_()
    with launch("pv"):
        o = product(p, v, finite)
    if hidden is not None and not finite:
        o = _keep_hidden_values_out(o, p, v, ~hidden.repeat(problem.group, 1))
    return Output(o.view(*by_head, problem.head_dim), p=p if problem.backward else None)


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    output: Output,
    do: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    launch: LaunchHook = nullcontext,
    finite: bool = False,
) -> Gradients:
    """See kernels.run.Backward: what torch's autograd launches for `forward`, one after the other, with its P.

    Where the mask hides a score P is 0, and so is dS: nothing of the mask is needed again, unless something is not
    `finite`, for 0 · NaN is NaN.
    """
    if output.p is None:
        raise ValueError("The forward pass kept no P; ask it for a problem with a backward pass.")
    folded = (problem.batch, problem.kv_heads, problem.group * problem.seq_len_q, problem.head_dim)
    q, do, p = q.reshape(folded), do.reshape(folded), output.p
    hidden = None if finite else prepare(problem, tile, q.device)
    if hidden is not None:
        hidden = hidden.repeat(problem.group, 1)
        p = p.masked_fill(hidden, 0.0)
        q, k = (tensor.where(tensor.isfinite(), 0) for tensor in (q, k))
    with launch("dv"):
        dv = product(p.mT, do, finite)
    with launch("dp"):
        dp = product(do, v.mT, finite)
    if hidden is not None:
        dp.masked_fill_(hidden, 0.0)
    with launch("ds"):
        ds = torch._softmax_backward_data(dp, p, -1, p.dtype)
    del dp
    if hidden is not None:
        ds.masked_fill_(hidden, 0.0)
    with launch("scale_ds"):
        ds.mul_(problem.sm_scale)
    with launch("dq"):
        dq = product(ds, k, finite)
    with launch("dk"):
        dk = product(ds.mT, q, finite)
    return Gradients(dq.view(problem.batch, problem.heads, problem.seq_len_q, problem.head_dim), dk, dv)


def product(a: torch.Tensor, b: torch.Tensor, finite: bool) -> torch.Tensor:
    """a @ b in their dtype, accumulated in float32.

    Where not all is `finite`: torch's bfloat16 products on a CPU read one element beyond a row of odd length, and NaN
    there would spoil the row.
    """
    if not finite and a.dtype == torch.bfloat16 and a.device.type == "cpu":
        return (a.float() @ b.float()).bfloat16()
    return a @ b


def prepare(problem: AttentionProblem, tile: TileConfig, device: torch.device | str) -> torch.Tensor | None:
    """Boolean [seq_len_q, seq_len_kv], true where the mask hides a score; None where it hides none."""
    if not problem.is_masked:
        return None
    lo, hi = (torch.from_numpy(end).to(device)[:, None] for end in problem.visible_keys())
    key = torch.arange(problem.seq_len_kv, device=device)
    return (key < lo) | (key >= hi)


def _keep_hidden_values_out(o: torch.Tensor, p: torch.Tensor, v: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
    """O where a query sees a non-finite value, the sum over the finite ones elsewhere: 0 · NaN is NaN."""
    finite = v.isfinite()
    if bool(finite.all()):
        return o
    sees_bad = seen.float() @ (~finite).float() > 0
    return torch.where(sees_bad, o, product(p, v.where(finite, 0), False))
