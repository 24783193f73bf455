"""What NVML shows of the whole GPU while the other sources measure: memory, power, clocks, temperature, busy time."""

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.device import gpu_handle
from profiler.gpu_sample import READINGS, read
from profiler.nvml import open_nvml
from profiler.run import DeviceInfo, Measurement, Series, spread_of

HERTZ = 50.0
MAX_SERIES_SAMPLES = 1000
JOIN_SECONDS = 2.0
BUSY = "mean over the run; a percentage of time, not of bandwidth"


@dataclass(frozen=True)
class Quantity:
    """How the samples of one reading become one number."""

    reading: str
    name: str
    unit: str
    summary: Callable[[Sequence[float]], float]
    note: str


QUANTITIES = (
    Quantity("memory_used_bytes", "nvml_memory_used_bytes", "B", max, "peak of all processes on the device"),
    Quantity("gpu_busy_percent", "gpu_busy_percent", "%", statistics.fmean, f"a kernel ran; {BUSY}"),
    Quantity("memory_busy_percent", "memory_busy_percent", "%", statistics.fmean, f"memory was in use; {BUSY}"),
    Quantity("power_watts", "power_watts", "W", statistics.fmean, "mean over the run; the driver smooths over 1 s"),
    Quantity("sm_clock_hertz", "sm_clock_hertz", "Hz", statistics.median, "median over the run"),
    Quantity("memory_clock_hertz", "memory_clock_hertz", "Hz", statistics.median, "median over the run"),
    Quantity("temperature_celsius", "temperature_celsius", "°C", max, "highest of the run"),
)


@dataclass
class Log:
    """What the sampling thread has seen so far: a time, values and reasons for each tick, and what ended it early."""

    ticks: list[tuple[float, dict[str, Any], dict[str, str]]] = field(default_factory=list)
    failure: str = ""


@contextmanager
def watch(load: Load) -> Iterator[Callable[[], Reading]]:
    """Sample in a thread until the block ends; the yielded function stops it and gives the Reading."""
    log, stop = Log(), threading.Event()
    thread = threading.Thread(target=_sample, args=(load.device, log, stop), name="nvml-watch", daemon=True)

    def finish() -> Reading:
        stop.set()
        thread.join(JOIN_SECONDS)
        if thread.is_alive():
            log.failure = f"NVML has not answered for {JOIN_SECONDS:.0f} s"
        return summarise(log)

    thread.start()
    try:
        yield finish
    finally:
        stop.set()
        thread.join(JOIN_SECONDS)


def _sample(device: DeviceInfo, log: Log, stop: threading.Event) -> None:
    try:
        with open_nvml() as nvml:
            gpu = gpu_handle(nvml, device)
            next_tick = time.perf_counter()
            while True:
                log.ticks.append((time.perf_counter(), *read(nvml, gpu, READINGS)))
                next_tick = max(next_tick + 1 / HERTZ, time.perf_counter())
                if stop.wait(next_tick - time.perf_counter()):
                    return
    # A watcher may not end the run it watches: whatever happens becomes the reason.
    except Exception as error:
        log.failure = str(error) or repr(error)


def summarise(log: Log) -> Reading:
    """One Measurement for each quantity, and a Series where there are samples. Raises Unavailable without a tick."""
    ticks = tuple(log.ticks)
    if not ticks:
        raise Unavailable(log.failure)
    measurements, series = [], []
    for quantity in QUANTITIES:
        samples = [(when, float(values[quantity.reading])) for when, values, _ in ticks if quantity.reading in values]
        reasons = [missing[quantity.reading] for *_, missing in ticks if quantity.reading in missing]
        reason = log.failure or (reasons[-1] if reasons else "")
        measurements.append(_measurement(quantity, [value for _, value in samples], reason))
        if samples:
            shown = samples[:: -(-len(samples) // MAX_SERIES_SAMPLES)]
            seconds = tuple(when - ticks[0][0] for when, _ in shown)
            series.append(Series(quantity.name, quantity.unit, "nvml", seconds, tuple(value for _, value in shown)))
    return Reading(tuple(measurements), series=tuple(series))


def _measurement(quantity: Quantity, values: list[float], reason: str) -> Measurement:
    if not values:
        return Measurement(quantity.name, None, quantity.unit, "nvml", reason)
    note = f"{quantity.note}; {len(values)} samples{reason and f', then {reason}'}"
    spread = spread_of(tuple(values)) if quantity.summary is statistics.median else None
    return Measurement(quantity.name, quantity.summary(values), quantity.unit, "nvml", note, spread)


def unavailable(device: DeviceInfo) -> str | None:
    """NVML knows GPUs only; what it does not answer on this one is told when it is read."""
    return None if device.compute_capability else "no GPU here, so NVML has nothing to watch"


COUNTER = Counter(
    name="nvml",
    title="NVML",
    order=0,
    phase="watch",
    quantities=tuple((quantity.name, quantity.unit, "nvml") for quantity in QUANTITIES),
    unavailable=unavailable,
    watch=watch,
)
