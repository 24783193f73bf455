"""Live GPU readings for a process that may not load NVML: a child prints them as JSON lines, GpuFeed keeps them."""

import argparse
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from profiler.codec import decode, encode
from profiler.device import NoGpu, ask, describe, open_nvml, visible_gpus
from profiler.run import DeviceInfo

HERTZ = 20.0
KEPT_SAMPLES = 6000  # of each GPU: five minutes
SILENT_SECONDS = 2.0
RETRY_SECONDS = 5.0
CHILD = (sys.executable, "-m", "profiler.gpu_feed")
ROOT = Path(__file__).resolve().parent.parent

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


def _memory(nvml: Any, gpu: Any) -> tuple[float, ...]:
    memory = nvml.nvmlDeviceGetMemoryInfo(gpu, nvml.nvmlMemory_v2)
    return memory.used, memory.free, memory.total


def _busy(nvml: Any, gpu: Any) -> tuple[float, ...]:
    share = nvml.nvmlDeviceGetUtilizationRates(gpu)
    return share.gpu, share.memory


READINGS: Readings = {
    ("memory_used_bytes", "memory_free_bytes", "memory_total_bytes"): _memory,
    ("gpu_busy_percent", "memory_busy_percent"): _busy,
    ("power_watts",): lambda nvml, gpu: (nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3,),
    ("sm_clock_hertz",): lambda nvml, gpu: (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_SM) * 1e6,),
    ("memory_clock_hertz",): lambda nvml, gpu: (nvml.nvmlDeviceGetClockInfo(gpu, nvml.NVML_CLOCK_MEM) * 1e6,),
    ("temperature_celsius",): lambda nvml, gpu: (nvml.nvmlDeviceGetTemperature(gpu, nvml.NVML_TEMPERATURE_GPU),),
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


def feed(hertz: float, once: bool) -> None:
    """The child: print the GPUs, then their samples each tick, until standard input closes. Raises NoGpu."""
    with open_nvml() as nvml:
        gpus = visible_gpus(nvml)
        devices = [describe(nvml, gpu, ordinal) for ordinal, gpu in enumerate(gpus)]
        _tell(devices=devices, why_no_gpu=None)
        while True:
            begin = time.monotonic()
            _, reason = ask(nvml, nvml.nvmlDeviceGetCount)
            if reason:
                raise NoGpu(f"The NVIDIA driver stopped answering ({reason}).")
            _tell(samples=[take_sample(nvml, gpu, info.device) for gpu, info in zip(gpus, devices, strict=True)])
            if once or _input_closes_within(begin + 1 / hertz - time.monotonic()):
                return


def main() -> int:
    """`python -m profiler.gpu_feed`; without a GPU it says why and looks again every RETRY_SECONDS."""
    parser = argparse.ArgumentParser(prog="python -m profiler.gpu_feed", description=__doc__)
    parser.add_argument("--hertz", type=float, default=HERTZ, help="samples a second (default: %(default)g)")
    parser.add_argument("--once", action="store_true", help="print one sample of each GPU and end")
    options = parser.parse_args()
    if not 0 < options.hertz <= 1000:
        parser.error(f"--hertz is {options.hertz:g}; choose more than 0, up to 1000.")
    while True:
        try:
            feed(options.hertz, options.once)
            return 0
        except NoGpu as reason:
            _tell(devices=[], why_no_gpu=str(reason))
        if options.once or _input_closes_within(RETRY_SECONDS):
            return int(options.once)


def _tell(**document: Any) -> None:
    print(json.dumps(encode(document), allow_nan=False), flush=True)


def _input_closes_within(seconds: float) -> bool:
    """Wait; True once standard input is closed, which is how the parent's end is noticed."""
    end = time.monotonic() + seconds
    while select.select([0], [], [], max(0.0, end - time.monotonic()))[0]:
        if not os.read(0, 4096):
            return True
    return False


class GpuFeed:
    """The readings of a child process, kept for a while; every method answers at once.

    The child is started in the background, started again if it dies, and ends with this process or at close().
    """

    def __init__(self, command: Sequence[str] = CHILD) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._answered, self._closed = threading.Event(), threading.Event()
        self._devices: tuple[DeviceInfo, ...] = ()
        self._samples: dict[str, deque[GpuSample]] = {}
        self._why: str | None = "NVML has not answered yet."
        self._heard = time.monotonic()
        self._child: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._keep_reading, name="gpu-feed", daemon=True)
        self._reader.start()

    def wait_for_answer(self, seconds: float) -> bool:
        """True once the child has told its GPUs, or why there are none."""
        return self._answered.wait(seconds)

    @property
    def why_no_gpu(self) -> str | None:
        """A sentence where there are no live readings, None where there are."""
        with self._lock:
            silent = time.monotonic() - self._heard
            if self._why is None and silent > SILENT_SECONDS:
                return f"NVML has not answered for {silent:.0f} s."
            return self._why

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The GPUs that the child sees."""
        with self._lock:
            return self._devices

    def latest(self, device: str) -> GpuSample | None:
        """The newest sample of a GPU such as "cuda:0"; None where there are no live readings."""
        if self.why_no_gpu is not None:
            return None
        with self._lock:
            kept = self._samples.get(device)
            return kept[-1] if kept else None

    def history(self, device: str, seconds: float) -> tuple[GpuSample, ...]:
        """The samples of the last `seconds`, oldest first."""
        since = time.time() - seconds
        with self._lock:
            return tuple(sample for sample in self._samples.get(device, ()) if sample.time >= since)

    def close(self) -> None:
        """End the child."""
        self._closed.set()
        with self._lock:
            child = self._child
        if child is not None and child.stdin is not None:
            child.stdin.close()
            self._reader.join(1.0)
            child.kill()

    def _keep_reading(self) -> None:
        while not self._closed.is_set():
            self._read_one_child()
            self._closed.wait(RETRY_SECONDS)

    def _read_one_child(self) -> None:
        last_words = ""
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            cwd=ROOT,
            # Its own session, so that Ctrl-C in the terminal reaches this process alone and the child ends after it.
            start_new_session=True,
        ) as child:
            with self._lock:
                self._child = child
            for line in child.stdout or ():
                if self._closed.is_set():
                    break
                if not self._take(line):
                    last_words = line.strip()
        with self._lock:
            ending = f"code {child.returncode}{last_words and f': {last_words}'}"
            self._why = f"The process that reads NVML ended ({ending}); it is started again in {RETRY_SECONDS:.0f} s."
        self._answered.set()

    def _take(self, line: str) -> bool:
        """Keep one line of the child; False where it is no document but a last word."""
        try:
            document = json.loads(line)
            devices = decode(tuple[DeviceInfo, ...], document.get("devices", []), "devices")
            samples = decode(tuple[GpuSample, ...], document.get("samples", []), "samples")
        except (ValueError, AttributeError):
            return False
        with self._lock:
            self._heard = time.monotonic()
            if "devices" in document:
                self._devices, self._why = devices, document.get("why_no_gpu")
            for sample in samples:
                self._samples.setdefault(sample.device, deque(maxlen=KEPT_SAMPLES)).append(sample)
        if "devices" in document:
            self._answered.set()
        return True


if __name__ == "__main__":
    sys.exit(main())
