"""torch's scaled_dot_product_attention with one backend forced, and asked beforehand whether it takes a problem."""

import warnings
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from kernels.finite_values import kept_out, zeros
from kernels.library.far_rows import require_near_rows
from kernels.library.schedule import SDPA
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.run import Forward, LaunchHook, Output

Prepare = Callable[[AttentionProblem, TileConfig, torch.device | str], None]

# How torch begins where the backend that it may use does not take a problem, and what it says of the other ones.
NOT_TAKEN = ("No available kernel", "No viable backend", "cuDNN Frontend error")
OF_OTHERS = ("runtime disabled", "not used because")
MOST_WORDS = 300


def forced(backend: SDPBackend, takes_far_rows: bool = True) -> Forward:
    """The forward that runs torch's attention with this backend and no other."""

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

        if not takes_far_rows:
            require_near_rows(q, k, v)
        with launch(SDPA):
            o = attend(q, k, v)
        return Output(o if finite or not problem.is_masked else kept_out(o, attend, q, k, v))

    return forward


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
