"""How far a kernel's O is from float64 attention, on all rows where that is cheap, else on a stated sample."""

from functools import lru_cache

import torch

from kernels.problem import AttentionProblem
from kernels.reference import reference
from profiler.bench import Bench, draw_inputs
from profiler.run import Measurement

CHEAP_FLOPS = {"cuda": 1.5e12, "cpu": 2e9}


def measure_errors(bench: Bench, o: torch.Tensor) -> tuple[Measurement, ...]:
    """relative_error ‖o − ref‖ / ‖ref‖ and max_abs_error of O against the float64 reference."""
    workload = bench.workload
    rows, exact = _reference(workload.problem, workload.seed, workload.device)
    exact = exact.to(o.device)
    difference = o[:, :, rows.to(o.device)].double() - exact
    norm = exact.norm()
    count, total = len(rows), workload.problem.seq_len_q
    heads = f"{workload.problem.batch * workload.problem.heads} (batch, head)"
    note = f"all {total} rows of {heads}" if count == total else f"{count} of {total} rows, evenly spaced, of {heads}"
    note = f"against float64, {note}"
    if not difference.isfinite().all():
        spoiled = f"O holds NaN or infinity ({note})"
        return tuple(Measurement(name, None, "1", "torch", spoiled) for name in ("relative_error", "max_abs_error"))
    largest = Measurement("max_abs_error", difference.abs().max().item(), "1", "torch", note)
    if norm == 0:
        return Measurement("relative_error", None, "1", "torch", f"the reference is 0 everywhere ({note})"), largest
    return Measurement("relative_error", (difference.norm() / norm).item(), "1", "torch", note), largest


@lru_cache(maxsize=1)
def _reference(problem: AttentionProblem, seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    cheap = CHEAP_FLOPS["cpu" if device == "cpu" else "cuda"]
    row_flops = 4 * problem.batch * problem.heads * problem.seq_len_kv * problem.head_dim
    count = max(1, min(problem.seq_len_q, int(cheap / row_flops)))
    rows = torch.linspace(0, problem.seq_len_q - 1, count, dtype=torch.float64).round().long()
    exact, _ = reference(*draw_inputs(problem, seed, device), problem, rows)
    # Kept in host memory: on the GPU it would count as memory of the next kernel.
    return rows, exact.cpu()
