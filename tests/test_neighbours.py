"""Other processes on the GPU, as device-wide sources tell of them."""

import os
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from profiler.neighbours import neighbours

GiB = 2**30
ME = os.getpid()


def process(pid: int, gib: float | None) -> SimpleNamespace:
    return SimpleNamespace(pid=pid, usedGpuMemory=None if gib is None else int(gib * GiB))


def nvml(monkeypatch: pytest.MonkeyPatch, *processes: SimpleNamespace, busy: dict[int, int] | None = None) -> Any:
    """pynvml with these processes; `busy` is each one's share of the SMs' time, None where NVML does not tell."""

    def utilisation(gpu: object, since: int) -> list[SimpleNamespace]:
        if busy is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        return [SimpleNamespace(pid=pid, smUtil=percent) for pid, percent in busy.items()]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda gpu: list(processes))
    monkeypatch.setattr(pynvml, "nvmlDeviceGetProcessUtilization", utilisation)
    return pynvml


def test_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert neighbours(nvml(monkeypatch, process(ME, 2.0)), 0) == ""
    assert neighbours(nvml(monkeypatch, process(ME + 1, 2.0)), 0) == "", "this process, by the host's number"
    assert neighbours(nvml(monkeypatch), 0) == "", "a container whose NVML lists nobody"


def test_others_by_memory_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    found = nvml(monkeypatch, process(ME, 2.0), process(7, 12.0), process(8, 0.5), busy={ME: 50, 7: 30, 8: 10})
    assert neighbours(found, 0) == (
        "NVML lists 2 other processes on this GPU, holding 12.5 GiB, keeping the SMs busy for 40% of the last second: "
        "their traffic is included"
    )


def test_what_nvml_does_not_tell_is_not_made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = neighbours(nvml(monkeypatch, process(ME, 2.0), process(7, None)), 0)
    assert found == (
        "NVML lists 1 other process on this GPU, how busy they keep it is not told (NVML answers: Not Supported): "
        "their traffic is included"
    )
    by_other_numbers = neighbours(nvml(monkeypatch, process(7, 1.0), process(8, 1.0), busy={}), 0)
    assert by_other_numbers == "NVML lists 1 other process on this GPU: their traffic is included"


def test_a_list_that_is_refused_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(gpu: object) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NO_PERMISSION)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", refuse)
    assert "NVML does not list them (NVML answers: Insufficient Permissions;" in neighbours(pynvml, 0)
