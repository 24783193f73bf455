"""How far a kernel's dQ, dK and dV are from float64: of every (batch, kv head) where that is cheap, else of some."""

from functools import lru_cache

import torch

from kernels.problem import AttentionProblem
from kernels.reference import reference_gradients
from kernels.run import Gradients
from profiler.accuracy import CHEAP_FLOPS
from profiler.bench import Bench, draw_do, draw_inputs
from profiler.run import Measurement
from profiler.wrong_output import ERRORS, NOT_FINITE

MOST_FLOPS = {"cuda": 3e14, "cpu": 1e11}  # for one (batch, kv head) that cannot be cut
TENSORS = {"dQ": "dq", "dK": "dk", "dV": "dv"}


def measure_gradient_errors(bench: Bench, found: Gradients) -> tuple[Measurement, ...]:
    """‖d − ref‖ / ‖ref‖ of each gradient against float64, over the pairs (batch, kv head) that the note tells."""
    problem, device = bench.workload.problem, "cuda" if bench.workload.on_gpu else "cpu"
    one = 14 * problem.group * problem.seq_len_q * problem.seq_len_kv * problem.head_dim
    if one > MOST_FLOPS[device]:
        reason = f"the gradients of one (batch, kv head) take {one:.1g} FLOP in float64; measure a shorter sequence"
        return tuple(Measurement(ERRORS[tensor], None, "1", "torch", reason) for tensor in TENSORS)
    total = problem.batch * problem.kv_heads
    count = max(1, min(total, int(CHEAP_FLOPS[device] / one)))
    pairs = tuple(index * (total - 1) // max(count - 1, 1) for index in range(count))
    exact = _expected(problem, bench.workload.seed, bench.workload.device, pairs)
    sample = (
        f"all {total} (batch, kv head)" if count == total else f"{count} of {total} (batch, kv head), evenly spaced"
    )
    return tuple(
        _error(tensor, _chosen(getattr(found, name), problem, pairs), exact[name], f"against float64, {sample}")
        for tensor, name in TENSORS.items()
    )


def _error(tensor: str, found: torch.Tensor, exact: torch.Tensor, note: str) -> Measurement:
    name, exact = ERRORS[tensor], exact.to(found.device)
    difference, norm = found.double() - exact, exact.norm()
    if not difference.isfinite().all():
        return Measurement(name, None, "1", "torch", f"{tensor} {NOT_FINITE} ({note})")
    if norm == 0:
        return Measurement(name, None, "1", "torch", f"the reference is 0 everywhere ({note})")
    return Measurement(name, (difference.norm() / norm).item(), "1", "torch", note)


def _chosen(tensor: torch.Tensor, problem: AttentionProblem, pairs: tuple[int, ...]) -> torch.Tensor:
    """A gradient of the (batch, kv head) `pairs`, [pairs, rows, head_dim]; dQ's rows are those of a group's heads."""
    return tensor.reshape(problem.batch * problem.kv_heads, -1, problem.head_dim)[list(pairs)]


@lru_cache(maxsize=1)
def _expected(problem: AttentionProblem, seed: int, device: str, pairs: tuple[int, ...]) -> dict[str, torch.Tensor]:
    """The same in float64, by name; in host memory, for on the GPU it would count as memory of the next kernel."""
    q, k, v = draw_inputs(problem, seed, device)
    do = draw_do(problem, seed, device)
    found = [reference_gradients(q, k, v, do, problem, *divmod(pair, problem.kv_heads)) for pair in pairs]
    return {
        name: torch.stack([part.reshape(-1, problem.head_dim).cpu() for part in parts])
        for name, parts in zip(TENSORS.values(), zip(*found, strict=True), strict=True)
    }
