"""How far a kernel's O is from float64 attention, on all rows where that is cheap, else on a stated sample."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from kernels.own_fault import KernelFault
from kernels.own_forward import called, checked
from kernels.problem import AttentionProblem
from kernels.reference import reference
from profiler.bench import Bench, Inputs, draw_inputs
from profiler.own_kernel import OWN_REFERENCE
from profiler.plausible import printable
from profiler.run import Measurement
from profiler.wrong_output import NOT_FINITE

CHEAP_FLOPS = {"cuda": 1.5e12, "cpu": 2e9}
RAW_BFLOAT16 = "Triton's interpreter multiplies bfloat16 in tl.dot as integers, unless the kernel converts it before"
MAX_OWN_SCORES = 2**31  # bytes of scores in float64 that a reference of the user's may need


def measure_errors(bench: Bench, o: torch.Tensor) -> tuple[Measurement, ...]:
    """relative_error ‖o − ref‖ / ‖ref‖ and max_abs_error of O against the float64 reference."""
    workload = bench.workload
    try:
        rows, exact, against = _expected(bench)
    except KernelFault as fault:
        return _untold(printable(str(fault)))
    exact = exact.to(o.device)
    difference = o[:, :, rows.to(o.device)].double() - exact
    norm = exact.norm()
    count, total = len(rows), workload.problem.seq_len_q
    heads = f"{workload.problem.batch * workload.problem.heads} (batch, head)"
    note = f"all {total} rows of {heads}" if count == total else f"{count} of {total} rows, evenly spaced, of {heads}"
    note = f"{against}, {note}"
    if bench.own is not None and not workload.on_gpu and workload.problem.dtype == "bfloat16":
        note += f"; {RAW_BFLOAT16}"
    if not difference.isfinite().all():
        return _untold(f"O {NOT_FINITE} ({note}){_first_bad(difference, rows)}")
    largest = Measurement("max_abs_error", difference.abs().max().item(), "1", "torch", note)
    if norm == 0:
        return Measurement("relative_error", None, "1", "torch", f"the reference is 0 everywhere ({note})"), largest
    return Measurement("relative_error", (difference.norm() / norm).item(), "1", "torch", note), largest


def _untold(reason: str) -> tuple[Measurement, ...]:
    return tuple(Measurement(name, None, "1", "torch", reason) for name in ("relative_error", "max_abs_error"))


def _first_bad(difference: torch.Tensor, rows: torch.Tensor) -> str:
    """Where what is not finite begins: difference is [batch, heads, rows, head_dim]."""
    bad = ~difference.isfinite().all(-1)
    batch, head, row = bad.nonzero()[0].tolist()
    return f", in {int(bad.sum()):,} rows, the first at batch {batch}, head {head}, query {int(rows[row])}"


def _expected(bench: Bench) -> tuple[torch.Tensor, torch.Tensor, str]:
    """(rows, what O is to be in these rows in float64, against what that is). Raises KernelFault."""
    workload, own = bench.workload, bench.own
    if own is not None and own.reference is not None:
        return *_own_reference(bench, own.name, own.reference), OWN_REFERENCE
    if bench.is_shared:
        return *_reference(workload.problem, workload.seed, workload.device), "against float64"
    return *_reference_of(workload.problem, workload.device, bench.inputs), "against float64"


def _own_reference(bench: Bench, name: str, call: Callable[..., Any]) -> tuple[torch.Tensor, torch.Tensor]:
    problem = bench.workload.problem
    spelled = f"{name}.reference"
    size = 8 * problem.batch * problem.heads * problem.seq_len_q * problem.seq_len_kv
    if size > MAX_OWN_SCORES:
        raise KernelFault(
            f"{spelled} was not asked: its scores in float64 would take {size / 2**30:.0f} GiB; measure the "
            "error on a smaller problem"
        )
    try:
        q, k, v = (tensor.double() for tensor in bench.inputs)
        exact = checked(spelled, called(spelled, call, (q, k, v, problem.causal), {}), q)
    except torch.OutOfMemoryError:
        raise KernelFault(f"{spelled} ran out of memory; measure the error on a smaller problem") from None
    rows = torch.arange(problem.seq_len_q)
    if not exact.isfinite().all():
        raise KernelFault(f"{spelled} returned NaN or infinity{_first_bad(exact, rows)}")
    return rows, exact.cpu()


@lru_cache(maxsize=1)
def _reference(problem: AttentionProblem, seed: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    return _reference_of(problem, device, draw_inputs(problem, seed, device))


def _reference_of(problem: AttentionProblem, device: str, inputs: Inputs) -> tuple[torch.Tensor, torch.Tensor]:
    cheap = CHEAP_FLOPS["cpu" if device == "cpu" else "cuda"]
    row_flops = 4 * problem.batch * problem.heads * problem.seq_len_kv * problem.head_dim
    count = max(1, min(problem.seq_len_q, int(cheap / row_flops)))
    rows = torch.linspace(0, problem.seq_len_q - 1, count, dtype=torch.float64).round().long()
    exact, _ = reference(*inputs, problem, rows)
    # Kept in host memory: on the GPU it would count as memory of the next kernel.
    return rows, exact.cpu()
