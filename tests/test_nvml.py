"""The NVML watch: peaks and means worked out by hand, N/A with its reason, and a GPU that is lost in mid-run."""

import itertools
import threading
import time
from types import SimpleNamespace

import pynvml
import pytest

from profiler.counter import Unavailable
from profiler.counters import nvml
from profiler.run import DeviceInfo

H200 = DeviceInfo("cuda:0", "NVIDIA H200", compute_capability=(9, 0))
BENCH = SimpleNamespace(device=H200)
GiB = 2**30


@pytest.fixture
def gpu(monkeypatch):
    """One GPU that knows memory, power and the SM clock; all else is N/A."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    used = itertools.chain((3 * GiB, 9 * GiB), itertools.repeat(5 * GiB))
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda gpu, version: SimpleNamespace(used=next(used), free=1, total=140 * GiB),
        "nvmlDeviceGetPowerUsage": lambda gpu: 250_000,
        "nvmlDeviceGetClockInfo": lambda gpu, kind: {pynvml.NVML_CLOCK_SM: 1980, pynvml.NVML_CLOCK_MEM: 3201}[kind],
    }
    for name, function in answers.items():
        monkeypatch.setattr(pynvml, name, function)
    return monkeypatch


def watched(seconds=0.2):
    with nvml.watch(BENCH) as finish:
        time.sleep(seconds)
        reading = finish()
    return {m.name: m for m in reading.measurements}, {s.name: s for s in reading.series}


def test_every_quantity_has_a_value_or_a_reason(gpu):
    found, series = watched()
    assert set(found) == {name for name, _, _ in nvml.COUNTER.quantities}
    assert found["nvml_memory_used_bytes"].value == 9 * GiB
    assert (found["power_watts"].value, found["power_watts"].unit) == (250.0, "W")
    assert found["sm_clock_hertz"].value == 1.98e9 and found["memory_clock_hertz"].value == 3.201e9
    assert found["gpu_busy_percent"].value is None and "Uninitialized" in found["gpu_busy_percent"].note
    assert set(series) == {"nvml_memory_used_bytes", "power_watts", "sm_clock_hertz", "memory_clock_hertz"}


def test_it_samples_at_20_hertz_or_better(gpu):
    seconds = watched(0.5)[1]["power_watts"].seconds
    assert seconds[0] == 0.0 and 10 <= len(seconds) <= 27
    assert all(later > earlier for earlier, later in itertools.pairwise(seconds))


def test_a_gpu_lost_in_mid_run_keeps_its_samples_and_tells(gpu):
    ticks = itertools.count()

    def power(_):
        if next(ticks) >= 3:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return 100_000

    gpu.setattr(pynvml, "nvmlDeviceGetPowerUsage", power)
    found, series = watched()
    assert found["power_watts"].value == 100.0
    assert "3 samples, then NVML answers: GPU is lost" in found["power_watts"].note
    assert len(series["power_watts"].values) == 3


def test_an_nvml_that_does_not_start_is_the_reason(gpu):
    def fail():
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    gpu.setattr(pynvml, "nvmlInit", fail)
    with pytest.raises(Unavailable, match="Driver Not Loaded"):
        watched()


def test_an_nvml_that_hangs_does_not_hold_the_run(gpu):
    hang = threading.Event()
    gpu.setattr(nvml, "JOIN_SECONDS", 0.05)
    gpu.setattr(pynvml, "nvmlDeviceGetPowerUsage", lambda _: hang.wait(5))
    begin = time.perf_counter()
    with pytest.raises(Unavailable, match="has not answered"):
        watched(0.05)
    assert time.perf_counter() - begin < 1
    hang.set()


def test_the_thread_stops_when_the_run_fails(gpu):
    with pytest.raises(ValueError, match="out of memory"), nvml.watch(BENCH):
        raise ValueError("out of memory")
    assert "nvml-watch" not in {thread.name for thread in threading.enumerate()}


def test_a_long_run_is_thinned_for_the_file_but_not_for_the_peak():
    readings = [quantity.reading for quantity in nvml.QUANTITIES]
    log = nvml.Log([(i / 50, dict.fromkeys(readings, i), {}) for i in range(2501)])
    reading = nvml.summarise(log)
    assert len(reading.series[0].values) == 834  # every third of 2501
    assert reading.measurements[0].value == 2500


def test_there_is_nothing_to_watch_on_a_cpu():
    assert "no GPU" in nvml.COUNTER.unavailable(DeviceInfo("cpu", "CPU"))
