"""What NVML says of each GPU now; as a program it prints one JSON line a tick for a process that may not load NVML."""

import argparse
import json
import os
import select
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from profiler.codec import encode
from profiler.device import describe
from profiler.nvml import NoGpu, ask, is_loaded, open_nvml, possible, unopened, visible_gpus
from profiler.orphans import end_with_parent
from profiler.plausible import MAX_CAPACITY

HERTZ = 20.0
RETRY_SECONDS = 5.0
LOOK_SECONDS = 1.0  # between two looks at which GPUs there are

# What no GPU reaches; what is above is a driver's way of saying that it does not know.
MOST_WATTS, MOST_HERTZ, CELSIUS = 20_000.0, 20e9, (-100.0, 250.0)

Readings = Mapping[tuple[str, ...], Callable[[Any, Any], tuple[float, ...]]]


@dataclass(frozen=True)
class GpuSample:
    """One GPU at one moment, in SI units; None where NVML gives no answer, with the reason under `missing`.

    time is seconds since the epoch. Memory used is what nvidia-smi shows: of all processes, without the driver's
    reserve. The busy percentages are shares of TIME, of the last 1/6 to 1 s, in which a kernel ran or memory was read
    or written: no bandwidths. Power is the driver's own mean over about 1 s from Ampere on.
    """

    device: str
    time: float
    memory_used_bytes: int | None
    memory_free_bytes: int | None
    memory_total_bytes: int | None
    gpu_busy_percent: float | None
    memory_busy_percent: float | None
    power_watts: float | None
    sm_clock_hertz: float | None
    memory_clock_hertz: float | None
    temperature_celsius: float | None
    compute_processes: int | None
    missing: dict[str, str] = field(default_factory=dict)

    @property
    def why_silent(self) -> str:
        """The reason why NVML answers nothing at all of this GPU; empty where it answers something."""
        is_silent = all(getattr(self, name) is None for names in (*READINGS, *PROCESSES) for name in names)
        return next(iter(self.missing.values()), "NVML gives no answer") if is_silent else ""


def _memory(nvml: Any, gpu: Any) -> tuple[float, ...]:
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2)
    total = possible(memory.total, 1, MAX_CAPACITY, "B")
    return possible(memory.used, 0, total, "B"), possible(memory.free, 0, total, "B"), total


def _busy(nvml: Any, gpu: Any) -> tuple[float, ...]:
    share = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return possible(share.gpu, 0, 100, "%"), possible(share.memory, 0, 100, "%")


def _power(nvml: Any, gpu: Any) -> tuple[float, ...]:
    return (possible(nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3, 0, MOST_WATTS, "W"),)


def _clock(nvml: Any, gpu: Any, kind: int) -> tuple[float, ...]:
    return (possible(nvml.nvmlDeviceGetClockInfo(gpu, kind) * 1e6, 0, MOST_HERTZ, "Hz"),)


def _temperature(nvml: Any, gpu: Any) -> tuple[float, ...]:
    return (possible(nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU), *CELSIUS, "°C"),)


READINGS: Readings = {
    ("memory_used_bytes", "memory_free_bytes", "memory_total_bytes"): _memory,
    ("gpu_busy_percent", "memory_busy_percent"): _busy,
    ("power_watts",): _power,
    ("sm_clock_hertz",): lambda nvml, gpu: _clock(nvml, gpu, nvml.NVML_CLOCK_SM),
    ("memory_clock_hertz",): lambda nvml, gpu: _clock(nvml, gpu, nvml.NVML_CLOCK_MEM),
    ("temperature_celsius",): _temperature,
}
PROCESSES: Readings = {
    ("compute_processes",): lambda nvml, gpu: (len(nvml.nvmlDeviceGetComputeRunningProcesses(gpu)),),
}


def read(nvml: Any, gpu: Any, readings: Readings = READINGS) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by name, and reasons by name for what NVML does not answer."""
    values: dict[str, Any] = {}
    missing: dict[str, str] = {}
    for names, reading in readings.items():
        found, reason = ask(nvml, reading, nvml, gpu)
        if found is None:
            missing |= dict.fromkeys(names, reason)
        else:
            values |= dict(zip(names, found, strict=True))
    return values, missing


def take_sample(nvml: Any, gpu: Any, device: str) -> GpuSample:
    """Read everything of one GPU now."""
    values, missing = read(nvml, gpu, {**READINGS, **PROCESSES})
    return GpuSample(device, time.time(), **dict.fromkeys(missing), **values, missing=missing)


def feed(hertz: float, once: bool) -> bool:
    """The child: print the GPUs, then their samples each tick, until standard input closes, or, where it returns
    False, until there are other GPUs. Raises NoGpu, also once no GPU answers anything any more.
    """
    with open_nvml() as nvml:
        gpus = visible_gpus(nvml)
        devices = [describe(nvml, gpu, ordinal) for ordinal, gpu in enumerate(gpus)]
        _tell(devices=devices, why_no_gpu=None, faults=list(unopened(nvml)))
        known, looked = _names(nvml), time.monotonic()
        while True:
            begin = time.monotonic()
            _, reason = ask(nvml, nvml.nvmlDeviceGetCount)
            if reason:
                raise NoGpu(f"The NVIDIA driver stopped answering ({reason}).")
            samples = [take_sample(nvml, gpu, info.device) for gpu, info in zip(gpus, devices, strict=True)]
            if all(sample.why_silent for sample in samples):
                raise NoGpu(f"No GPU gives a reading any more ({samples[0].why_silent}).")
            _tell(samples=samples)
            if once or _input_closes_within(begin + 1 / hertz - time.monotonic()):
                return True
            if begin - looked >= LOOK_SECONDS:
                if _names(nvml) != known:
                    return False
                looked = begin


def _names(nvml: Any) -> list[str]:
    """What tells the GPUs that CUDA sees, and instances of them, apart, and those that are not opened. Raises NoGpu."""
    return [*(ask(nvml, nvml.nvmlDeviceGetUUID, gpu)[0] or "" for gpu in visible_gpus(nvml)), *unopened(nvml)]


def main() -> int:
    """`python -m profiler.gpu_sample`; without a GPU it says why and looks again every RETRY_SECONDS."""
    end_with_parent()
    parser = argparse.ArgumentParser(prog="python -m profiler.gpu_sample", description=__doc__)
    parser.add_argument("--hertz", type=float, default=HERTZ, help="samples a second (default: %(default)g)")
    parser.add_argument("--once", action="store_true", help="print one sample of each GPU and end")
    options = parser.parse_args()
    if not 0 < options.hertz <= 1000:
        parser.error(f"--hertz is {options.hertz:g}; choose more than 0, up to 1000.")
    while True:
        try:
            if feed(options.hertz, options.once):
                return 0
            continue
        except NoGpu as reason:
            _tell(devices=[], why_no_gpu=str(reason))
        if options.once or _input_closes_within(RETRY_SECONDS):
            return int(options.once)
        if is_loaded():
            # A process keeps the library that it has loaded, and only a new one fits a new driver.
            os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def _tell(**document: Any) -> None:
    print(json.dumps(encode(document), allow_nan=False), flush=True)


def _input_closes_within(seconds: float) -> bool:
    """Wait; True once standard input is closed, which is how the parent's end is noticed."""
    end = time.monotonic() + seconds
    while select.select([0], [], [], max(0.0, end - time.monotonic()))[0]:
        if not os.read(0, 4096):
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
