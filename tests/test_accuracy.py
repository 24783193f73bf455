"""Errors against float64 with outputs that are wrong by a known amount, on all rows and on a sample."""

from collections.abc import Iterator

import pytest
import torch

from kernels.problem import AttentionProblem
from kernels.reference import reference
from profiler import accuracy
from profiler.accuracy import measure_errors
from profiler.bench import Bench
from profiler.device import cpu_device
from profiler.run import Measurement
from profiler.workload import Workload

pytestmark = pytest.mark.computes

PROBLEM = AttentionProblem(1, 2, 1, 64, 32, 16, "float32")


@pytest.fixture(autouse=True)
def fresh_reference() -> Iterator[None]:
    """Tests change what is cheap, which the cached reference does not know."""
    accuracy._reference.cache_clear()
    yield
    accuracy._reference.cache_clear()


def errors(problem: AttentionProblem, o: torch.Tensor) -> tuple[Measurement, Measurement]:
    relative, largest = measure_errors(Bench(Workload("naive", problem, None, trace=None), cpu_device()), o)
    assert (relative.name, largest.name) == ("relative_error", "max_abs_error")
    assert {m.unit for m in (relative, largest)} == {"1"} and {m.source for m in (relative, largest)} == {"torch"}
    return relative, largest


def exact(problem: AttentionProblem) -> torch.Tensor:
    bench = Bench(Workload("naive", problem, None, trace=None), cpu_device())
    o, _ = reference(*bench.inputs, problem)
    return o


def test_an_exact_output_has_no_error() -> None:
    relative, largest = errors(PROBLEM, exact(PROBLEM))
    assert (relative.value, largest.value) == (0.0, 0.0)
    assert relative.note == "against float64, all 64 rows of 2 (batch, head)"


def test_one_element_off_by_a_quarter() -> None:
    o = exact(PROBLEM)
    norm = float(o.norm())
    o[0, 1, 63, 15] -= 0.25
    relative, largest = errors(PROBLEM, o)
    assert largest.value == pytest.approx(0.25, rel=1e-12)
    assert relative.value == pytest.approx(0.25 / norm, rel=1e-12)


def test_everything_too_large_by_a_thousandth() -> None:
    relative, _ = errors(PROBLEM, exact(PROBLEM) * 1.001)
    assert relative.value == pytest.approx(1e-3, rel=1e-6)


def test_a_sample_of_rows_is_stated_and_looks_at_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows 0, 21, 42 and 63 of 64, where four rows are as much as is cheap."""
    monkeypatch.setitem(accuracy.CHEAP_FLOPS, "cpu", 4 * (4 * 2 * 32 * 16))
    o = exact(PROBLEM)
    o[:, :, [1, 20, 22, 43, 62]] = 1e9
    relative, largest = errors(PROBLEM, o)
    assert (relative.value, largest.value) == (0.0, 0.0)
    assert relative.note == largest.note == "against float64, 4 of 64 rows, evenly spaced, of 2 (batch, head)"
    o[:, :, 42] += 1
    assert errors(PROBLEM, o)[1].value == pytest.approx(1.0)


def test_at_least_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(accuracy.CHEAP_FLOPS, "cpu", 1)
    assert "1 of 64 rows" in errors(PROBLEM, exact(PROBLEM))[0].note


def test_a_reference_of_zeros_has_no_relative_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Query 0 of 5 over 2 keys sees nothing; the only row of this sample."""
    problem = AttentionProblem(1, 1, 1, 5, 2, 4, "float32", causal=True)
    monkeypatch.setitem(accuracy.CHEAP_FLOPS, "cpu", 1)
    relative, largest = errors(problem, torch.zeros(1, 1, 5, 4))
    assert relative.value is None and relative.note.startswith("the reference is 0 everywhere (")
    assert largest.value == 0.0


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_an_output_that_is_not_finite_is_a_reason_not_a_number(bad: float) -> None:
    o = exact(PROBLEM)
    o[0, 0, 3, 3] = bad
    for measurement in errors(PROBLEM, o):
        assert measurement.value is None and measurement.note.startswith("O holds NaN or infinity (")
