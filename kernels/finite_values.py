"""Values that a mask hides stay out of a result in which they are multiplied by 0: 0 · NaN is NaN."""

from collections.abc import Callable

import torch

from kernels.problem import AttentionProblem

Attend = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def kept_out(o: torch.Tensor, attend: Attend, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """O = attend(q, k, v) where a query sees a value that is not finite, attention over the finite ones elsewhere.

    Who sees one is told by the same attention: with all weights alike, the mean of 1 for each such value is above 0.
    """
    finite = v.isfinite()
    if bool(finite.all()):
        return o
    sees_bad = attend(torch.zeros_like(q), torch.zeros_like(k), (~finite).to(v.dtype)) > 0
    return torch.where(sees_bad, o, attend(q, k, v.where(finite, 0)))


def zeros(problem: AttentionProblem, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v of the problem, all 0."""
    where = {"dtype": getattr(torch, problem.dtype), "device": device}
    q = torch.zeros(problem.batch, problem.heads, problem.seq_len_q, problem.head_dim, **where)
    k = torch.zeros(problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim, **where)
    return q, k, k
