"""GPM against a simulated GPU that runs queued passes in its own time and counts the bytes that have really moved."""

import os
from dataclasses import dataclass, field, replace
from types import SimpleNamespace

import pynvml
import pytest
import torch

from kernels.problem import AttentionProblem
from profiler import steady_load
from profiler.counter import Unavailable
from profiler.counters import nvml_gpm
from profiler.device import detect
from profiler.run import DeviceInfo

PEAK = 4.8e12
H200 = DeviceInfo("cuda:0", "NVIDIA H200", compute_capability=(9, 0), peak_hbm_bytes_per_second=PEAK)
LARGE = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16").compulsory_bytes


@dataclass
class Gpu:
    """Passes of launches (seconds, bytes), run one after another; `now` is the clock that both host and GPU see."""

    launches: tuple[tuple[float, float], ...]
    host_seconds: float = 50e-6  # to launch one pass
    sample_seconds: float = 5e-3  # NVML takes so long, and looks at the counters in the middle
    now: float = 0.0
    free_at: float = 0.0
    work: list[tuple[float, float, float]] = field(default_factory=list)  # begin, end, bytes
    samples: list[tuple[float, float]] = field(default_factory=list)  # when, bytes so far
    device: DeviceInfo = H200
    l2: str = "cold"
    compulsory_bytes: int = LARGE
    held: int = 0

    def launch(self):
        self.now += self.host_seconds
        for seconds, size in self.launches:
            begin = max(self.now, self.free_at)
            self.free_at = begin + seconds
            self.work.append((begin, self.free_at, size))

    def synchronize(self):
        self.now = max(self.now, self.free_at)

    def mark(self):
        when = max(self.now, self.free_at)

        def synchronize():
            self.now = max(self.now, when)

        return SimpleNamespace(when=when, synchronize=synchronize, elapsed_time=lambda end: (end.when - when) * 1e3)

    def bytes_at(self, when):
        return sum(size * min(1.0, max(0.0, (when - begin) / (end - begin))) for begin, end, size in self.work)

    def take_sample(self):
        seen = self.now + self.sample_seconds / 2
        self.samples.append((seen, self.bytes_at(seen)))
        self.now += self.sample_seconds

    def idle_seconds(self):
        """Time between the two samples in which nothing ran."""
        first, second = (when for when, _ in self.samples)
        busy = sum(max(0.0, min(end, second) - max(begin, first)) for begin, end, _ in self.work)
        return second - first - busy


@pytest.fixture
def attach(monkeypatch):
    """Puts NVML and CUDA events in front of a simulated GPU."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})

    def attach(gpu):
        def alloc():
            gpu.held += 1
            return object()

        def free(_):
            gpu.held -= 1

        def metrics(question):
            assert (question.numMetrics, question.metrics[0].metricId) == (1, 10)
            (t0, b0), (t1, b1) = gpu.samples
            assert t1 - t0 >= 0.1
            answer = SimpleNamespace(nvmlReturn=0, value=100 * (b1 - b0) / (t1 - t0) / PEAK)
            return SimpleNamespace(metrics=[answer])

        question = SimpleNamespace(metrics=[SimpleNamespace(metricId=0)])
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlGpmQueryDeviceSupport": lambda handle: SimpleNamespace(isSupportedDevice=1),
            "nvmlGpmSampleAlloc": alloc,
            "nvmlGpmSampleFree": free,
            "nvmlGpmSampleGet": lambda handle, sample: gpu.take_sample(),
            "nvmlGpmMetricsGet": metrics,
            "c_nvmlGpmMetricsGet_t": lambda: question,
        }
        for name, function in answers.items():
            monkeypatch.setattr(pynvml, name, function)
        monkeypatch.setattr(nvml_gpm, "perf_counter", lambda: gpu.now)
        monkeypatch.setattr(steady_load, "mark_border", Gpu.mark)
        return gpu

    return attach


NAIVE = ((1.2e-3, 2.22e9), (1.5e-3, 4.27e9), (1.5e-3, 4.27e9), (2.2e-3, 2.24e9))
FLASH = ((1.28e-3, 0.1347e9),)
LONG = ((10e-3, 1e9), (20e-3, 60e9))
TINY = ((5e-6, 1e6),)  # launching takes longer than running


def test_half_of_the_peak_for_a_millisecond(attach):
    """50% × 4.8e12 B/s × 1 ms = 2.4 GB."""
    gpu = attach(Gpu(((1e-3, 2.4e9),)))
    (found,) = nvml_gpm.measure(gpu).measurements
    assert found.value == pytest.approx(2.4e9, rel=1e-3)
    assert "50% of 4.800 TB/s" in found.note and "estimate" in found.note
    assert (found.name, found.unit, found.source) == ("hbm_bytes", "B", "nvml-gpm")


@pytest.mark.parametrize(
    ("launches", "size", "longest"),
    [(NAIVE, 13.0e9, 0.40), (FLASH, 0.1347e9, 0.40), (LONG, 61e9, 0.58), (TINY, 1e6, 0.40)],
)
def test_bytes_of_one_pass(attach, launches, size, longest):
    gpu = attach(Gpu(launches))
    (found,) = nvml_gpm.measure(gpu).measurements
    assert found.value == pytest.approx(size, rel=0.01)
    assert gpu.now < longest
    assert gpu.held == 0


@pytest.mark.parametrize("launches", [NAIVE, FLASH, LONG])
def test_the_gpu_is_busy_from_one_sample_to_the_other(attach, launches):
    gpu = attach(Gpu(launches))
    nvml_gpm.measure(gpu)
    assert gpu.idle_seconds() == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("launches", [NAIVE, FLASH, LONG, TINY])
def test_the_queue_stays_short(attach, launches):
    gpu = attach(Gpu(launches))
    longest = 0.0
    take = gpu.launch

    def launch():
        nonlocal longest
        take()
        longest = max(longest, gpu.free_at - gpu.now)

    gpu.launch = launch
    nvml_gpm.measure(gpu)
    one_pass = sum(seconds for seconds, _ in launches)
    assert longest <= steady_load.QUEUED_SECONDS + 2 * one_pass


def test_an_nvml_error_in_the_window_is_the_reason_and_frees_the_samples(attach, monkeypatch):
    gpu = attach(Gpu(FLASH))

    def fail(*_):
        raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)

    monkeypatch.setattr(pynvml, "nvmlGpmSampleGet", fail)
    with pytest.raises(Unavailable, match="GPU is lost"):
        nvml_gpm.measure(gpu)
    assert gpu.held == 0


@pytest.mark.parametrize(
    ("code", "value", "words"), [(pynvml.NVML_ERROR_NOT_SUPPORTED, 0.0, "Not Supported"), (0, float("nan"), "nan")]
)
def test_a_metric_that_is_not_answered_is_never_zero(attach, monkeypatch, code, value, words):
    gpu = attach(Gpu(FLASH))
    answer = SimpleNamespace(metrics=[SimpleNamespace(nvmlReturn=code, value=value)])
    monkeypatch.setattr(pynvml, "nvmlGpmMetricsGet", lambda _: answer)
    with pytest.raises(Unavailable, match=words):
        nvml_gpm.measure(gpu)


def test_reasons(attach, monkeypatch):
    attach(Gpu(FLASH))
    assert nvml_gpm.COUNTER.unavailable(H200) is None
    a100 = DeviceInfo("cuda:0", "A100", compute_capability=(8, 0))
    assert "A100 has 8.0" in nvml_gpm.COUNTER.unavailable(a100)
    assert "no GPU" in nvml_gpm.COUNTER.unavailable(DeviceInfo("cpu", "CPU"))
    monkeypatch.setattr(pynvml, "nvmlGpmQueryDeviceSupport", lambda _: SimpleNamespace(isSupportedDevice=0))
    assert "does not support GPM" in nvml_gpm.COUNTER.unavailable(H200)
    no_peak = DeviceInfo("cuda:0", "H200", compute_capability=(9, 0), peak_hbm_source="a MIG instance")
    with pytest.raises(Unavailable, match="a MIG instance"):
        nvml_gpm.measure(Gpu(FLASH, device=no_peak))


@pytest.mark.parametrize(
    ("l2", "seq_len", "answers"), [("cold", 1024, False), ("warm", 1024, True), ("cold", 8192, True)]
)
def test_a_cold_pass_that_fits_into_l2_is_refused(attach, l2, seq_len, answers):
    """(1, 16, 1024, 64) float16: 4 tensors of 16 · 1024 · 64 · 2 B = 8.39 MB stay in an L2 of 60 MB between passes."""
    problem = AttentionProblem(1, 16, 16, seq_len, seq_len, 64)
    device = replace(H200, l2_bytes=60 * 2**20)
    gpu = attach(Gpu(FLASH, device=device, l2=l2, compulsory_bytes=problem.compulsory_bytes))
    if answers:
        assert nvml_gpm.measure(gpu).measurements[0].value is not None
    else:
        with pytest.raises(Unavailable, match=r"8\.39 MB stay in L2"):
            nvml_gpm.measure(gpu)


def test_the_note_names_who_else_uses_the_gpu(attach, monkeypatch):
    gpu = attach(Gpu(FLASH))
    processes = [SimpleNamespace(pid=pid, usedGpuMemory=2**30) for pid in (os.getpid(), 7)]
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda gpu: processes)
    (found,) = nvml_gpm.measure(gpu).measurements
    assert "NVML lists 1 other process on this GPU, holding 1.0 GiB" in found.note
    assert found.note.endswith("their traffic is included")


@pytest.mark.gpu
def test_a_copy_on_this_gpu():
    """1 GiB read and 1 GiB written."""
    device = next(iter(detect()), DeviceInfo("cpu", "CPU"))
    if reason := nvml_gpm.COUNTER.unavailable(device):
        pytest.skip(reason)
    source = torch.ones(2**28, device="cuda:0")
    target = torch.empty_like(source)
    bench = SimpleNamespace(
        device=device,
        l2="cold",
        compulsory_bytes=LARGE,
        launch=lambda: target.copy_(source),
        synchronize=torch.cuda.synchronize,
    )
    (found,) = nvml_gpm.measure(bench).measurements
    assert found.value == pytest.approx(2 * 2**30, rel=0.03)
