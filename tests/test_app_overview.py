"""The overview's own pictures and tables: launches, and the GPU while it was measured."""

from dataclasses import replace

from app.kinds_chart import kinds_chart
from app.launch_stacks import launch_stacks
from app.picture import Picture, Table
from app.running_table import while_it_ran
from app.selection import compare
from app.style import LIGHT
from app.views import overview
from profiler.run import Measurement, Run
from tests.fake_runs import cpu_run, flash_run, naive_run


def with_readings(run: Run) -> Run:
    readings = (
        Measurement("power_watts", 408.6, "W", "nvml", "mean over the run; 40 samples"),
        Measurement("sm_clock_hertz", 1.98e9, "Hz", "nvml", "median over the run; 40 samples"),
        Measurement("temperature_celsius", None, "°C", "nvml", "NVML gives no temperature here."),
        Measurement("nvml_memory_used_bytes", 2.5 * 2**30, "B", "nvml"),
    )
    return replace(run, measurements=(*run.measurements, *readings))


def test_readings_while_it_ran_or_why_there_are_none() -> None:
    table = while_it_ran(compare((with_readings(naive_run()), flash_run())))
    assert table is not None
    assert table.rows[0] == ("naive", "409 W", "1.98 GHz", "–", "–", "2.50 GiB", "nvml")
    assert table.rows[1] == ("flash", "–", "–", "–", "–", "–", "nvml")
    assert table.reasons[0][3:5] == ("This Run does not hold it.", "NVML gives no temperature here.")
    assert while_it_ran(compare((cpu_run(),))) is None


def test_large_pieces_name_their_direction_and_no_legend_repeats_it() -> None:
    parts = {"read": {"qk": 1e9, "pv": 20e9}, "write": {"qk": 19e9, "pv": 0.5e9}}
    read, write, totals = launch_stacks(parts, "HBM bytes", True, LIGHT).data
    assert (tuple(read.text), tuple(write.text)) == (("", "read"), ("write", ""))
    assert not read.showlegend and not write.showlegend
    assert tuple(totals.text) == ("20.0 GB", "20.5 GB")


def test_hatched_pieces_need_a_legend() -> None:
    read, _ = launch_stacks({"read": {"qk": 1e9}}, "requested bytes", False, LIGHT).data
    assert tuple(read.text) == ("",) and read.showlegend


def test_hbm_bytes_are_spelled_as_in_the_sentence_above() -> None:
    comparison = compare((naive_run(), flash_run()))
    found = kinds_chart("Four kinds", "", comparison, LIGHT, one_unit="HBM")
    texts = [text for trace in found.chart.data if trace.type == "scatter" for text in trace.text]
    assert texts[-2:] == ["  naive 13.09 GB", "  flash 0.135 GB"]
    assert found.sources == ("model", "schedule", "cupti-range")


def test_axes_have_the_unit_of_their_numbers() -> None:
    """1.28 ms stay ms; 147 MB of memory at most are MiB."""
    items = {item.title: item for item in overview.sheet((flash_run(),), LIGHT).items}
    time, memory = items["Time"], items["Peak memory"]
    assert isinstance(time, Picture) and time.chart.layout.xaxis.title.text == "time, ms"
    assert isinstance(memory, Picture) and memory.chart.layout.xaxis.title.text == "memory, MiB"
    assert (time.sources, memory.sources) == (("cuda-event",), ("torch", "model"))
    assert isinstance(items["Error against float64"], Table)
