"""HBM bytes of one pass from NVML's GPU performance monitoring (GPM): an estimate that needs no privileges."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import torch

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.device import gpu_handle
from profiler.neighbours import neighbours
from profiler.nvml import NoGpu, ask, open_nvml
from profiler.run import DeviceInfo, Measurement
from profiler.steady_load import borders

# The driver refreshes GPM about ten times a second: a sample taken sooner still tells of the time before the load
# (on an H200, 2026-11-29: 30% low at 0.02 s of lead, right to 1% from 0.15 s on).
LEAD_SECONDS = 0.2
WINDOW_SECONDS = 0.11  # NVML wants at least 0.1 s between two samples
MIN_PASSES = 3


def measure(load: Load) -> Reading:
    """hbm_bytes = DRAM utilisation × peak × seconds of a pass, over whole passes in the middle of a steady load."""
    _require_traffic(load)
    peak = load.device.peak_hbm_bytes_per_second
    if peak is None:
        raise Unavailable(f"GPM tells a percentage of a peak that is not known: {load.device.peak_hbm_source}")
    try:
        with open_nvml() as nvml, _gpm_sample(nvml) as first, _gpm_sample(nvml) as second:
            gpu = gpu_handle(nvml, load.device)
            passes, seconds = loaded_window(
                load,
                at_start=lambda: nvml.nvmlGpmSampleGet(gpu, first),
                at_end=lambda: nvml.nvmlGpmSampleGet(gpu, second),
            )
            percent = _dram_utilisation(nvml, first, second)
            others = neighbours(nvml, gpu)
    except NoGpu as reason:
        raise Unavailable(str(reason)) from reason
    note = (
        f"estimate: {percent:.3g}% of {peak / 1e12:.3f} TB/s over {passes} passes in {seconds * 1e3:.0f} ms; reads and "
        "writes together; device-wide; passes run back to back, so L2 as each leaves it to the next"
        f"{others and f'; {others}'}"
    )
    return Reading((Measurement("hbm_bytes", percent / 100 * peak * seconds / passes, "B", "nvml-gpm", note),))


def _require_traffic(load: Load) -> None:
    """GPM watches passes back to back; what such passes find in L2 a cold pass would have read from HBM."""
    l2, compulsory = load.device.l2_bytes, load.compulsory_bytes
    if load.l2 == "cold" and l2 is not None and compulsory < l2:
        raise Unavailable(
            f"GPM needs passes back to back, and their {compulsory / 1e6:.3g} MB stay in L2 ({l2 / 1e6:.3g} MB), so it "
            "cannot tell what a cold pass moves; choose warm L2 or a longer sequence"
        )


def loaded_window(load: Load, at_start: Callable[[], Any], at_end: Callable[[], Any]) -> tuple[int, float]:
    """Keep the GPU busy with passes and call at_start and at_end in mid-load, each at the border between two passes,
    WINDOW_SECONDS and MIN_PASSES apart or more; gives the passes and the GPU seconds between.

    At borders the window holds whole passes, whose launches may differ in bandwidth.
    """
    begin, opened, passes = perf_counter(), 0.0, 0
    start: torch.cuda.Event | None = None
    for border in borders(load):
        now = perf_counter()
        if start is not None:
            passes += 1
            if passes >= MIN_PASSES and now - opened >= WINDOW_SECONDS:
                at_end()
                load.synchronize()
                return passes, float(start.elapsed_time(border)) * 1e-3
        elif now - begin >= LEAD_SECONDS:
            at_start()
            start, opened = border, now
    raise AssertionError("borders never end")


@contextmanager
def _gpm_sample(nvml: Any) -> Iterator[Any]:
    sample = nvml.nvmlGpmSampleAlloc()
    try:
        yield sample
    finally:
        nvml.nvmlGpmSampleFree(sample)


def _dram_utilisation(nvml: Any, first: Any, second: Any) -> float:
    """DRAM_BW_UTIL between two samples: percent of the peak, reads and writes together."""
    question = nvml.c_nvmlGpmMetricsGet_t()
    question.version = nvml.NVML_GPM_METRICS_GET_VERSION
    question.numMetrics = 1
    question.sample1, question.sample2 = first, second
    question.metrics[0].metricId = nvml.NVML_GPM_METRIC_DRAM_BW_UTIL
    answer = nvml.nvmlGpmMetricsGet(question).metrics[0]
    if answer.nvmlReturn != nvml.NVML_SUCCESS:
        raise nvml.NVMLError(answer.nvmlReturn)
    if not math.isfinite(answer.value):
        raise Unavailable(f"NVML GPM gives {answer.value} as DRAM utilisation")
    return float(answer.value)


def unavailable(device: DeviceInfo) -> str | None:
    """GPM came with Hopper, and not to every product since."""
    if device.compute_capability is None:
        return "no GPU here, so there is no GPM to ask"
    if device.compute_capability < (9, 0):
        major, minor = device.compute_capability
        return f"GPM needs compute capability 9.0 (Hopper) or newer; {device.name} has {major}.{minor}"
    try:
        with open_nvml() as nvml:
            support, reason = ask(nvml, nvml.nvmlGpmQueryDeviceSupport, gpu_handle(nvml, device))
    except NoGpu as error:
        return str(error)
    if support is None:
        return f"GPM cannot be asked: {reason}"
    return None if support.isSupportedDevice else f"NVML says that {device.name} does not support GPM"


COUNTER = Counter(
    name="nvml_gpm",
    title="NVML GPM",
    order=47,
    phase="estimate",
    quantities=(("hbm_bytes", "B", "nvml-gpm"),),
    unavailable=unavailable,
    measure=measure,
    is_slow=True,  # it needs a third of a second of load
)
