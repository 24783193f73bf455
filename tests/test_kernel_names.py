"""The names of a pass's kernels as a source of a Run."""

import pytest

from profiler.counter import Reading
from profiler.counters import kernel_names
from profiler.plausible import MAX_LAUNCHES
from profiler.run import DeviceInfo, LaunchedKernel
from tests.fake_runs import H200


def found(monkeypatch: pytest.MonkeyPatch, *kernels: LaunchedKernel) -> Reading:
    monkeypatch.setattr(kernel_names, "launched_kernels", lambda load: kernels)
    return kernel_names.measure(None)  # type: ignore[arg-type]


def test_names_and_their_number(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = found(monkeypatch, LaunchedKernel("qk", "nvjet_hsh\n\x1b128"), LaunchedKernel("", "memory"))
    assert reading.kernels == (LaunchedKernel("qk", "nvjet_hsh �128"), LaunchedKernel("", "memory"))
    (count,) = reading.measurements
    assert (count.name, count.value, count.unit, count.source) == ("kernels_launched", 2.0, "1", "torch")


def test_a_run_holds_no_more_names_than_it_can_be_read_back_with(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = found(monkeypatch, *[LaunchedKernel("", "k")] * (MAX_LAUNCHES + 1))
    assert len(reading.kernels) == MAX_LAUNCHES
    assert reading.measurements[0].value == MAX_LAUNCHES + 1
    assert reading.measurements[0].note.endswith(f"the first {MAX_LAUNCHES} are named")


def test_only_on_a_gpu() -> None:
    assert kernel_names.unavailable(H200) is None
    assert "no GPU" in str(kernel_names.unavailable(DeviceInfo("cpu", "CPU")))
