"""The names of a pass's kernels as a source of a Run."""

from contextlib import nullcontext

import pytest

from profiler.counter import Unavailable
from profiler.counters import kernel_names
from profiler.cupti import launches
from profiler.cupti.library import CuptiError
from profiler.launched import names_of
from profiler.plausible import MAX_LAUNCHES
from profiler.run import DeviceInfo, LaunchedKernel
from tests.fake_runs import H200
from tests.test_launches import MANGLED, WRITTEN, Library, cupti_of


class Pass:
    """qk and pv, and a kernel between them; the first pass also sets something up."""

    def __init__(self, library: Library) -> None:
        self.library, self.passes = library, 0

    def launch(self, hook=nullcontext) -> None:
        self.passes += 1
        if self.passes == 1:
            self.library.launch(b"set_up")
        with hook("qk"):
            self.library.launch(b"nvjet_qk")
        self.library.launch(b"mask")
        with hook("pv"):
            self.library.launch(MANGLED)


def test_kernels_of_the_second_pass_by_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library()
    monkeypatch.setattr(launches, "load", lambda: cupti_of(library))
    load = Pass(library)
    reading = kernel_names.measure(load)
    assert load.passes == 2
    assert reading.kernels == (
        LaunchedKernel("qk", "nvjet_qk"),
        LaunchedKernel("", "mask"),
        LaunchedKernel("pv", WRITTEN),
    )
    (count,) = reading.measurements
    assert (count.name, count.value, count.unit, count.source) == ("kernels_launched", 3.0, "1", "cupti-callback")
    assert library.calls == ["subscribe", "unsubscribe"]


def test_beside_another_profiler_there_are_no_names_and_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Library(subscribe=39)
    monkeypatch.setattr(launches, "load", lambda: cupti_of(library))
    with pytest.raises(Unavailable, match="another profiler is active in this process: torch"):
        kernel_names.measure(Pass(library))


def test_names_are_printable_and_cut() -> None:
    reading = names_of([("qk", "nvjet_hsh\n\x1b128"), ("", "k" * 2000)])
    assert reading.kernels == (LaunchedKernel("qk", "nvjet_hsh �128"), LaunchedKernel("", "k" * 299 + "…"))


def test_no_kernels_are_0_kernels() -> None:
    """They were watched, and none came."""
    reading = names_of([])
    assert (reading.measurements[0].value, reading.kernels) == (0.0, ())


def test_a_run_holds_no_more_names_than_it_can_be_read_back_with() -> None:
    reading = names_of([("", f"k{number}") for number in range(MAX_LAUNCHES + 1)])
    assert len(reading.kernels) == MAX_LAUNCHES
    assert (reading.kernels[0].kernel, reading.kernels[-1].kernel) == ("k0", f"k{MAX_LAUNCHES - 1}")
    assert reading.measurements[0].value == MAX_LAUNCHES + 1
    assert reading.measurements[0].note.endswith(f"the first {MAX_LAUNCHES} are named")
    assert "are named" not in names_of([("", "k")] * MAX_LAUNCHES).measurements[0].note


def test_only_on_a_gpu_with_a_driver_and_cupti(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise CuptiError("No GPU counters: there is no NVIDIA driver (libcuda.so.1).")

    unavailable = kernel_names.COUNTER.unavailable
    assert "no GPU" in str(unavailable(DeviceInfo("cpu", "CPU")))
    monkeypatch.setattr(kernel_names, "cuda_driver", lambda: None)
    monkeypatch.setattr(kernel_names, "load_cupti", lambda: None)
    assert unavailable(H200) is None
    monkeypatch.setattr(kernel_names, "load_cupti", absent)
    assert "there is no NVIDIA driver" in str(unavailable(H200))
    monkeypatch.setattr(kernel_names, "load_cupti", lambda: None)
    monkeypatch.setattr(kernel_names, "cuda_driver", absent)
    assert "there is no NVIDIA driver" in str(unavailable(H200))
