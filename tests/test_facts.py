"""Facts of the machine: an idle GPU, a busy one, a MIG slice, N/A, versions, the driver's age and permission."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pynvml
import pytest
import torch

from profiler import facts
from profiler.cupti import library, permission
from profiler.diagnosis import Fact

GiB = 2**30
CUDA_OF_TORCH = facts._cuda_of_torch


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """One H200 whose every other answer is N/A."""
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    monkeypatch.setattr(facts, "_cuda_of_torch", lambda: "13.0")
    known = {
        "nvmlInit": lambda: None,
        "nvmlShutdown": lambda: None,
        "nvmlDeviceGetCount": lambda: 1,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetName": lambda gpu: "NVIDIA H200",
        "nvmlDeviceGetCudaComputeCapability": lambda gpu: (9, 0),
        "nvmlDeviceGetMaxClockInfo": lambda gpu, kind: 3201,
        "nvmlDeviceGetMemoryBusWidth": lambda gpu: 6016,
        "nvmlSystemGetDriverVersion": lambda: "580.159.04",
        "nvmlSystemGetCudaDriverVersion_v2": lambda: 13000,
        "nvmlDeviceGetUtilizationRates": lambda gpu: SimpleNamespace(gpu=0, memory=0),
        "nvmlDeviceGetMemoryInfo": lambda gpu, version=None: SimpleNamespace(used=GiB // 2, free=GiB, total=140 * GiB),
        "nvmlDeviceGetComputeRunningProcesses": lambda gpu: [],
    }
    for name, function in known.items():
        monkeypatch.setattr(pynvml, name, function)
    return monkeypatch


def told() -> dict[str, Fact]:
    """Facts by name, of what NVML answers now."""
    return {fact.name: fact for said in facts.gpus() for fact in said.get("facts", ())}


def test_facts_of_an_idle_gpu(gpu: pytest.MonkeyPatch) -> None:
    """2 × 3201 MHz × 6016 bit / 8 = 4.814 TB/s."""
    found = told()
    assert {name: fact.value for name, fact in found.items()} == {
        "NVIDIA driver": "580.159.04, up to CUDA 13.0",
        "GPU": "NVIDIA H200, compute capability 9.0",
        "peak HBM bandwidth": "4.814 TB/s (NVML: 2 × 3201 MHz × 6016 bit / 8)",
        "in use by others": "a kernel runs 0% of the time, 0.5 GiB in use, no process",
    }
    assert not any(fact.warning for fact in found.values())


def test_a_gpu_busy_with_other_work_is_told_with_how_much(gpu: pytest.MonkeyPatch) -> None:
    running = [SimpleNamespace(pid=4242, usedGpuMemory=10 * GiB), SimpleNamespace(pid=7, usedGpuMemory=None)]
    gpu.setattr(pynvml, "nvmlDeviceGetComputeRunningProcesses", lambda _: running)
    gpu.setattr(pynvml, "nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=37, memory=5))
    fact = told()["in use by others"]
    assert fact.value == "a kernel runs 37% of the time, 0.5 GiB in use, processes 4242 with 10.0 GiB, 7"
    assert "Sources that watch the whole device (GPM, PM sampling, NVML) count it too" in fact.warning


def test_mig_and_na_fields_are_reasons_and_never_0(gpu: pytest.MonkeyPatch) -> None:
    gpu.setattr(pynvml, "nvmlDeviceGetGpuInstanceId", lambda _: 3)
    for name in (
        "nvmlDeviceGetComputeRunningProcesses",
        "nvmlDeviceGetUtilizationRates",
        "nvmlDeviceGetMemoryInfo",
        "nvmlSystemGetDriverVersion",
        "nvmlSystemGetCudaDriverVersion_v2",
    ):
        gpu.setattr(pynvml, name, refuse)
    found = told()
    assert found["peak HBM bandwidth"].value == (
        "not known (NVML does not tell a MIG instance's share of the bandwidth)"
    )
    no = "NVML answers: Not Supported"
    assert found["in use by others"].value == f"busy not told ({no}), memory not told ({no}), processes not told ({no})"
    assert found["NVIDIA driver"].value == f"not told ({no}), CUDA not told ({no})"
    assert not any(fact.warning for fact in found.values())


def refuse(*_: object) -> None:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


@pytest.mark.parametrize(
    ("offered", "wanted", "words"),
    [
        (12040, "13.0", "The driver is too old for torch, which is built for CUDA 13.0. Install a newer driver, or a"),
        (13000, "13.2", ""),
        (13000, "12.8", ""),
        (13000, None, "torch is built without CUDA, or missing, so it uses no GPU. Install a CUDA build of torch."),
    ],
)
def test_a_driver_that_torch_cannot_use(gpu: pytest.MonkeyPatch, offered: int, wanted: str | None, words: str) -> None:
    gpu.setattr(pynvml, "nvmlSystemGetCudaDriverVersion_v2", lambda: offered)
    gpu.setattr(facts, "_cuda_of_torch", lambda: wanted)
    warning = told()["NVIDIA driver"].warning
    assert warning.startswith(words) and bool(warning) == bool(words)


@pytest.mark.parametrize(
    ("torch_version", "triton_version", "warned"),
    [
        ("2.11.0+cu130", "3.6.0", ""),
        ("2.14.1", "3.8.0", ""),
        ("2.10.2", "3.5.1", "torch triton"),
        ("2.15.0a0+git", "3.9.0", "torch triton"),
        ("2.13.0", "main", "triton"),
    ],
)
def test_versions_that_are_not_known_are_a_warning(
    monkeypatch: pytest.MonkeyPatch, torch_version: str, triton_version: str, warned: str
) -> None:
    monkeypatch.setattr(facts, "version", {"torch": torch_version, "triton": triton_version}.__getitem__)
    (said,) = facts.packages()
    assert [fact.name for fact in said["facts"] if fact.warning] == warned.split()
    for fact in said["facts"]:
        bounds = {"torch": "2.11 to 2.14", "triton": "3.6 to 3.8"}[fact.name]
        assert not fact.warning or f"made for {fact.name} {bounds}; install" in fact.warning


def test_a_missing_package_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> str:
        raise facts.PackageNotFoundError(name)

    monkeypatch.setattr(facts, "version", missing)
    (said,) = facts.packages()
    assert [fact.value for fact in said["facts"]] == ["not installed"] * 2
    assert all("is not installed. Bytescope is made for" in fact.warning for fact in said["facts"])


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (b"def (", "SyntaxError"),
        (None, "FileNotFoundError"),
        (b"cuda: str = '13.0' # \xff", "SyntaxError|UnicodeDecodeError"),
        (b"cuda: str = '13.0\0'", "SyntaxError|ValueError"),
        (b"cuda: str = find()", "ValueError"),
        (b"cuda: str = 'none of these'", "ValueError: cuda is 'none of these'"),
    ],
    ids=["syntax", "missing", "no UTF-8", "null byte", "a call", "no version"],
)
def test_a_version_of_torch_that_cannot_be_read_is_a_warning_of_torch_alone(
    monkeypatch: pytest.MonkeyPatch, gpu: pytest.MonkeyPatch, tmp_path: Path, source: bytes | None, words: str
) -> None:
    if source is not None:
        (tmp_path / "version.py").write_bytes(source)
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path)])
    gpu.setattr(facts, "find_spec", lambda name: spec)
    gpu.setattr(facts, "_cuda_of_torch", CUDA_OF_TORCH)
    gpu.setattr(facts, "version", {"torch": "2.13.0", "triton": "3.7.1"}.__getitem__)
    (said,) = facts.packages()
    first, second = said["facts"]
    assert (first.value, second) == ("2.13.0, CUDA not known", Fact("", "triton", "3.7.1"))
    assert re.match(rf"torch/version\.py cannot be read \(({words})", first.warning)
    assert first.warning.endswith(", so torch is damaged; install the version of requirements.txt anew.")
    # What torch is built for is not known, so nothing is said of how it fits the driver.
    assert told()["NVIDIA driver"] == Fact("", "NVIDIA driver", "580.159.04, up to CUDA 13.0")


def test_a_group_that_breaks_down_is_a_fact_and_the_next_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def breaking() -> Callable[[], None]:
        def broken() -> None:
            raise KeyError("odd\nkey")

        return broken

    monkeypatch.setattr(facts, "end_with_parent", lambda: None)
    for name in ("packages", "gpus", "rights"):
        monkeypatch.setattr(facts, name, breaking())
    monkeypatch.setattr(facts, "cupti", lambda: iter([{"facts": [Fact("", "libcupti", "none")]}]))
    facts.main()
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line]
    found = [fact for line in said for fact in line.get("facts", ())]
    assert [fact["name"] for fact in found] == ["Python's packages", "NVML", "the driver", "libcupti"]
    assert found[0]["warning"] == (
        "Python's packages could not be asked (KeyError: 'odd\\nkey'). Install the versions of requirements.txt anew."
    )
    (gpus,) = (line for line in said if "devices" in line)
    assert gpus == {"devices": [], "why_no_gpu": found[1]["warning"]}
    assert said[-1] == {"end": True}


@pytest.mark.parametrize("program", ["profiler.facts", "profiler.gpu_sample"])
def test_a_program_that_hangs_in_nvml_ends_with_its_parent(tmp_path: Path, program: str) -> None:
    (tmp_path / "pynvml.py").write_text("import time; print('hangs', flush=True); time.sleep(600)")
    script = (
        "import subprocess, sys; child = subprocess.Popen([sys.executable, '-m', sys.argv[1]], stdin=subprocess.PIPE, "
        "start_new_session=True); print(f'\\n{child.pid}', flush=True); child.wait()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, program],
        cwd=Path(__file__).parents[1],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert parent.stdout is not None
    lines: list[str] = []
    while "hangs" not in lines:
        lines.append(parent.stdout.readline().strip())
        assert parent.poll() is None, lines
    (pid,) = filter(str.isdecimal, lines)
    assert Path(f"/proc/{pid}").exists()
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 5
    while not is_gone(pid) and time.monotonic() < end:
        time.sleep(0.05)
    gone = is_gone(pid)
    if not gone:
        os.kill(int(pid), signal.SIGKILL)
    assert gone


def is_gone(pid: str) -> bool:
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_cuda_of_torch_is_what_torch_says() -> None:
    assert facts._cuda_of_torch() == torch.version.cuda


@pytest.mark.parametrize(
    ("params", "capabilities", "value", "words"),
    [
        ("RmProfilingAdminOnly: 0", "0", "0: every user may read counters", ""),
        ("RmProfilingAdminOnly: 1", "0", "1: administrators only", "NVreg_RestrictProfilingToAdminUsers=0"),
        ("RmProfilingAdminOnly: 1", "200000", "1: administrators only", ""),
        ("EnableMSI: 1", "0", "not told by this driver", ""),
    ],
)
def test_permission(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, params: str, capabilities: str, value: str, words: str
) -> None:
    for name, text in (("DRIVER_PARAMS", params), ("PROCESS_STATUS", f"CapEff: {capabilities}")):
        (tmp_path / name).write_text(f"First: 1\n{text}\n")
        monkeypatch.setattr(permission, name, tmp_path / name)
    (said,) = facts.rights()
    (fact,) = said["facts"]
    assert fact.value == value and words in fact.warning and bool(fact.warning) == bool(words)
    monkeypatch.setattr(permission, "DRIVER_PARAMS", tmp_path / "missing")
    assert list(facts.rights()) == []


def test_a_libcupti_that_is_passed_over_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "libcupti.so.13"
    broken.write_bytes(b"nonsense")
    whole = library.find()[-1]
    monkeypatch.setattr(library, "_loaded", None)
    monkeypatch.setattr(library, "find", lambda: (broken, whole))
    (said,) = facts.cupti()
    (fact,) = said["facts"]
    assert re.fullmatch(rf"(.*/)?{whole.name}, API version \d+", fact.value)
    assert fact.warning == f"Passed over, since it is broken or older than CUDA 12.6 Update 2: {broken}."
    monkeypatch.setattr(library, "_loaded", None)
    monkeypatch.setattr(library, "find", lambda: (broken,))
    (said,) = facts.cupti()
    assert said["facts"][0].value == "none" and f"{broken} does not load" in said["facts"][0].warning
