"""Naive: attention as written on paper, one library launch for each step.

Nothing is fused: the score matrix S [batch, heads, seq_len_q, seq_len_kv] and the probabilities P go to HBM.

Grid      the library's
Tiles     the library's
State     none: softmax sees whole rows
HBM       requested read and written: the operands of each launch (equals schedule(); a test checks it)
L2↔SM     at least that; products re-read operands for tiles of 64 × 64 or more, each head its mask (l2_sm_bounds())
Numerics  S and P in the inputs' dtype, S before its scale too, so float16 overflows beyond 65,504; products accumulated
          in float32, mask −inf; float32 means ieee float32
Paper     Dao et al. 2022, Algorithm 0 (standard attention)
"""

from contextlib import nullcontext

import torch

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook, Output


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
    return Output(o.view(*by_head, problem.head_dim))


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
