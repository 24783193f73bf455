"""The specification: attention and its gradients in float64, eager, in chunks of queries that fit in memory."""

from collections.abc import Iterator

import torch

from kernels.problem import AttentionProblem

CHUNK_ELEMENTS = 2**26  # float64 scores held at once: 512 MiB


def reference(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, problem: AttentionProblem, rows: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    """(O float64 [batch, heads, rows, head_dim], LSE float64 [batch, heads, rows]) on q's device.

    `rows` (int64, sorted) picks queries; all by default. Hidden keys and values never touch the result, not even NaN;
    queries that see nothing give O = 0 and LSE = −inf.
    """
    rows = torch.arange(problem.seq_len_q, device=q.device) if rows is None else rows.to(q.device)
    shape = (problem.batch, problem.heads, len(rows))
    o = torch.empty(*shape, problem.head_dim, dtype=torch.float64, device=q.device)
    lse = torch.empty(shape, dtype=torch.float64, device=q.device)
    for batch in range(problem.batch):
        for head in range(problem.heads):
            k64, v64 = (t[batch, head // problem.group].double() for t in (k, v))
            for part, s in score_chunks(q[batch, head], k64, problem, rows):
                lse[batch, head, part] = torch.logsumexp(s, -1)
                p = torch.softmax(s, -1).masked_fill_(s.isneginf().all(-1, keepdim=True), 0.0)
                o[batch, head, part] = weighted_sum(p, v64, s)
    return o, lse


def reference_gradients(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    do: torch.Tensor,
    problem: AttentionProblem,
    batch: int,
    kv_head: int,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(dQ [group, seq_len_q, head_dim], dK, dV [seq_len_kv, head_dim]) of one (batch, kv head), float64, on q's device.

    What is hidden from a query has no part in its gradients, nor has that query in those of hidden keys, not even NaN.
    An infinite key or query whose weight is 0 adds 0.
    """
    rows = torch.arange(problem.seq_len_q, device=q.device)
    k64, v64 = (tensor[batch, kv_head].double() for tensor in (k, v))
    k_finite = k64.where(k64.isfinite(), 0.0)
    dq = torch.empty(problem.group, *q.shape[2:], dtype=torch.float64, device=q.device)
    dk, dv = torch.zeros_like(k64), torch.zeros_like(v64)
    for member in range(problem.group):
        head = kv_head * problem.group + member
        for part, s in score_chunks(q[batch, head], k64, problem, rows):
            q64, do64 = (tensor[batch, head, part].double() for tensor in (q, do))
            hidden = s.isneginf()
            p = torch.softmax(s, -1).masked_fill_(hidden, 0.0)
            dp = (do64 @ v64.T).masked_fill_(hidden, 0.0)
            ds = (p * (dp - (p * dp).sum(-1, keepdim=True))).masked_fill_(hidden, 0.0) * problem.sm_scale
            dq[member, part] = ds @ k_finite
            dk += ds.T @ q64.where(q64.isfinite(), 0.0)
            dv += p.T @ do64
    return dq, dk, dv


def score_chunks(
    q: torch.Tensor, k64: torch.Tensor, problem: AttentionProblem, rows: torch.Tensor
) -> Iterator[tuple[slice, torch.Tensor]]:
    """(slice of rows, scaled and masked float64 scores [chunk, seq_len_kv]) of one (batch, head)."""
    lo, hi = (torch.from_numpy(end).to(q.device)[rows] for end in problem.visible_keys())
    key = torch.arange(problem.seq_len_kv, device=q.device)
    chunk = max(1, CHUNK_ELEMENTS // problem.seq_len_kv)
    for start in range(0, len(rows), chunk):
        part = slice(start, min(start + chunk, len(rows)))
        s = q[rows[part]].double() @ k64.T * problem.sm_scale
        if problem.is_masked:
            s.masked_fill_((key < lo[part, None]) | (key >= hi[part, None]), float("-inf"))
        yield part, s


def weighted_sum(p: torch.Tensor, v64: torch.Tensor, s: torch.Tensor) -> torch.Tensor:
    """P V in float64; a non-finite row of V counts only for the queries that see it, since 0 · NaN is NaN."""
    finite = v64.isfinite()
    if bool(finite.all()):
        return p @ v64
    seen = s > float("-inf")

    def meets(weights: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        return weights.double() @ values.double() > 0

    # What a seen key adds: infinity as it is where its weight is above 0, NaN where the weight has become 0.
    plus, minus = meets(seen & (p > 0), v64 == float("inf")), meets(seen & (p > 0), v64 == float("-inf"))
    nan = meets(seen, v64.isnan()) | meets(seen & (p == 0), ~finite) | (plus & minus)
    total = p @ v64.where(finite, 0.0)
    total = total.where(~plus, float("inf")).where(~minus, float("-inf"))
    return total.where(~nan, float("nan"))
