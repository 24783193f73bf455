"""How far a kernel's dQ, dK and dV are from float64: of every (batch, kv head) where that is cheap, else of some."""

from collections.abc import Mapping
from functools import lru_cache

import torch

from kernels.problem import AttentionProblem
from kernels.reference import reference_gradients
from kernels.run import Gradients
from profiler.bench import Bench, draw_do, draw_inputs
from profiler.run import Measurement

CHEAP_FLOPS = {"cuda": 1.5e12, "cpu": 2e9}
MOST_FLOPS = {"cuda": 3e14, "cpu": 1e11}  # for one (batch, kv head) that cannot be cut
NAMES = {tensor: f"{tensor}_relative_error" for tensor in ("dq", "dk", "dv")}
NOT_FINITE = "holds NaN or infinity"


def measure_gradient_errors(bench: Bench, found: Gradients) -> tuple[Measurement, ...]:
    """‖d − ref‖ / ‖ref‖ of each gradient against float64, over the pairs (batch, kv head) that the note tells."""
    problem, device = bench.workload.problem, "cpu" if bench.workload.device == "cpu" else "cuda"
    one = 14 * problem.group * problem.seq_len_q * problem.seq_len_kv * problem.head_dim
    if one > MOST_FLOPS[device]:
        reason = (
            f"the gradients of one (batch, kv head) alone take {one:.1g} FLOP in float64; measure a shorter sequence"
        )
        return tuple(Measurement(name, None, "1", "torch", reason) for name in NAMES.values())
    total = problem.batch * problem.kv_heads
    count = max(1, min(total, int(CHEAP_FLOPS[device] / one)))
    pairs = tuple(index * (total - 1) // max(count - 1, 1) for index in range(count))
    exact = _expected(problem, bench.workload.seed, bench.workload.device, pairs)
    note = f"all {total}" if count == total else f"{count} of {total}"
    note = f"against float64, {note} (batch, kv head){'' if count == total else ', evenly spaced'}"
    return tuple(_error(tensor, _chosen(vars(found)[tensor], problem, pairs), exact[tensor], note) for tensor in NAMES)


def _error(tensor: str, found: torch.Tensor, exact: torch.Tensor, note: str) -> Measurement:
    name, exact = NAMES[tensor], exact.to(found.device)
    difference, norm = found.double() - exact, exact.norm()
    if not difference.isfinite().all():
        return Measurement(name, None, "1", "torch", f"{tensor_title(tensor)} {NOT_FINITE} ({note})")
    if norm == 0:
        return Measurement(name, None, "1", "torch", f"the reference is 0 everywhere ({note})")
    return Measurement(name, (difference.norm() / norm).item(), "1", "torch", note)


def tensor_title(tensor: str) -> str:
    """dq as people write it."""
    return f"d{tensor[1:].upper()}"


def _chosen(tensor: torch.Tensor, problem: AttentionProblem, pairs: tuple[int, ...]) -> torch.Tensor:
    """The (batch, kv head) `pairs` of a gradient, [pairs, …]; of dQ the heads of each group lie together."""
    by_pair = tensor.reshape(problem.batch * problem.kv_heads, -1, problem.head_dim)
    return by_pair[list(pairs)]


@lru_cache(maxsize=1)
def _expected(problem: AttentionProblem, seed: int, device: str, pairs: tuple[int, ...]) -> Mapping[str, torch.Tensor]:
    """dQ, dK and dV of these (batch, kv head), each [pairs, rows, head_dim], in host memory as `accuracy` keeps O."""
    q, k, v = draw_inputs(problem, seed, device)
    do = draw_do(problem, seed, device)
    found = [reference_gradients(q, k, v, do, problem, *divmod(pair, problem.kv_heads)) for pair in pairs]
    return {
        tensor: torch.stack([part.reshape(-1, problem.head_dim).cpu() for part in parts])
        for tensor, parts in zip(NAMES, zip(*found, strict=True), strict=True)
    }
