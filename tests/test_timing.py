"""Times by CUDA events, on a simulated GPU whose host takes time to queue: a pass, its launches, alone and counted."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from kernels.run import LaunchHook
from profiler import bench, counted_time
from profiler.counters import cuda_events
from profiler.cupti import chip as chip_module
from profiler.cupti import driver, ranges
from profiler.cupti.chip import chip_traffic
from profiler.device import cpu_device
from tests.fake_runs import H200
from tests.sampled_gpu import MS, Gpu, TwoLaunches
from tests.test_cupti_ranges import StandIn


@dataclass(frozen=True)
class Event:
    """A CUDA event that passes when the GPU has done what was queued before it."""

    gpu: Gpu
    passes_at: int

    def query(self) -> bool:
        return self.gpu.now >= self.passes_at

    def elapsed_time(self, end: "Event") -> float:
        """In ms, as torch's."""
        assert end.query(), "not yet there"
        return (end.passes_at - self.passes_at) / MS


@dataclass
class Timed(TwoLaunches):
    """Pass i: qk of 1 + i / 10 ms and pv of 0.5 ms; the host takes `queueing` ns for each, or slow[i]."""

    queueing: int = MS // 10
    slow: dict[int, int] = field(default_factory=dict)
    events: list[str] = field(default_factory=list)
    repeats = 4

    def launch(self, hook: LaunchHook = nullcontext) -> None:
        number = self.events.count("pass")
        self.events.append("pass")
        lasting = {"qk": MS + number * MS // 10, "pv": MS // 2}
        for name in self.launch_names:
            with hook(name):
                self.gpu.now += self.slow.get(number, self.queueing)
                self.gpu.run(lasting[name])

    def spin(self, cycles: int = bench.HEAD_STARTS_CYCLES[0]) -> None:
        self.events.append(f"spin {cycles:,}")
        super().spin(cycles)

    def evict_l2(self) -> None:
        self.events.append("evict")
        super().evict_l2()


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """Gives torch's events the clock of a simulated GPU."""
    gpu = Gpu()
    monkeypatch.setattr(bench, "_event", lambda: Event(gpu, max(gpu.now, gpu.free_at)))
    return gpu


# One pass.


def test_a_pass_is_queued_while_the_gpu_spins(gpu: Gpu) -> None:
    """1 + 0.5 ms. The host is done after 0.2 ms; the spin ends at 2.1."""
    load = Timed(gpu)
    one = load.timed_pass()
    assert not one.start.query(), "nothing waits for the GPU"
    load.synchronize()
    assert one.seconds == pytest.approx(1.5e-3)
    assert not one.waited
    assert load.events == ["evict", "spin 4,000,000", "pass"]


def test_warm_l2_is_prepared_by_a_pass_before_the_spin(gpu: Gpu) -> None:
    load = Timed(gpu, l2="warm")
    one = load.timed_pass()
    load.synchronize()
    assert one.seconds == pytest.approx(1.6e-3)
    assert load.events == ["pass", "spin 4,000,000", "pass"]


def test_a_host_that_is_too_slow_gets_a_longer_head_start_and_l2_is_prepared_anew(gpu: Gpu) -> None:
    """2.4 ms to queue: the spin of 2 ms is over, that of 16 is not. The second pass takes 1.1 + 0.5 ms."""
    load = Timed(gpu, queueing=12 * MS // 10)
    one = load.timed_pass()
    load.synchronize()
    assert one.seconds == pytest.approx(1.6e-3)
    assert not one.waited
    assert load.events == ["evict", "spin 4,000,000", "pass", "evict", "spin 32,000,000", "pass"]


def test_where_no_head_start_is_long_enough_the_last_pass_is_marked(gpu: Gpu) -> None:
    """The third spin begins at 400.6 ms and ends at 528.6; pv is queued at 600 and takes 0.5."""
    load = Timed(gpu, queueing=100 * MS)
    one = load.timed_pass()
    load.synchronize()
    assert one.waited
    assert one.seconds == pytest.approx(71.9e-3)
    spins = ("spin 4,000,000", "spin 32,000,000", "spin 256,000,000")
    assert load.events == [event for spin in spins for event in ("evict", spin, "pass")]


# Its launches.


def test_launches_have_times_of_their_own(gpu: Gpu) -> None:
    load = Timed(gpu)
    one, launches = load.timed_launches()
    load.synchronize()
    assert one.seconds == pytest.approx(1.5e-3)
    assert [(name, launch.seconds) for name, launch in launches] == [
        ("qk", pytest.approx(1e-3)),
        ("pv", pytest.approx(0.5e-3)),
    ]
    assert not one.waited and not any(launch.waited for _, launch in launches)
    assert load.events == ["evict", "spin 4,000,000", "pass"]


def test_launches_of_a_pass_that_waited_are_marked_too(gpu: Gpu) -> None:
    """As above: qk from 528.6 to 529.8 ms, then pv until 600.5."""
    load = Timed(gpu, queueing=100 * MS)
    one, launches = load.timed_launches()
    load.synchronize()
    assert [launch.seconds for _, launch in launches] == pytest.approx([1.2e-3, 70.7e-3])
    assert one.waited and all(launch.waited for _, launch in launches)


# The source.


def test_medians_of_the_pass_and_of_each_launch(gpu: Gpu) -> None:
    """Passes 0 to 2 warm up, 3 to 6 are timed as a whole, 7 to 11 by launch."""
    load = Timed(gpu)
    reading = cuda_events.measure(load)
    whole, qk, pv = reading.measurements
    assert (whole.launch, qk.launch, pv.launch) == (None, "qk", "pv")
    assert {(m.name, m.unit, m.source) for m in reading.measurements} == {("gpu_time_seconds", "s", "cuda-event")}
    assert reading.samples == {"gpu_time_seconds": pytest.approx((1.8e-3, 1.9e-3, 2.0e-3, 2.1e-3))}
    assert (whole.value, whole.spread) == (pytest.approx(1.95e-3), pytest.approx((1.86e-3, 2.04e-3)))
    assert (qk.value, qk.spread) == (pytest.approx(1.9e-3), pytest.approx((1.78e-3, 2.02e-3)))
    assert pv.value == pytest.approx(0.5e-3)
    assert whole.note == "median of 4 passes after 3 to warm up, cold L2"
    assert qk.note == pv.note == "median of 5 passes after 3 to warm up, cold L2 at the first launch"
    assert load.events.count("pass") == 12
    assert load.events.count("evict") == load.events.count("spin 4,000,000") == 9


def test_a_single_launch_is_the_pass(gpu: Gpu) -> None:
    load = Timed(gpu)
    load.launch_names = ("qk",)
    (whole,) = cuda_events.measure(load).measurements
    assert (whole.launch, whole.value) == (None, pytest.approx(1.45e-3))
    assert load.events.count("pass") == 7


def test_how_often_the_gpu_may_have_waited_is_said(gpu: Gpu) -> None:
    """Passes 3 to 5 are the three attempts at the first time."""
    load = Timed(gpu, slow=dict.fromkeys((3, 4, 5), 100 * MS))
    whole, qk, _ = cuda_events.measure(load).measurements
    assert whole.note.endswith("cold L2; in 1 of them the GPU may have waited for the host")
    assert "waited" not in qk.note
    load = Timed(gpu, queueing=100 * MS)
    whole, qk, _ = cuda_events.measure(load).measurements
    assert whole.note.endswith("in 4 of them the GPU may have waited for the host")
    assert qk.note.endswith("in 5 of them the GPU may have waited for the host")


def test_events_need_a_gpu() -> None:
    assert cuda_events.COUNTER.unavailable(H200) is None
    assert "no GPU" in str(cuda_events.COUNTER.unavailable(cpu_device()))


# Alone and counted.


@pytest.fixture
def attach(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[StandIn], Timed]]:
    """Puts a stand-in for CUPTI in front of a Load whose events are among its calls."""

    def attach(cupti: StandIn) -> Timed:
        for module in (chip_module, ranges):
            monkeypatch.setattr(module, "load", lambda: cupti)
        return Timed(gpu, events=cupti.calls)

    for module in (driver, ranges):
        monkeypatch.setattr(module, "current_context", lambda: (0xC0DE, 0))
    monkeypatch.setattr(ranges, "synchronize", gpu.synchronize)
    caches = (chip_module.chip_metrics, chip_traffic)
    for cache in caches:
        cache.cache_clear()
    yield attach
    for cache in caches:
        cache.cache_clear()


def test_passes_alone_and_counted_take_turns(attach) -> None:
    """Passes 0, 2 and 4 alone: 1.5, 1.7, 1.9 ms; 1, 3 and 5 counted: 1.6, 1.8, 2.0 ms."""
    cupti = StandIn()
    alone, counted = counted_time.counted_times(attach(cupti))
    assert (alone.source, alone.value) == ("cuda-event", pytest.approx(1.7e-3))
    assert (counted.source, counted.value) == ("cupti-range", pytest.approx(1.8e-3))
    assert {(m.name, m.unit, m.launch) for m in (alone, counted)} == {("gpu_time_seconds", "s", None)}
    assert "not counted" in alone.note and counted.note.endswith("median of 3, counted")
    calls = [call.removeprefix("cuptiRangeProfiler") for call in cupti.calls]
    turns = [call for call in calls if call in ("pass", "PushRange", "PopRange")]
    assert turns == 3 * ["pass", "PushRange", "pass", "PopRange"]
    assert calls.count("Enable") == calls.count("Disable") == 1
    assert cupti.still_open() == []


@pytest.mark.parametrize(("call", "code", "words"), [("Enable", 35, "cap-add SYS_ADMIN"), ("PushRange", 26, "DCGM")])
def test_where_nothing_can_be_counted_neither_has_a_time(attach, call: str, code: int, words: str) -> None:
    """One without the other would compare with nothing."""
    cupti = StandIn(fails={f"cuptiRangeProfiler{call}": code})
    found = counted_time.counted_times(attach(cupti))
    assert [(m.source, m.value) for m in found] == [("cuda-event", None), ("cupti-range", None)]
    assert all(words in m.note for m in found)
    assert set(cupti.still_open()) <= set(cupti.fails)
