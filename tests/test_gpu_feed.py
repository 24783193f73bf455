"""The feed: what the child reads and prints, and real child processes that speak, die and end with their parent."""

import json
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest

from profiler import gpu_feed, gpu_sample
from profiler.gpu_feed import GpuFeed
from profiler.gpu_sample import take_sample

ROOT = Path(__file__).parents[1]
GiB = 2**30
DEVICE = """{"device": "cuda:0", "name": "NVIDIA H200", "memory_bytes": 150, "compute_capability": [9, 0],
 "sm_count": 132, "l2_bytes": null, "shared_memory_per_block": null, "peak_hbm_bytes_per_second": 4.8e12,
 "peak_hbm_source": "NVML", "peak_flops_per_second": null, "peak_flops_source": "", "driver": "580"}"""
SPEAK = f"""
import json, sys, time
device = json.loads('''{DEVICE}''')
print(json.dumps({{"devices": [device], "why_no_gpu": None}}), flush=True)
names = {[name for name in gpu_sample.GpuSample.__dataclass_fields__ if name not in ("device", "time", "missing")]!r}
def sample(watts):
    known = {{"device": "cuda:0", "time": time.time(), "power_watts": watts, "missing": {{}}}}
    print(json.dumps({{"samples": [dict.fromkeys(names) | known]}}), flush=True)
sample(100); sample(200)
"""


@pytest.fixture
def gpu(monkeypatch):
    """One GPU that knows its memory and power, and nothing else."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    memory = SimpleNamespace(used=3 * GiB, free=137 * GiB, total=140 * GiB)
    answers = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetMemoryInfo": lambda gpu, version=None: memory,
        "nvmlDeviceGetPowerUsage": lambda gpu: 700_000,
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: ["python"],
    }
    for name, function in answers.items():
        monkeypatch.setattr(pynvml, name, function)
    return monkeypatch


@pytest.fixture
def start():
    feeds = []

    def start(script):
        feeds.append(GpuFeed((sys.executable, "-c", script)))
        return feeds[-1]

    yield start
    for feed in feeds:
        feed.close()


def wait_until(condition):
    end = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_sample_holds_si_units_and_reasons(gpu):
    sample = take_sample(pynvml, 0, "cuda:0")
    assert (sample.memory_used_bytes, sample.memory_total_bytes) == (3 * GiB, 140 * GiB)
    assert (sample.power_watts, sample.compute_processes) == (700.0, 1)
    assert sample.temperature_celsius is None and "Uninitialized" in sample.missing["temperature_celsius"]
    assert set(sample.missing) == {
        "gpu_busy_percent",
        "memory_busy_percent",
        "sm_clock_hertz",
        "memory_clock_hertz",
        "temperature_celsius",
    }


def test_the_child_tells_its_gpus_once_and_then_samples(gpu, capsys):
    gpu_sample.feed(20.0, once=True)
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["devices"][0]["device"] == "cuda:0" and first["why_no_gpu"] is None
    assert second["samples"][0]["memory_free_bytes"] == 137 * GiB


def test_a_driver_that_disappears_is_a_sentence(gpu, capsys):
    counts = iter([1])

    def count():
        for number in counts:
            return number
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    gpu.setattr(pynvml, "nvmlDeviceGetCount", count)
    gpu.setattr(sys, "argv", ["gpu_sample", "--once"])
    assert gpu_sample.main() == 1
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["devices"] == [] and "Driver Not Loaded" in last["why_no_gpu"]


def test_the_feed_keeps_what_the_child_prints(start):
    feed = start(f"{SPEAK}sys.stdin.read()")
    assert feed.wait_for_answer(5)
    wait_until(lambda: len(feed.history("cuda:0", 60)) == 2)
    assert [sample.power_watts for sample in feed.history("cuda:0", 60)] == [100.0, 200.0]
    assert feed.latest("cuda:0").power_watts == 200.0
    assert feed.latest("cuda:1") is None and feed.history("cuda:1", 60) == ()
    assert feed.devices()[0].compute_capability == (9, 0) and feed.why_no_gpu is None


def test_silence_is_told_and_leaves_no_latest_sample(start, monkeypatch):
    monkeypatch.setattr(gpu_feed, "SILENT_SECONDS", 0.2)
    feed = start(f"{SPEAK}sys.stdin.read()")
    assert feed.wait_for_answer(5)
    wait_until(lambda: feed.why_no_gpu is not None)
    assert "has not answered for" in feed.why_no_gpu and feed.latest("cuda:0") is None
    assert feed.history("cuda:0", 60)


def test_a_child_that_dies_is_told_and_started_again(start, monkeypatch):
    monkeypatch.setattr(gpu_feed, "RETRY_SECONDS", 0.3)
    feed = start(f"{SPEAK}raise SystemExit('NVML crashed')")
    wait_until(lambda: "ended with code 1 (NVML crashed)" in (feed.why_no_gpu or ""))
    wait_until(lambda: len(feed.history("cuda:0", 60)) >= 4)


def test_starting_does_not_block_and_the_first_answer_comes_soon():
    """The real child; here without a driver it says why, elsewhere it names the GPUs."""
    begin = time.monotonic()
    feed = GpuFeed()
    assert time.monotonic() - begin < 0.2
    assert feed.why_no_gpu == "NVML has not answered yet."
    assert feed.wait_for_answer(10)
    assert feed.devices() or feed.why_no_gpu.endswith(".")
    feed.close()


def test_the_child_ends_when_its_input_closes():
    child = subprocess.Popen(
        [sys.executable, "-m", "profiler.gpu_sample"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT
    )
    with child:
        assert json.loads(child.stdout.readline()).keys() == {"devices", "why_no_gpu"}
        child.stdin.close()
        assert child.wait(5) == 0


def test_the_child_ends_with_a_parent_that_is_killed():
    """A parent that could not say goodbye leaves no process behind."""
    script = (
        "from profiler.gpu_feed import GpuFeed; import time; feed = GpuFeed(); feed.wait_for_answer(10);"
        "print(feed._child.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, cwd=ROOT) as parent:
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    wait_until(lambda: not is_alive(child))


def test_the_parent_loads_no_nvml():
    code = (
        "import sys; from profiler.gpu_feed import GpuFeed; feed = GpuFeed(); feed.wait_for_answer(10); feed.close();"
        "sys.exit(bool({'pynvml', 'torch', 'triton'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


def is_alive(process):
    """Neither gone nor, as an orphan may be, ended and not yet reaped."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
