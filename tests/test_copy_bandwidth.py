"""The measured roofs: bytes over event time, a smaller copy where the large one does not fit, once in a process."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from time import perf_counter
from types import SimpleNamespace

import pytest
import torch

from kernels.run import LaunchHook
from profiler.bench import Load
from profiler.copies import Traffic
from profiler.counter import Unavailable
from profiler.counters import copy_bandwidth, cupti_range
from profiler.counters.copy_bandwidth import COUNTER, PASSES, WARM_UP, measure
from profiler.device import detect
from profiler.run import DeviceInfo
from tests.fake_runs import H200, THIS_CPU


class Clock:
    """CUDA events on a clock that each launched copy moves on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.launches = 0
        self.factor = iter([1.0] * 1000)

    def copy(self, moved: int, seconds: float) -> Traffic:
        def launch() -> None:
            self.launches += 1
            self.now += seconds * next(self.factor)

        return Traffic(launch, moved, "a copy")

    def event(self, enable_timing: bool) -> SimpleNamespace:
        made = SimpleNamespace(at=None)
        made.record = lambda: setattr(made, "at", self.now)
        made.elapsed_time = lambda end: (end.at - made.at) * 1e3
        return made


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    clock = Clock()
    monkeypatch.setattr(torch.cuda, "Event", clock.event)
    for name in ("_sleep", "synchronize", "empty_cache"):
        monkeypatch.setattr(torch.cuda, name, lambda *_: None)
    monkeypatch.setattr(copy_bandwidth, "hbm_copy", lambda size, device: clock.copy(2 * size, 2 * size / 4e12))
    within = {"l2_copy_bytes_per_second": 6e12, "l2_read_bytes_per_second": 7e12}
    makers = {
        name: lambda l2, sms, moved, device, rate=rate: clock.copy(moved, moved / rate) for name, rate in within.items()
    }
    monkeypatch.setattr(copy_bandwidth, "WITHIN_L2", makers)
    copy_bandwidth._measured.cache_clear()
    yield clock
    copy_bandwidth._measured.cache_clear()


def test_roofs_are_bytes_read_and_written_over_time(clock: Clock) -> None:
    hbm, l2, read = measure(Load(H200)).measurements
    assert (hbm.name, hbm.unit, hbm.source) == ("copy_bytes_per_second", "B/s", "cuda-event")
    assert hbm.value == pytest.approx(4e12) and hbm.spread == pytest.approx((4e12, 4e12))
    assert (l2.name, l2.value) == ("l2_copy_bytes_per_second", pytest.approx(6e12))
    assert (read.name, read.value) == ("l2_read_bytes_per_second", pytest.approx(7e12))
    assert hbm.note == "a copy; median of 10 after 3 to warm up, once in a worker process"
    assert [(name, unit) for name, unit, _ in COUNTER.quantities] == [(m.name, m.unit) for m in (hbm, l2, read)]


def test_a_slow_copy_does_not_move_the_median(clock: Clock) -> None:
    clock.factor = iter([*[1.0] * WARM_UP, 5.0, *[1.0] * 1000])
    hbm, *_ = measure(Load(H200)).measurements
    assert hbm.value == pytest.approx(4e12)


def test_they_are_measured_once_in_a_process(clock: Clock) -> None:
    first = measure(Load(H200))
    assert clock.launches == 3 * (WARM_UP + PASSES)
    assert measure(Load(H200)) is first and clock.launches == 3 * (WARM_UP + PASSES)
    measure(Load(replace(H200, device="cuda:1")))
    assert clock.launches == 6 * (WARM_UP + PASSES)


def test_a_smaller_copy_where_the_large_one_does_not_fit(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def full(size: int, device: str) -> Traffic:
        asked.append(size)
        if size > 2**28:
            raise torch.OutOfMemoryError
        return clock.copy(2 * size, 2 * size / 4e12)

    monkeypatch.setattr(copy_bandwidth, "hbm_copy", full)
    assert measure(Load(H200)).measurements[0].value == pytest.approx(4e12)
    assert asked == [2**30, 2**28]


def test_without_room_it_says_what_to_do_and_tries_again_later(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(size: int, device: str) -> Traffic:
        raise torch.OutOfMemoryError

    with monkeypatch.context() as held:
        held.setattr(copy_bandwidth, "hbm_copy", full)
        with pytest.raises(Unavailable, match="no room for a copy of 256 MiB"):
            measure(Load(H200))
    assert measure(Load(H200)).measurements[0].value == pytest.approx(4e12)


def test_an_l2_of_unknown_size_is_a_reason_and_no_guess(clock: Clock) -> None:
    hbm, l2, read = measure(Load(replace(H200, l2_bytes=None))).measurements
    assert hbm.value is not None and l2.value is None and read.value is None
    assert l2.note == read.note == "the size of its L2 is not known of NVIDIA H200"


def test_reasons_and_order() -> None:
    assert COUNTER.unavailable(H200) is None
    assert "no GPU here" in (COUNTER.unavailable(THIS_CPU) or "")
    assert COUNTER.order < 0, "NVML watches from order 0 on, and must see neither memory nor power of a copy"


@pytest.mark.gpu
def test_on_this_gpu() -> None:
    """A copy reaches most of the peak and never passes it; L2 is faster than HBM; no memory stays taken."""
    device = next(iter(detect()))
    torch.cuda.synchronize()
    copy_bandwidth._measured.cache_clear()
    before = torch.cuda.memory_reserved()
    begin = perf_counter()
    hbm, l2, read = measure(Load(device)).measurements
    print(f"\n{perf_counter() - begin:.3f} s\n{hbm}\n{l2}\n{read}")
    assert hbm.value is not None and l2.value is not None and read.value is not None
    if device.peak_hbm_bytes_per_second is not None:
        assert 0.7 * device.peak_hbm_bytes_per_second < hbm.value < device.peak_hbm_bytes_per_second
    assert min(l2.value, read.value) > 1.1 * hbm.value
    assert torch.cuda.memory_reserved() <= before


class Within(Load):
    """Work within L2 as a Load, for the counters."""

    l2, drain, launch_names, compulsory_bytes = "warm", False, ("within",), 0

    def __init__(self, device: DeviceInfo, traffic: Traffic) -> None:
        super().__init__(device)
        self.traffic = traffic

    def launch(self, hook: LaunchHook = nullcontext) -> None:
        with hook("within"):
            self.traffic.launch()


@pytest.mark.gpu
@pytest.mark.parametrize("name", copy_bandwidth.WITHIN_L2)
def test_what_stays_in_l2_crosses_to_the_sms_as_said_and_leaves_hbm_alone(name: str) -> None:
    """By the hardware's counters: the bytes said cross L2↔SM to within 3%, and HBM moves less than 5% of them."""
    device = next(iter(detect()))
    torch.cuda.synchronize()
    if reason := cupti_range.COUNTER.unavailable(device):
        pytest.skip(reason)
    assert device.l2_bytes is not None and device.sm_count is not None
    traffic = copy_bandwidth.WITHIN_L2[name](device.l2_bytes, device.sm_count, 2**31, device.device)
    found = {m.name: m.value for m in cupti_range.measure(Within(device, traffic)).measurements if m.launch is None}
    print(f"\n{name}: {traffic.moved:,} B said, counted {found}")
    assert found["l2_sm_bytes"] == pytest.approx(traffic.moved, rel=0.03)
    assert (found["hbm_read_bytes"] or 0) + (found["hbm_write_bytes"] or 0) < 0.05 * traffic.moved
