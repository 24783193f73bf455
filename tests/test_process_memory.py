"""Who holds a GPU's memory: this process, others and the device, as a fake NVML tells it."""

import os
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from profiler.process_memory import NAMES, Held, process_memory, who_holds
from profiler.run import DeviceInfo

GiB = 2**30
ME = os.getpid()
H200 = DeviceInfo("cuda:0", "NVIDIA H200", compute_capability=(9, 0))


def process(pid: int, gib: float | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=None if gib is None else int(gib * GiB))


@pytest.fixture
def nvml(monkeypatch: pytest.MonkeyPatch) -> Any:
    def with_processes(*processes: SimpleNamespace) -> Any:
        answers = {
            "nvmlInit": lambda: None,
            "nvmlShutdown": lambda: None,
            "nvmlDeviceGetCount": lambda: 1,
            "nvmlDeviceGetHandleByIndex": lambda index: index,
            "nvmlDeviceGetMemoryInfo": lambda gpu, version: SimpleNamespace(used=9 * GiB),
            "nvmlDeviceGetComputeRunningProcesses": lambda gpu: list(processes),
        }
        for name, answer in answers.items():
            monkeypatch.setattr(pynvml, name, answer)
        return pynvml

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    return with_processes


def test_this_process_and_the_others(nvml: Any) -> None:
    held = who_holds(nvml(process(ME, 3.0), process(7, 4.0), process(8, 0.5)), 0)
    assert held == Held(3 * GiB, int(4.5 * GiB), 9 * GiB)


def test_a_container_hides_numbers(nvml: Any) -> None:
    assert who_holds(nvml(process(ME + 1, 3.0)), 0) == Held(3 * GiB, 0, 9 * GiB), "the only one is this one"
    two = who_holds(nvml(process(ME + 1, 3.0), process(ME + 2, 1.0)), 0)
    assert (two.own, two.others, two.device) == (None, None, 9 * GiB) and "which is this one is unknown" in two.reason
    nobody = who_holds(nvml(), 0)
    assert nobody.own is None and "lists no process" in nobody.reason
    silent = who_holds(nvml(process(ME, None), process(7, 1.0)), 0)
    assert silent.own is None and "does not tell how much" in silent.reason


def test_the_context_is_what_torch_has_not_reserved(nvml: Any) -> None:
    nvml(process(ME, 3.0), process(7, 4.0))
    found = {m.name: m for m in process_memory(H200, int(2.5 * GiB))}
    assert tuple(found) == NAMES and {m.source for m in found.values()} == {"nvml"}
    assert [m.value for m in found.values()] == [3 * GiB, 0.5 * GiB, 4 * GiB, 9 * GiB]


def test_less_than_torch_has_is_no_context(nvml: Any) -> None:
    nvml(process(ME, 1.0))
    found = {m.name: m for m in process_memory(H200, 2 * GiB)}
    assert found["context_bytes"].value is None and "less for this process" in found["context_bytes"].note
    assert found["process_memory_bytes"].value == GiB


def test_without_nvml_everything_has_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone() -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    monkeypatch.setattr(pynvml, "nvmlInit", gone)
    found = process_memory(H200, 0)
    assert [m.value for m in found] == [None] * 4 and all("NVML does not start" in m.note for m in found)
