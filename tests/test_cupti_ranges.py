"""CUPTI's target half against a stand-in for the GPU: the order of the calls, and that nothing stays open."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from profiler.cupti import ranges, structs
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
    """The real host half on a GH100, and a target half that records its calls and counts 100, 101, ... bytes.

    `fails` maps the name of a call to the CUptiResult that it answers; `drops` is how many ranges it loses.
    """

    def __init__(self, fails: dict[str, int] | None = None, drops: int = 0) -> None:
        self.real = load()
        self.path, self.version = self.real.path, self.real.version
        self.fails, self.drops = fails or {}, drops
        self.calls: list[str] = []
        self.pushed: list[bytes] = []

    def call(self, params: structs.Params) -> structs.Params:
        function = params.function
        self.calls.append(function)
        if function in self.fails:
            raise CuptiError(explain(self.fails[function], function, "A_NAME"), self.fails[function])
        match function:
            case "cuptiDeviceGetChipName":
                params.pChipName = b"GH100"
            case "cuptiRangeProfilerEnable":
                assert params.ctx == 0xC0DE
                params.pRangeProfilerObject = 0xF00D
            case "cuptiRangeProfilerGetCounterDataSize":
                params.counterDataSize = 64
            case "cuptiRangeProfilerStart":
                self.pushed = []
            case "cuptiRangeProfilerPushRange":
                self.pushed.append(params.pRangeName)
            case "cuptiRangeProfilerDecodeData":
                params.numOfRangeDropped = self.drops
            case "cuptiRangeProfilerGetCounterDataInfo":
                params.numTotalRanges = len(self.pushed) - self.drops
            case "cuptiRangeProfilerCounterDataGetRangeInfo":
                # Last first: CUPTI promises no order.
                params.rangeName = self.pushed[-1 - params.rangeIndex]
            case "cuptiProfilerHostEvaluateToGpuValues":
                position = int(self.pushed[-1 - params.rangeIndex])
                params.pMetricValues[0] = 100 + position
                params.pMetricValues[1] = float("nan") if self.fails.get("nan") else 200 + position
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
    monkeypatch.setattr(ranges, "current_context", lambda: (0xC0DE, 0))
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
