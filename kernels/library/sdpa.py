"""torch's scaled_dot_product_attention with one backend forced, and asked beforehand whether it takes a problem."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.library.hidden_values import kept_out, zeros
from kernels.library.schedule import SDPA
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.run import Forward, LaunchHook, Output

Prepare = Callable[[AttentionProblem, TileConfig, torch.device | str], None]

# How torch begins where the backend that it may use does not take a problem, and what it says of the other ones.
NOT_TAKEN = ("No available kernel", "No viable backend", "cuDNN Frontend error")
OF_OTHERS = ("runtime disabled", "not used because")
MOST_WORDS = 300


def forced(backend: SDPBackend, offsets_end: int | None = None) -> Forward:
    """The forward that runs torch's attention with this backend and no other.

    It raises ValueError where rows of a head are offsets_end elements apart or more: the backend would err there.
    """

    def forward(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        problem: AttentionProblem,
        tile: TileConfig,
        launch: LaunchHook = nullcontext,
        finite: bool = False,
        prepared: object = None,
    ) -> Output:
        """O of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem."""

        def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
            options = {"is_causal": problem.causal, "scale": problem.sm_scale, "enable_gqa": problem.group > 1}
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, **options)  # type: ignore[arg-type]

        if offsets_end is not None:
            _require_near_rows(offsets_end, q=q, k=k, v=v)
        with launch(SDPA):
            o = attend(q, k, v)
        return Output(o if finite or not problem.is_masked else kept_out(o, attend, q, k, v))

    return forward


def _require_near_rows(end: int, **tensors: torch.Tensor) -> None:
    for name, tensor in tensors.items():
        if (last := (tensor.shape[2] - 1) * tensor.stride(2)) >= end:
            raise ValueError(
                f"The last row of {name} is {last:,} elements after the first of its head, and this kernel counts them "
                f"in 32 bits; make {name} contiguous, or choose flash."
            )


def asked(title: str, forward: Forward) -> Prepare:
    """The prepare that asks torch whether it takes a problem: it tells only when it is to run, and why in warnings."""

    def prepare(problem: AttentionProblem, tile: TileConfig, device: torch.device | str) -> None:
        """Run at most two K/V heads of one batch. Raises Refused with torch's reasons."""
        kv_heads = min(2, problem.kv_heads)
        few = replace(problem, batch=1, heads=kv_heads * problem.group, kv_heads=kv_heads)
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            try:
                q, k, v = zeros(few, device)
                forward(q, k, v, few, tile, finite=True)
            except RuntimeError as error:
                if not str(error).startswith(NOT_TAKEN):
                    raise
                words = [str(warning.message).split(" (Triggered")[0] for warning in told]
                reasons = [word for word in words if not any(other in word for other in OF_OTHERS)]
                why = ("; ".join(reasons) or str(error))[:MOST_WORDS].rstrip(" .")
                raise Refused(f"{title} does not take this problem: {why}; choose another kernel.") from error

    return prepare
