"""CUPTI's target half against a stand-in for the GPU: the order of the calls, and that nothing stays open."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from profiler.cupti import driver, ranges, structs
from profiler.cupti.library import CuptiError, explain, load
from profiler.cupti.ranges import RangeProfiler

METRICS = ("dram__bytes_read.sum", "dram__bytes_write.sum")
OPENED = {
    "cuptiRangeProfilerEnable": "cuptiRangeProfilerDisable",
    "cuptiRangeProfilerStart": "cuptiRangeProfilerStop",
    "cuptiRangeProfilerPushRange": "cuptiRangeProfilerPopRange",
    "cuptiProfilerHostInitialize": "cuptiProfilerHostDeinitialize",
}


class StandIn:
    """The real host half on `chip`, and a target half that records its calls and counts 100, 101, ... bytes.

    `fails` maps the name of a call to the CUptiResult that it answers; `drops` is how many ranges it loses; `passes`
    how many it wants, and `announced` how many its host half says it will, both where the real one would say 1.
    """

    def __init__(
        self,
        fails: dict[str, int] | None = None,
        drops: int = 0,
        passes: int = 1,
        announced: int | None = None,
        chip: str = "GH100",
    ) -> None:
        self.real = load()
        self.path, self.version = self.real.path, self.real.version
        self.fails, self.drops, self.passes = fails or {}, drops, passes
        self.announced = announced or passes
        self.chip = chip
        self.calls: list[str] = []
        self.pushed: list[bytes] = []
        self.is_automatic = self.is_started = False

    def launch(self) -> None:
        """A kernel on the GPU: a range of its own where ranges are automatic."""
        self.calls.append("kernel")
        if self.is_automatic and self.is_started:
            self.pushed.append(str(len(self.pushed)).encode())

    def call(self, params: structs.Params) -> structs.Params:
        function = params.function
        self.calls.append(function)
        if function in self.fails:
            raise CuptiError(explain(self.fails[function], function, "A_NAME"), self.fails[function])
        match function:
            case "cuptiDeviceGetChipName":
                params.pChipName = self.chip.encode()
            case "cuptiRangeProfilerEnable":
                assert params.ctx == 0xC0DE
                params.pRangeProfilerObject = 0xF00D
            case "cuptiRangeProfilerGetCounterDataSize":
                params.counterDataSize = 64
            case "cuptiRangeProfilerSetConfig":
                assert (params.replayMode, params.passIndex) == (3, 0)
                self.is_automatic = {1: True, 2: False}[params.range]
                self.passes_done, self.room = 0, params.maxRangesPerPass
            case "cuptiRangeProfilerStart":
                self.pushed, self.is_started = [], True
            case "cuptiRangeProfilerStop":
                self.passes_done += 1
                self.is_started = False
                params.passIndex, params.targetNestingLevel = self.passes_done, 1
                params.isAllPassSubmitted = self.passes_done >= self.passes
            case "cuptiRangeProfilerPushRange":
                self.pushed.append(params.pRangeName)
            case "cuptiRangeProfilerDecodeData":
                self.drops = max(self.drops, len(self.pushed) - self.room)
                params.numOfRangeDropped = self.drops
            case "cuptiRangeProfilerGetCounterDataInfo":
                params.numTotalRanges = len(self.pushed) - self.drops
            case "cuptiRangeProfilerCounterDataGetRangeInfo":
                # Last first: CUPTI promises no order.
                params.rangeName = self.pushed[-1 - params.rangeIndex]
            case "cuptiProfilerHostEvaluateToGpuValues":
                position = int(self.pushed[-1 - params.rangeIndex])
                for metric in range(params.numMetrics):
                    params.pMetricValues[metric] = 100 * (metric + 1) + position
                if self.fails.get("nan"):
                    params.pMetricValues[1] = float("nan")
            case "cuptiProfilerHostGetNumOfPasses" if self.announced > 1:
                params.numOfPasses = self.announced
            case _ if function.startswith("cuptiProfilerHost"):
                self.real.call(params)
        return params

    def still_open(self) -> list[str]:
        return [begin for begin, end in OPENED.items() if self.calls.count(begin) != self.calls.count(end)]


@contextmanager
def collecting(cupti: StandIn, max_ranges: int = 16) -> Iterator[ranges.Ranges]:
    with RangeProfiler(METRICS, max_ranges, cupti) as profiler, profiler.collecting() as collected:
        yield collected


@pytest.fixture(autouse=True)
def context(monkeypatch):
    for module in (driver, ranges):
        monkeypatch.setattr(module, "current_context", lambda: (0xC0DE, 0))
    monkeypatch.setattr(ranges, "synchronize", lambda: None)


def test_values_come_in_the_order_of_the_ranges_also_for_a_name_that_comes_twice():
    cupti = StandIn()
    with collecting(cupti) as collected:
        for name in ("qk", "softmax", "qk"):
            with collected.range(name):
                pass
        assert collected.values == []
    assert collected.values == [
        ("qk", {"dram__bytes_read.sum": 100.0, "dram__bytes_write.sum": 200.0}),
        ("softmax", {"dram__bytes_read.sum": 101.0, "dram__bytes_write.sum": 201.0}),
        ("qk", {"dram__bytes_read.sum": 102.0, "dram__bytes_write.sum": 202.0}),
    ]
    assert cupti.still_open() == []


def test_the_target_calls_come_in_cuptis_order():
    cupti = StandIn()
    with collecting(cupti) as collected, collected.range("run"):
        pass
    prefix = "cuptiRangeProfiler"
    order = [call.removeprefix(prefix) for call in cupti.calls if call.startswith(prefix)]
    assert cupti.calls[0] == "cuptiProfilerInitialize"
    assert order == [
        "Enable",
        "GetCounterDataSize",
        "CounterDataImageInitialize",
        "SetConfig",
        "Start",
        "PushRange",
        "PopRange",
        "Stop",
        "DecodeData",
        "GetCounterDataInfo",
        "CounterDataGetRangeInfo",
        "Disable",
    ]


def test_each_range_waits_for_the_gpu_before_it_opens_and_before_it_closes(monkeypatch):
    cupti = StandIn()
    monkeypatch.setattr(ranges, "synchronize", lambda: cupti.calls.append("synchronize"))
    with collecting(cupti) as collected, collected.range("run"):
        cupti.calls.append("work")
    start = cupti.calls.index("cuptiRangeProfilerStart")
    assert cupti.calls[start + 1 : start + 6] == [
        "synchronize",
        "cuptiRangeProfilerPushRange",
        "work",
        "synchronize",
        "cuptiRangeProfilerPopRange",
    ]


def test_a_profiler_collects_any_number_of_times():
    with RangeProfiler(METRICS, cupti=StandIn()) as profiler:
        for _ in range(3):
            with profiler.collecting() as collected, collected.range("run"):
                pass
            assert [name for name, _ in collected.values] == ["run"]


def test_too_many_ranges_and_nested_ranges_are_refused_and_everything_is_closed():
    cupti = StandIn()
    with (
        pytest.raises(CuptiError, match="max_ranges, 1; raise max_ranges"),
        collecting(cupti, max_ranges=1) as collected,
    ):
        for name in ("one", "two"):
            with collected.range(name):
                pass
    with (
        pytest.raises(CuptiError, match="inner opens inside outer"),
        collecting(cupti) as collected,
        collected.range("outer"),
        collected.range("inner"),
    ):
        pass
    assert cupti.still_open() == []


def test_metrics_of_two_passes_are_refused_before_the_gpu_is_touched():
    cupti = StandIn()
    two_passes = ("lts__t_sectors_srcunit_tex.sum", "lts__t_sector_hit_rate.pct", *METRICS)
    with pytest.raises(CuptiError, match="need 2 passes on GH100"), RangeProfiler(two_passes, cupti=cupti):
        pass
    assert "cuptiRangeProfilerEnable" not in cupti.calls
    assert cupti.still_open() == []


@pytest.mark.parametrize(
    "call", ["Enable", "GetCounterDataSize", "SetConfig", "Start", "PushRange", "DecodeData", "Stop"]
)
def test_a_failing_call_reaches_the_caller_and_everything_else_is_closed(call):
    cupti = StandIn(fails={f"cuptiRangeProfiler{call}": 35})
    with (
        pytest.raises(CuptiError, match="cap-add SYS_ADMIN") as caught,
        collecting(cupti) as collected,
        collected.range("run"),
    ):
        pass
    assert caught.value.code == 35
    assert set(cupti.still_open()) <= {f"cuptiRangeProfiler{call}"}


def test_the_bodys_error_comes_through_even_where_cupti_fails_after_it():
    cupti = StandIn(fails={f"cuptiRangeProfiler{call}": 7 for call in ("PopRange", "Stop", "Disable")})
    with pytest.raises(ZeroDivisionError), collecting(cupti) as collected, collected.range("run"):
        raise ZeroDivisionError
    assert cupti.still_open() == []


def test_a_range_that_cupti_lost_and_a_value_that_it_lacks_are_errors_not_zeros():
    for cupti, words in (
        (StandIn(drops=1), "counted 0 of 1 ranges and dropped 1"),
        (StandIn(fails={"nan": 1}), "no value for dram__bytes_write.sum"),
    ):
        with pytest.raises(CuptiError, match=words), collecting(cupti) as collected, collected.range("run"):
            pass
        assert cupti.still_open() == []


def three_passes(cupti: StandIn, work, **options) -> list[tuple[str, dict[str, float]]]:
    with RangeProfiler(METRICS, cupti=cupti, passes_allowed=True, **options) as profiler:
        assert profiler.passes == 3
        return profiler.collect(work)


def test_a_set_of_three_passes_runs_the_work_three_times_and_configures_once():
    cupti = StandIn(passes=3)

    def work(collected: ranges.Ranges) -> None:
        cupti.calls.append("evict")
        for name in ("qk", "softmax"):
            with collected.range(name):
                cupti.launch()

    values = three_passes(cupti, work)
    one_pass = ["Start", "evict", *2 * ["PushRange", "kernel", "PopRange"], "Stop"]
    calls = [call.removeprefix("cuptiRangeProfiler") for call in cupti.calls]
    begin = calls.index("SetConfig") + 1
    assert calls[begin : begin + 3 * len(one_pass) + 1] == [*3 * one_pass, "DecodeData"]
    assert (calls.count("SetConfig"), calls.count("Start")) == (1, 3)
    assert values == [
        ("qk", {"dram__bytes_read.sum": 100.0, "dram__bytes_write.sum": 200.0}),
        ("softmax", {"dram__bytes_read.sum": 101.0, "dram__bytes_write.sum": 201.0}),
    ]
    assert cupti.still_open() == []


def test_passes_without_an_end_are_an_error_with_a_sentence():
    cupti = StandIn(passes=99, announced=3)
    times = []
    with pytest.raises(CuptiError, match=r"need 3 passes on GH100, and CUPTI still wants pass 3 at nesting level 1"):
        three_passes(cupti, times.append)
    assert len(times) == 3
    assert cupti.still_open() == []


def test_a_set_of_several_passes_has_no_place_in_a_collection_of_one():
    cupti = StandIn(passes=3)
    with (
        pytest.raises(CuptiError, match="need 3 passes on GH100"),
        RangeProfiler(METRICS, cupti=cupti, passes_allowed=True) as profiler,
        profiler.collecting(),
    ):
        pytest.fail("the collection began")
    assert "cuptiRangeProfilerSetConfig" not in cupti.calls
    assert cupti.still_open() == []


def test_work_that_opens_other_ranges_in_a_later_pass_is_an_error():
    cupti = StandIn(passes=3)
    names = iter(["qk", "qk", "softmax"])

    def work(collected: ranges.Ranges) -> None:
        with collected.range(next(names)):
            pass

    with pytest.raises(CuptiError, match="opened other ranges in one pass than in the next"):
        three_passes(cupti, work)
    assert cupti.still_open() == []


def test_a_range_lost_in_several_passes_and_one_too_many_are_errors():
    def two(collected: ranges.Ranges) -> None:
        for name in ("one", "two"):
            with collected.range(name):
                pass

    for options, cupti, words in (
        ({}, StandIn(passes=3, drops=1), "counted 1 of 2 ranges and dropped 1"),
        ({"max_ranges": 1}, StandIn(passes=3), "one more than max_ranges, 1"),
    ):
        with pytest.raises(CuptiError, match=words):
            three_passes(cupti, two, **options)
        assert cupti.still_open() == []


@pytest.mark.parametrize("call", ["SetConfig", "Start", "PushRange", "PopRange", "Stop", "DecodeData", "Disable"])
def test_a_call_that_fails_in_a_collection_of_passes_reaches_the_caller(call):
    cupti = StandIn(fails={f"cuptiRangeProfiler{call}": 26}, passes=3)

    def work(collected: ranges.Ranges) -> None:
        with collected.range("run"):
            pass

    with pytest.raises(CuptiError, match="DCGM") as caught:
        three_passes(cupti, work)
    assert caught.value.code == 26
    assert set(cupti.still_open()) <= {f"cuptiRangeProfiler{call}"}


def test_work_that_fails_in_its_second_pass_ends_the_collection_and_the_next_one_starts_afresh():
    cupti = StandIn(passes=3)
    times = []

    def work(_: ranges.Ranges) -> None:
        times.append(None)
        if len(times) == 2:
            raise ZeroDivisionError

    with RangeProfiler(METRICS, cupti=cupti, passes_allowed=True) as profiler:
        with pytest.raises(ZeroDivisionError):
            profiler.collect(work)
        assert profiler.collect(work) == []
    assert len(times) == 5
    assert cupti.still_open() == []


def kernels(cupti: StandIn, ran: int, count: int) -> list[dict[str, float]]:
    def work() -> None:
        for _ in range(ran):
            cupti.launch()

    with RangeProfiler(METRICS, cupti=cupti, passes_allowed=True) as profiler:
        return profiler.collect_kernels(work, count, prepare=cupti.launch)


def test_each_kernel_is_a_range_in_the_order_of_the_launches():
    cupti = StandIn()
    values = kernels(cupti, ran=20, count=20)
    # Number 10 comes after 9 and not after 1: names are numbers, not texts.
    assert [found["dram__bytes_read.sum"] for found in values] == [100.0 + number for number in range(20)]
    assert not {"cuptiRangeProfilerPushRange", "cuptiRangeProfilerPopRange"} & set(cupti.calls)
    assert cupti.still_open() == []


def test_what_prepares_a_pass_of_kernels_runs_before_its_start_and_is_waited_for(monkeypatch):
    cupti = StandIn(passes=3)
    monkeypatch.setattr(ranges, "synchronize", lambda: cupti.calls.append("synchronize"))
    assert len(kernels(cupti, ran=2, count=2)) == 2
    calls = [call.removeprefix("cuptiRangeProfiler") for call in cupti.calls]
    begin = calls.index("SetConfig") + 1
    one_pass = ["kernel", "synchronize", "Start", "kernel", "kernel", "synchronize", "Stop"]
    assert calls[begin : begin + 3 * len(one_pass) + 1] == [*3 * one_pass, "DecodeData"]


@pytest.mark.parametrize(
    ("ran", "told"), [(3, "counted 3 of 4"), (5, "counted 5 of 4"), (17, "counted 16 of 4 kernels and dropped 1")]
)
def test_more_or_fewer_kernels_than_were_seen_before_are_an_error(ran, told):
    cupti = StandIn()
    with pytest.raises(CuptiError, match=f"{told}.*The work must launch the same kernels each time"):
        kernels(cupti, ran=ran, count=4)
    assert cupti.still_open() == []


def test_a_lost_kernel_is_an_error():
    cupti = StandIn(drops=1)
    with pytest.raises(CuptiError, match="counted 3 of 4 kernels and dropped 1"):
        kernels(cupti, ran=4, count=4)
    assert cupti.still_open() == []


def test_kernels_of_one_number_are_an_error():
    cupti = StandIn()

    def work() -> None:
        cupti.pushed = [b"0", b"0"]

    with (
        pytest.raises(CuptiError, match="gave 2 kernels 1 numbers"),
        RangeProfiler(METRICS, cupti=cupti) as profiler,
    ):
        profiler.collect_kernels(work, 2)
    assert cupti.still_open() == []


def test_a_pass_of_kernels_that_fails_closes_everything():
    cupti = StandIn()

    def fail() -> None:
        raise ZeroDivisionError

    with RangeProfiler(METRICS, cupti=cupti) as profiler, pytest.raises(ZeroDivisionError):
        profiler.collect_kernels(fail, 1)
    assert cupti.still_open() == []
