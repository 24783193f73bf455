"""The live page's words and charts from one reading."""

from app.style import LIGHT
from app.views.live_gpu import charts, figures, headline
from profiler.gpu_sample import GpuSample
from tests.fake_runs import H200

NOW = GpuSample(
    device="cuda:0",
    time=1000.0,
    memory_used_bytes=4 * 2**30,
    memory_free_bytes=135 * 2**30,
    memory_total_bytes=139 * 2**30,
    gpu_busy_percent=97.0,
    memory_busy_percent=50.0,
    power_watts=612.4,
    sm_clock_hertz=1.98e9,
    memory_clock_hertz=3.201e9,
    temperature_celsius=55.0,
    compute_processes=1,
)
NO_POWER = GpuSample(
    "cuda:0",
    1000.0,
    None,
    None,
    None,
    0.0,
    None,
    None,
    None,
    None,
    None,
    None,
    {"power_watts": "NVML answers: Not Supported"},
)


def test_headline_says_what_the_gpu_does() -> None:
    assert headline(H200, NOW).sentence == "NVIDIA H200: a kernel runs 97% of the time."
    assert headline(H200, NO_POWER).sentence == "NVIDIA H200: it is idle."
    assert "1 compute process." in headline(H200, NOW).detail


def test_figures_carry_units_and_say_that_busy_is_no_bandwidth() -> None:
    found = {figure.label: figure for figure in figures(NOW)}
    assert found["memory used"].value == "4.00 GiB" and found["memory used"].detail == "of 139 GiB"
    assert found["memory busy"].value == "50%" and found["memory busy"].detail == "of time, no bandwidth"
    assert found["power"].value == "612 W" and found["SM clock"].value == "1,980 MHz"
    assert {figure.source for figure in found.values()} == {"nvml"}


def test_what_nvml_does_not_answer_is_a_dash_with_its_reason() -> None:
    power = next(figure for figure in figures(NO_POWER) if figure.label == "power")
    assert (power.value, power.reason) == ("–", "NVML answers: Not Supported")
    chart = next(picture for picture in charts([NO_POWER], NO_POWER, LIGHT) if picture.title == "Power")
    assert len(chart.chart.data) == 0 and "Not Supported" in chart.caption


def test_charts_are_thinned_and_end_now() -> None:
    samples = [GpuSample(**{**NOW.__dict__, "time": 940.0 + i * 0.05}) for i in range(1201)]
    memory = charts(samples, NOW, LIGHT)[0].chart.data[0]
    assert len(memory.x) <= 301
    assert (memory.x[0], memory.x[-1], memory.y[0]) == (-60.0, 0.0, 4.0)
