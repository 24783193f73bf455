"""The counter of ranges on a stand-in for the GPU: totals, launches, the kernels' names, and kernels one by one."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext

import pytest
import torch

from kernels.problem import AttentionProblem
from profiler.bench import Bench
from profiler.child import describe
from profiler.counter import Unavailable, all_counters
from profiler.counters import cupti_range
from profiler.cupti import chip as chip_module
from profiler.cupti import driver, ranges, structs
from profiler.cupti.chip import chip_traffic
from profiler.cupti.launches import watched_launches
from profiler.cupti.ranges import RangeProfiler
from profiler.plausible import MAX_LAUNCHES
from profiler.run import LaunchedKernel
from profiler.workload import Workload
from tests.test_cupti_ranges import StandIn
from tests.test_launches import Library

RUN, DRAINED, DRAIN = (0, 1, 2), (3, 4), 5  # the numbers of the ranges that are no launch's
# On GH100 metric i of range n counts 100 · (i + 1) + n: read, written, sectors, ns, to the SMs, sectors read for them.
BYTES = ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes", "l2_to_sm_bytes", "l2_sm_read_bytes")


class Gpu(StandIn):
    """A GPU on which a launch makes kernels that CUPTI's callbacks tell, and ranges count.

    `written` is what ranges write above what a StandIn counts, by number.
    """

    def __init__(self, library: Library | None = None, written: dict[int, float] | None = None, **options) -> None:
        super().__init__(**options)
        self.library, self.written = library or Library(), written or {}

    def result_name(self, code: int) -> str:
        return "A_NAME"

    def launch(self, symbol: bytes = b"eviction") -> None:
        self.library.launch(symbol)
        super().launch()

    def call(self, params: structs.Params) -> structs.Params:
        super().call(params)
        if params.function == "cuptiProfilerHostEvaluateToGpuValues":
            params.pMetricValues[1] += self.written.get(int(self.pushed[-1 - params.rangeIndex]), 0.0)
        return params


class Work:
    """A Load of two launches, each of the kernels that are told, and one kernel between them where `between` is."""

    launch_names = ("qk", "pv")
    compulsory_bytes = 0

    def __init__(
        self,
        gpu: Gpu,
        qk: tuple[bytes, ...] = (b"nvjet_qk",),
        pv: tuple[bytes, ...] = (b"nvjet_pv",),
        between: tuple[bytes, ...] = (),
        l2: str = "cold",
        drain: bool = True,
    ) -> None:
        self.gpu, self.kernels, self.between = gpu, {"qk": qk, "pv": pv}, between
        self.l2, self.drain = l2, drain
        self.events: list[str] = []

    def evict_l2(self) -> None:
        self.events.append("evict")
        self.gpu.launch()

    def prepare_l2(self) -> None:
        self.events.append("prepare")
        self.gpu.launch()

    def launch(self, hook=nullcontext) -> None:
        self.events.append("pass")
        for name in self.launch_names:
            with hook(name):
                for symbol in self.kernels[name]:
                    self.gpu.launch(symbol)
            if name == "qk":
                for symbol in self.between:
                    self.gpu.launch(symbol)


@pytest.fixture
def attach(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Gpu], Gpu]]:
    """Puts a Gpu where the counter looks for CUPTI."""

    def attach(gpu: Gpu) -> Gpu:
        for module in (chip_module, ranges):
            monkeypatch.setattr(module, "load", lambda: gpu)
        return gpu

    for module in (driver, ranges):
        monkeypatch.setattr(module, "current_context", lambda: (0xC0DE, 0))
    monkeypatch.setattr(ranges, "synchronize", lambda: None)
    caches = (chip_module.chip_metrics, chip_traffic)
    for cache in caches:
        cache.cache_clear()
    yield attach
    for cache in caches:
        cache.cache_clear()


def found(reading, launch: str | None = None) -> dict[str, float]:
    counted = {m.name: m.value for m in reading.measurements if m.launch == launch}
    return {name: value for name, value in counted.items() if name != "kernels_launched"}


def test_totals_are_medians_and_writes_those_until_the_drain(attach) -> None:
    """Written: 1 GB + 203 B and 2 GB + 204 B, each less 206 B, the middle of three drains alone."""
    gpu = attach(Gpu(written={DRAINED[0]: 1e9, DRAINED[1]: 2e9}))
    reading = cupti_range.measure(Work(gpu))
    whole = {m.name: m for m in reading.measurements if m.launch is None}
    assert found(reading) == {
        "hbm_read_bytes": 101.0,
        "hbm_write_bytes": 1_499_999_997.5,
        "l2_sm_bytes": 301 * 32.0,
        "l2_to_sm_bytes": 501.0,
        "l2_sm_read_bytes": 601 * 32.0,
    }
    assert reading.samples == {
        "hbm_read_bytes": (100.0, 101.0, 102.0),
        "hbm_write_bytes": (999_999_997.0, 1_999_999_998.0),
        "l2_sm_bytes": (300 * 32.0, 301 * 32.0, 302 * 32.0),
    }
    assert whole["hbm_read_bytes"].spread == pytest.approx((100.4, 101.6))
    assert whole["hbm_read_bytes"].note == "dram read bytes, cold L2, median of 3 passes"
    assert whole["hbm_write_bytes"].note == (
        "dram write bytes until L2 holds no dirty line, cold L2, median of 2 passes"
    )
    assert {m.source for m in reading.measurements} == {"cupti-range", "cupti-callback"}
    assert gpu.still_open() == []


def test_what_runs_and_in_which_order(attach) -> None:
    work = Work(attach(Gpu()))
    cupti_range.measure(work)
    whole, drained = ["prepare", "pass"], ["prepare", "pass", "evict"]
    assert work.events == ["evict", *3 * whole, *2 * drained, *3 * ["prepare", "evict"], "prepare", "pass"]


def test_without_the_drain_writes_end_with_the_pass(attach) -> None:
    """Ranges 0 to 2 are whole passes, 3 and 4 the launches: 201 B is the median."""
    work = Work(attach(Gpu()), l2="warm", drain=False)
    reading = cupti_range.measure(work)
    assert found(reading)["hbm_write_bytes"] == 201.0
    assert found(reading, "qk")["hbm_write_bytes"] == 203.0
    assert "without what it wrote and L2 still holds, warm L2, median of 3 passes" in reading.measurements[1].note
    assert work.events == ["evict", *4 * ["prepare", "pass"]]


def test_launches_are_counted_and_named_in_the_same_pass(attach) -> None:
    """Ranges 8 and 9; a range's own time is not a launch's."""
    gpu = attach(Gpu())
    work = Work(gpu)
    reading = cupti_range.measure(work)
    assert found(reading, "qk") == dict(zip(BYTES, (108.0, 208.0, 308 * 32.0, 508.0, 608 * 32.0), strict=True))
    assert found(reading, "pv") == dict(zip(BYTES, (109.0, 209.0, 309 * 32.0, 509.0, 609 * 32.0), strict=True))
    assert reading.kernels == (LaunchedKernel("qk", "nvjet_qk"), LaunchedKernel("pv", "nvjet_pv"))
    assert reading.measurements[-1].value == 2.0 and reading.measurements[-1].name == "kernels_launched"
    assert gpu.calls.count("cuptiRangeProfilerEnable") == 1
    assert gpu.library.calls == ["subscribe", "unsubscribe"]


def test_a_launch_of_several_kernels_is_counted_kernel_by_kernel(attach) -> None:
    """By automatic ranges 1 and 2 of one more pass, beside the launches; only kernels have a time: 401 and 402 ns."""
    gpu = attach(Gpu())
    work = Work(gpu, pv=(b"split_k", b"reduce"))
    reading = cupti_range.measure(work)
    assert {m.launch for m in reading.measurements} == {None, "qk", "pv", "pv, kernel 1", "pv, kernel 2"}
    assert (found(reading, "qk")["hbm_read_bytes"], found(reading, "pv")["hbm_read_bytes"]) == (108.0, 109.0)
    for number in (1, 2):
        bytes_of = (100.0 + number, 200.0 + number, (300 + number) * 32.0, 500.0 + number, (600 + number) * 32.0)
        timed = dict(zip(BYTES, bytes_of, strict=True)) | {"gpu_time_seconds": pytest.approx((400 + number) * 1e-9)}
        assert found(reading, f"pv, kernel {number}") == timed
    assert reading.kernels == (
        LaunchedKernel("qk", "nvjet_qk"),
        LaunchedKernel("pv, kernel 1", "split_k"),
        LaunchedKernel("pv, kernel 2", "reduce"),
    )
    assert reading.measurements[-1].value == 3.0
    assert found(reading)["hbm_read_bytes"] == 101.0, "the whole is that of the passes"
    assert work.events[-4:] == ["prepare", "pass", "prepare", "pass"]
    calls = [call for call in gpu.calls if call.endswith(("ProfilerEnable", "ProfilerDisable"))]
    assert calls == 2 * ["cuptiRangeProfilerEnable", "cuptiRangeProfilerDisable"]
    assert gpu.still_open() == []


def test_a_kernel_between_the_launches_is_named_without_one(attach) -> None:
    gpu = attach(Gpu())
    reading = cupti_range.measure(Work(gpu, between=(b"mask",)))
    assert reading.kernels == (
        LaunchedKernel("qk", "nvjet_qk"),
        LaunchedKernel("", "mask"),
        LaunchedKernel("pv", "nvjet_pv"),
    )
    assert {m.launch for m in reading.measurements} == {None, "qk", "pv"}


def test_beside_another_profiler_it_counts_without_names(attach) -> None:
    gpu = attach(Gpu(Library(subscribe=39)))
    work = Work(gpu, pv=(b"split_k", b"reduce"))
    reading = cupti_range.measure(work)
    assert reading.kernels == ()
    assert all(m.name != "kernels_launched" for m in reading.measurements)
    assert found(reading, "pv")["hbm_read_bytes"] == 109.0
    assert work.events.count("pass") == 3 + 2 + 1
    assert gpu.still_open() == []


@pytest.mark.parametrize(
    ("library", "fails", "words"),
    [
        (Library(subscribe=1), {}, "cuptiSubscribe answered A_NAME, 1"),
        (Library(enable_477=7), {}, "cuptiEnableCallback answered A_NAME, 7"),
        (Library(), {"cuptiRangeProfilerEnable": 35}, "cap-add SYS_ADMIN"),
        (Library(), {"cuptiRangeProfilerPushRange": 26}, "DCGM"),
    ],
)
def test_what_goes_wrong_is_the_reason(attach, library: Library, fails: dict[str, int], words: str) -> None:
    gpu = attach(Gpu(library, fails=fails))
    with pytest.raises(Unavailable, match=words):
        cupti_range.measure(Work(gpu))
    assert set(gpu.still_open()) <= set(fails)
    assert library.calls in ([], ["subscribe"], ["subscribe", "unsubscribe"])


def test_a_kernel_that_comes_only_once_costs_no_number_and_takes_none(attach) -> None:
    """The last pass makes one kernel fewer than the one whose kernels were named: launches stay as counted."""
    gpu = attach(Gpu())
    work = Work(gpu, pv=(b"split_k", b"reduce"))

    def launch(hook=nullcontext) -> None:
        if work.events.count("pass") == 6:
            work.kernels["pv"] = (b"whole",)
        Work.launch(work, hook)

    work.launch = launch
    reading = cupti_range.measure(work)
    assert [m.launch for m in reading.measurements if m.name == "hbm_read_bytes"] == [None, "qk", "pv"]
    assert [kernel.kernel for kernel in reading.kernels] == ["nvjet_qk", "split_k", "reduce"]
    assert gpu.still_open() == []


def test_other_kernels_of_the_same_number_take_no_names(attach) -> None:
    """2 + 1 kernels are seen, then 3 + 0: nobody knows whose bytes would be whose."""
    gpu = attach(Gpu())
    work = Work(gpu, qk=(b"a", b"b"), pv=(b"c",))

    def launch(hook=nullcontext) -> None:
        if work.events.count("pass") == 6:
            work.kernels = {"qk": (b"a", b"b", b"c"), "pv": ()}
        Work.launch(work, hook)

    work.launch = launch
    reading = cupti_range.measure(work)
    assert {m.launch for m in reading.measurements} == {None, "qk", "pv"}
    assert [(kernel.launch, kernel.kernel) for kernel in reading.kernels] == [("qk", "a"), ("qk", "b"), ("pv", "c")]


def test_more_kernels_than_a_run_can_hold_are_not_counted_one_by_one(attach) -> None:
    gpu = attach(Gpu())
    reading = cupti_range.measure(Work(gpu, pv=(b"k",) * MAX_LAUNCHES))
    assert {m.launch for m in reading.measurements} == {None, "qk", "pv"}
    assert len(reading.kernels) == MAX_LAUNCHES
    assert gpu.calls.count("cuptiRangeProfilerEnable") == 1


@pytest.mark.parametrize("drain", [True, False])
def test_an_unsubscription_that_fails_counts_no_launch_twice(attach, drain: bool) -> None:
    gpu = attach(Gpu(Library(unsubscribe=39)))
    reading = cupti_range.measure(Work(gpu, drain=drain))
    assert [m.launch for m in reading.measurements if m.name == "hbm_read_bytes"] == [None, "qk", "pv"]
    assert len(reading.kernels) == 2


def test_a_drain_alone_that_somebody_disturbed_is_outvoted_and_three_are_no_number(attach) -> None:
    """Passes wrote 1 GB; one drain of three shows 3 GB more, then all."""
    passes = {DRAINED[0]: 1e9, DRAINED[1]: 1e9}
    reading = cupti_range.measure(Work(attach(Gpu(written=passes | {5: 3e9}))))
    assert found(reading)["hbm_write_bytes"] == pytest.approx(1e9, abs=10)
    reading = cupti_range.measure(Work(attach(Gpu(written=passes | {5: 3e9, 6: 3e9, 7: 3e9}))))
    (whole,) = [m for m in reading.measurements if (m.name, m.launch) == ("hbm_write_bytes", None)]
    assert whole.value is None
    assert whole.note.startswith("a drain alone wrote 3,000,000,206 B, and a pass with its drain 1,000,000,204 B: ")
    assert "hbm_write_bytes" not in reading.samples and found(reading)["hbm_read_bytes"] == 101.0


@pytest.mark.parametrize(
    ("l2", "drain", "is_told"), [("cold", True, True), ("warm", True, False), ("cold", False, False)]
)
def test_counters_that_do_not_count_give_no_number(attach, l2: str, drain: bool, is_told: bool) -> None:
    """Some 100 B of the 1,000,000 that must move with a cold L2."""
    work = Work(attach(Gpu()), l2=l2, drain=drain)
    work.compulsory_bytes = 1_000_000
    whole = {m.name: m for m in cupti_range.measure(work).measurements if m.launch is None}
    for name in ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes"):
        assert (whole[name].value is None) == is_told
        assert ("B were counted of 1,000,000 B that a pass must move with a cold L2" in whole[name].note) == is_told
    assert whole["l2_to_sm_bytes"].value == 501.0


def test_the_counter_is_found() -> None:
    counter = next(counter for counter in all_counters() if counter.name == "cupti_range")
    assert (counter.order, counter.phase, counter.is_slow) == (40, "count", False)
    assert [name for name, *_ in counter.quantities] == ["hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes"]


# On a GPU.


@pytest.mark.gpu
@torch.inference_mode()
def test_automatic_ranges_are_the_named_kernels_and_together_the_whole() -> None:
    device = describe("cuda:0")
    if reason := cupti_range.COUNTER.unavailable(device):
        pytest.skip(reason)
    problem = AttentionProblem(1, 16, 16, 4096, 4096, 128, "bfloat16")
    load = Bench(Workload("naive", problem, None, "cuda:0"), device)
    load.launch()
    with watched_launches() as seen:
        load.launch()
    load.evict_l2()
    traffic = chip_traffic()
    with RangeProfiler((traffic.read,)) as profiler:
        each = profiler.collect_kernels(load.launch, len(seen.kernels), prepare=load.prepare_l2)
    with RangeProfiler((traffic.read,)) as profiler, profiler.collecting() as collected:
        load.prepare_l2()
        with collected.range("run"):
            load.launch()
    assert len(each) == len(seen.kernels)
    ((_, whole),) = collected.values
    assert sum(one[traffic.read] for one in each) == pytest.approx(whole[traffic.read], rel=0.01)
    # The scores are 16 · 4096² · 2 B = 537 MB; scale, softmax and pv read them.
    assert whole[traffic.read] > 3 * 0.9 * 16 * 4096**2 * 2
