"""The doctor: sources that crash, hang or talk nonsense in their throw-away processes, broken libraries, odd GPUs."""

import asyncio
import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from filelock import FileLock

from profiler import counters, doctor, probe
from profiler.bench import Load
from profiler.codec import encode
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti import library
from profiler.diagnosis import BUSY, Answer, Diagnosis, Fact, Found
from profiler.probe import judge, known_copy, try_source
from profiler.run import DeviceInfo, Measurement
from tests.fake_runs import H200

ROOT = Path(__file__).parents[1]
REAL_COUNTERS = str(ROOT / "profiler" / "counters")
NO_GPU = "NVML does not start."

# A device that calls itself a GPU. Most fakes need no torch, which takes seconds to import.
LAUNCH = """
import sys
sys.path.insert(0, {root!r})
from contextlib import nullcontext
from types import SimpleNamespace as Fake
from filelock import FileLock
from profiler import child, counters, gpu_lock, probe
from profiler.run import DeviceInfo
counters.__path__[:] = {folders!r}
probe.known_device = lambda device: DeviceInfo(device, "fake", compute_capability=(9, 0))
child.describe = lambda device: DeviceInfo("cpu", "fake", compute_capability=(9, 0))
gpu_lock.lock_of = lambda device: FileLock({lock!r}, poll_interval=0.01)
probe.LOCK_SECONDS, probe.QUICK_SECONDS = 0.3, {seconds!r}
if not {with_torch!r}:
    sys.modules["torch"] = Fake(inference_mode=nullcontext, cuda=Fake(init=lambda: None))
    size = 32 * 2**20
    known = dict.fromkeys(("hbm_read_bytes", "hbm_write_bytes"), size)
    probe.known_copy = lambda device: Fake(work=Fake(size=size), known=known, compulsory_bytes=2 * size)
probe.main()
"""
SPEAK = """
import json, time
for line in {lines!r}:
    print(line, flush=True)
{ending}
"""
SOURCE = """
from profiler.counter import Counter, Reading, Unavailable
from profiler.run import Measurement
import ctypes, os, subprocess, time
{before}
def measure(load):
    {during}
    moved = float(load.work.size)
    names = "hbm_read_bytes", "hbm_write_bytes"
    return Reading(tuple(Measurement(name, moved, "B", "ncu") for name in names))
COUNTER = Counter("{name}", "Title of {name}", 1, "try", (), lambda device: {reason!r}, measure)
"""
SEGFAULT = "ctypes.string_at(0)"
SEGFAULTS = f"import ctypes; {SEGFAULT}"


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., None]:
    """Gives the doctor fake sources ({name: (code while imported, code while measured, why unavailable)}) and GPUs.

    `real`: with torch, and beside the project's own sources.
    """

    def set_up(
        sources: dict[str, tuple[str, str, str | None]],
        devices: tuple[DeviceInfo, ...] = (),
        seconds: float = 20.0,
        real: bool = False,
    ) -> None:
        folder = tmp_path / "sources"
        folder.mkdir()
        for name, (before, during, reason) in sources.items():
            text = SOURCE.format(name=name, before=before, during=during or "pass", reason=reason)
            (folder / f"{name}.py").write_text(text)
        launch = tmp_path / "launch.py"
        words = {"root": str(ROOT), "lock": str(tmp_path / "gpu.lock"), "seconds": seconds, "with_torch": real}
        launch.write_text(LAUNCH.format(folders=[str(folder), *[REAL_COUNTERS] * real], **words))
        monkeypatch.setattr(counters, "__path__", [str(folder)])
        monkeypatch.setattr(doctor, "PROBE", (str(launch),))
        said = {"devices": [encode(device) for device in devices], "why_no_gpu": "" if devices else NO_GPU}
        speak(monkeypatch, tmp_path, [json.dumps(said), '{"end": true}'])

    return set_up


def speak(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, lines: list[str], ending: str = "") -> None:
    """Puts a script that prints `lines` in the place of profiler.facts."""
    (tmp_path / "facts.py").write_text(SPEAK.format(lines=lines, ending=ending))
    monkeypatch.setattr(doctor, "FACTS", (str(tmp_path / "facts.py"),))


def answers(found: Diagnosis) -> dict[str, Answer]:
    return {answer.name: answer for answer in found.sources if answer.device != "any"}


BROKEN = {
    "aa_fine": ("", "", None),
    "bad_import": ("import no_such_module", "", None),
    "crash_import": (SEGFAULT, "", None),
    "crash_try": ("", SEGFAULT, None),
    "exits": ("", "print('licence expired', flush=True); os._exit(3)", None),
    "forbidden": ("", "", "administrators only; ask for CAP_SYS_ADMIN"),
    "garbage": ("", "os.write(1, b'\\x00\\xff[[[{\\n' * 3); os._exit(0)", None),
    "hangs": ("", "subprocess.Popen(['sleep', '600']); time.sleep(600)", None),
    "noisy": ("print('{\"answer\": 1', end='', flush=True)", "os.write(1, b'half a line')", None),
    "raises": ("", "raise ValueError('odd\\x1b[2J\\nvalue')", None),
    "zz_fine": ("", "", None),
}
SENTENCES = {
    "bad_import": r"bad_import cannot be loaded \(ModuleNotFoundError: No module named 'no_such_module'\)\. Install",
    "crash_import": r"The probe died of SIGSEGV inside crash_import's library\. Update or reinstall",
    "crash_try": r"The probe died of SIGSEGV inside Title of crash_try's library\. Update or reinstall",
    "exits": r"The probe of Title of exits ended with exit code 3 and no answer \(its last words: licence expired\)\.",
    "forbidden": r"administrators only; ask for CAP_SYS_ADMIN",
    "garbage": r"The probe of Title of garbage ended with exit code 0 and no answer \(its last words: .*\[\[\[\{\)\.",
    "hangs": r"Title of hangs gave no answer within 1 s, and its probe was stopped\. Another program may hold the GPU",
    "raises": r"Title of raises failed \(ValueError: odd�\[2J value\)\. Try again",
}


@pytest.mark.parametrize("devices", [(), (H200,)], ids=["one process for all", "a process each"])
def test_a_broken_source_is_a_sentence_and_harms_no_other(
    patient: Callable[..., None], devices: tuple[DeviceInfo, ...]
) -> None:
    # 0.3 s to wait for the lock and 0.7 s to try make the 1 s of the sentence.
    patient(BROKEN, devices, seconds=0.7)
    diagnosis = doctor.diagnose()
    assert diagnosis.tried_on == "Tried on a copy of 32 MiB (33.55 MB read, 33.55 MB written)."
    found = answers(diagnosis)
    assert list(found) == sorted(BROKEN)
    for name, answer in found.items():
        if name in SENTENCES:
            assert not answer.available and re.match(SENTENCES[name], answer.reason), answer
        else:
            assert answer.available and answer.verdict == "yes", answer
            assert answer.words == "HBM read 33.55 MB, HBM write 33.55 MB."
    assert {answer.device for answer in found.values()} == {"cuda:0" if devices else "cpu"}


def test_a_probe_that_hangs_is_killed_with_what_it_started(patient: Callable[..., None], tmp_path: Path) -> None:
    file = tmp_path / "process"
    during = f"open({str(file)!r}, 'w').write(str(subprocess.Popen(['sleep', '600']).pid)); time.sleep(600)"
    patient({"hangs": ("", during, None)}, (H200,), seconds=0.7)
    doctor.diagnose()
    end = time.monotonic() + 5
    while is_alive(int(file.read_text())):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_sources_take_turns_on_a_gpu(patient: Callable[..., None], tmp_path: Path) -> None:
    log = tmp_path / "log"
    note = f"open({str(log)!r}, 'a').write(f'{{time.monotonic()}}\\n')"
    during = f"{note}; time.sleep(0.3); {note}"
    patient(dict.fromkeys("abc", ("", during, None)), (H200,))
    assert all(answer.available for answer in answers(doctor.diagnose()).values())
    times = [float(line.split()[0]) for line in log.read_text().splitlines()]
    assert len(times) == 6
    assert all(end - begin >= 0.3 for begin, end in zip(times[::2], times[1::2], strict=True))


def test_a_running_measurement_is_not_disturbed(patient: Callable[..., None], tmp_path: Path) -> None:
    log = tmp_path / "log"
    during = f"open({str(log)!r}, 'a').write('tried')"
    patient({"a": ("", during, None), "b": ("", during, None), "c": ("", "", "too old a GPU")}, (H200,))
    with FileLock(tmp_path / "gpu.lock"):
        found = answers(doctor.diagnose())
    assert [found[name].reason for name in "abc"] == [BUSY, BUSY, "too old a GPU"]
    assert not any(answer.available for answer in found.values()) and not log.exists()
    assert answers(doctor.diagnose())["a"].available


STUBS = {
    "cuda": "int cuCtxGetCurrent(void** c) { *c = (void*)16; return 0; } int cuCtxGetDevice(int* d) { return *d = 0; }",
    "empty": "int nothing;",
    "cupti": """
#include <stdlib.h>
int cuptiGetVersion(unsigned* v) { *v = 130001; return 0; }
int cuptiGetResultString(int code, const char** name) { *name = "CUPTI_ERROR_NAME"; return 0; }
int cuptiProfilerInitialize(void* params) { return atoi(getenv("FAKE_CUPTI")); }
int cuptiRangeProfilerEnable(void* params) { return 0; }
""",
    "older": "int cuptiGetVersion(unsigned* v) { *v = 11; return 0; }",
    "gutted": "int cuptiGetVersion(unsigned* v) { return *v = 0; } int cuptiRangeProfilerEnable(void* p) { return 0; }",
    "crashing": "__attribute__((constructor)) static void start(void) { *(volatile int*)0 = 1; }",
}
# Each a libcupti of its own, and what is to be said of it.
LIBRARIES = {
    "crashing": "The probe died of SIGSEGV inside lib_crashing's library. Update or reinstall the NVIDIA driver",
    "gutted": "cuptiProfilerInitialize",
    "missing": "does not load",
    "older": "has no range profiler, which came with CUDA 12.6 Update 2. Install torch with CUDA, Triton, or CUDA 12.8",
    "random": "does not load",
    "truncated": "lib_truncated",
}
ALLOWED_BY = {
    26: "another program holds the GPU's counters: DCGM (on Ampere and older), ncu or another profiler. Stop it",
    27: "It needs Volta or newer, from CUDA 13 on Turing or newer; take a CUPTI that fits",
    33: "use a whole GPU, or ask who runs the machine to allow profiling",
    35: "as root or with CAP_SYS_ADMIN (Docker: `--cap-add SYS_ADMIN`), or let every user read them: load the driver "
    "with `NVreg_RestrictProfilingToAdminUsers=0`",
    39: "torch.profiler, ncu, nsys or cuda-gdb. End it",
    40: "its hypervisor forbids profiling; use a whole GPU, or ask who runs the machine to allow profiling",
    41: "Ask who runs the machine for a GPU without that mode, or in its devtools mode",
    43: "Use a whole GPU, or turn MIG off",
    45: "Use Linux itself, or a newer Windows driver",
    46: "Install a newer CUDA toolkit or torch",
}
USE_LIBRARY = """
import os
from pathlib import Path
from profiler.counters import cupti_range
from profiler.cupti import library
os.environ["FAKE_CUPTI"] = "{code}"
library._loaded, library.find = None, lambda: (Path({path!r}),)
COUNTER = cupti_range.COUNTER
"""


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A driver and several libcuptis that do nothing, or worse."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed.")
    folder = tmp_path_factory.mktemp("libraries")
    names = {"cuda": "libcuda.so.1"} | {name: f"{name}/libcupti.so.13" for name in STUBS if name != "cuda"}
    for name, source in STUBS.items():
        target = folder / names[name]
        target.parent.mkdir(exist_ok=True)
        compile_ = ["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(target)]
        subprocess.run(compile_, input=source, text=True, check=True)
        for part in library.NVPERF:
            subprocess.run([*compile_[:-1], str(target.with_name(part))], input=STUBS["empty"], text=True, check=True)
    (folder / "random").mkdir()
    (folder / "random/libcupti.so.13").write_bytes(bytes(range(256)) * 64)
    (folder / "truncated").mkdir()
    whole = library.find()[-1].read_bytes()
    (folder / "truncated/libcupti.so.13").write_bytes(whole[: len(whole) // 2])
    return folder


def test_every_cupti_error_and_broken_library_names_what_would_allow_it(
    patient: Callable[..., None], libraries: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The real source cupti_range on a driver and a libcupti of our own making."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(libraries))
    cases = {f"code_{code}": (code, "cupti") for code in ALLOWED_BY} | {f"lib_{name}": (0, name) for name in LIBRARIES}
    patient(dict.fromkeys(cases, ("", "", None)), real=True)
    for name, (code, folder) in cases.items():
        text = USE_LIBRARY.format(code=code, path=str(libraries / folder / "libcupti.so.13"))
        (tmp_path / "sources" / f"{name}.py").write_text(text)
    found = answers(doctor.diagnose())
    assert set(found) == set(cases)
    assert not any(answer.available for answer in found.values())
    for code, words in ALLOWED_BY.items():
        reason = found[f"code_{code}"].reason
        assert reason.startswith("No GPU counters: ") and words in reason, reason
        assert reason.endswith(f"(cuptiProfilerInitialize answered CUPTI_ERROR_NAME, {code}.)")
    for name, words in LIBRARIES.items():
        assert words in found[f"lib_{name}"].reason, found[f"lib_{name}"]


def test_facts_told_before_a_crash_stay(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(counters, "__path__", [])
    fact = Fact("", "torch", "2.13.0, CUDA 13.0")
    lines = ['{"asking": "Python"}', json.dumps({"facts": [encode(fact)]}), "a word", '{"asking": "NVML"}']
    speak(monkeypatch, tmp_path, lines, "import ctypes; ctypes.string_at(0)")
    found = doctor.diagnose()
    assert found.facts[0] == fact
    assert (found.facts[1].name, found.facts[1].value) == ("NVML", "not known")
    assert found.facts[1].warning.startswith("The probe died of SIGSEGV inside NVML's library.")
    assert found.devices == () and found.why_no_gpu == found.facts[1].warning


def test_an_nvml_that_hangs_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(counters, "__path__", [])
    monkeypatch.setattr(doctor, "NVML_SECONDS", 1.0)
    speak(monkeypatch, tmp_path, ['{"asking": "NVML"}'], "time.sleep(600)")
    assert doctor.diagnose().why_no_gpu.startswith("NVML gave no answer within 1 s")


def hide_behind(monkeypatch: pytest.MonkeyPatch, folder: Path, **packages: str) -> None:
    """Processes started from now on find these packages, with this source, before the installed ones."""
    for name, source in packages.items():
        (folder / "fakes" / name).mkdir(parents=True)
        (folder / "fakes" / name / "__init__.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", str(folder / "fakes"))


def told_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *devices: DeviceInfo) -> None:
    said = {"devices": [encode(device) for device in devices], "why_no_gpu": "" if devices else NO_GPU}
    speak(monkeypatch, tmp_path, [json.dumps(said), '{"end": true}'])


HANGS = "import time; time.sleep(600)"
COUNT = sum(path.stem != "__init__" for path in Path(REAL_COUNTERS).glob("*.py"))


@pytest.mark.parametrize("devices", [(), (H200,)], ids=["one process for all", "a process each"])
@pytest.mark.parametrize(
    ("fakes", "names_interpreter", "words"),
    [
        ({"torch": HANGS}, True, r"torch gave no answer within 1 s, and its probe was stopped\. Its import hangs: see"),
        ({"torch": SEGFAULTS}, True, r"The probe died of SIGSEGV inside torch's library\. Update or reinstall"),
        ({"torch": "", "pynvml": HANGS}, False, r"NVML gave no answer within 1 s, and its probe was stopped\. Another"),
    ],
    ids=["torch hangs", "torch crashes", "NVML hangs"],
)
def test_what_every_source_waits_for_is_named_and_waited_for_once(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    devices: tuple[DeviceInfo, ...],
    fakes: dict[str, str],
    names_interpreter: bool,
    words: str,
) -> None:
    """On a CPU nobody asks NVML: there each source still says its own."""
    hide_behind(monkeypatch, tmp_path, **fakes)
    told_devices(monkeypatch, tmp_path, *devices)
    for name in ("IMPORT_SECONDS", "NVML_SECONDS"):
        monkeypatch.setattr(doctor, name, 1.4)
    begun = time.monotonic()
    schedule, interpreter, *others = doctor.diagnose().sources
    # One after the other they would take 1.4 s × 9.
    assert time.monotonic() - begun < 9
    assert schedule.available and interpreter.name == "interpreter" and len(others) == COUNT
    assert interpreter.device == "any" and interpreter.title.startswith("Triton's interpreter: ")
    if names_interpreter:
        assert not interpreter.available and re.match(words, interpreter.reason)
    for answer in others:
        assert not answer.available
        if names_interpreter or devices:
            assert re.match(words, answer.reason), answer
        else:
            assert answer.reason.startswith(("no GPU here", f"{answer.name} cannot be loaded (")), answer


def test_the_interpreter_is_what_a_process_that_imports_it_found(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(counters, "__path__", [])
    told_devices(monkeypatch, tmp_path)
    assert doctor.diagnose().sources[1].verdict == "yes"
    hide_behind(monkeypatch, tmp_path, torch="raise ImportError('libtorch.so:\\nno such file')")
    assert doctor.diagnose().sources[1].reason == (
        "torch and Triton cannot be imported (ImportError: libtorch.so: no such file). Install the versions of "
        "requirements.txt"
    )


def test_a_torch_without_a_readable_version_hides_no_other_fact(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(counters, "__path__", [])
    hide_behind(monkeypatch, tmp_path, torch="", pynvml="def nvmlInit(): raise ValueError('odd')")
    (tmp_path / "fakes" / "torch" / "version.py").write_text("def (")
    found = doctor.diagnose()
    facts = {fact.name: fact for fact in found.facts}
    assert {"torch", "triton", "NVML", "libcupti"} <= set(facts)
    assert facts["torch"].value.endswith(", CUDA not known")
    assert facts["torch"].warning.startswith("torch/version.py cannot be read (SyntaxError: ")
    assert facts["NVML"].value == "not known" and found.why_no_gpu == facts["NVML"].warning
    assert found.why_no_gpu.startswith("NVML could not be asked (")


GIL_HANGS = "import ctypes; ctypes.PyDLL(None).sleep(600)"


@pytest.mark.parametrize("package", ["torch", "pynvml"])
@pytest.mark.parametrize("is_killed", [False, True], ids=["Ctrl-C", "kill -9"])
def test_a_doctor_that_is_stopped_leaves_no_probe(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, package: str, is_killed: bool
) -> None:
    """Not even one that hangs with the GIL held."""
    note = tmp_path / "pid"
    hide_behind(monkeypatch, tmp_path, **{package: f"import os; open({str(note)!r}, 'w').write(str(os.getpid()))\n"})
    with (tmp_path / "fakes" / package / "__init__.py").open("a") as file:
        file.write(GIL_HANGS)
    words = [sys.executable, "-m", "profiler", "doctor"]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as asked:
        end = time.monotonic() + 30
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < end
            time.sleep(0.02)
        time.sleep(0.5)
        asked.send_signal(signal.SIGKILL if is_killed else signal.SIGINT)
        begun = time.monotonic()
        _, said = asked.communicate(timeout=30)
    assert time.monotonic() - begun < 2
    assert (asked.returncode, "Traceback" in said) == (-signal.SIGKILL if is_killed else 130, False)
    end = time.monotonic() + 2
    while is_alive(int(note.read_text())) and time.monotonic() < end:
        time.sleep(0.02)
    assert not is_alive(int(note.read_text()))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_torch_that_prints_a_million_lines_is_heard_out_soon(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """At 30 µs a line it would take half a minute."""
    monkeypatch.setattr(counters, "__path__", [])
    told_devices(monkeypatch, tmp_path)
    hide_behind(monkeypatch, tmp_path, torch="print('{\"is_ready\": 1\\n' * 1_000_000)\nraise ValueError")
    begun = time.process_time()
    assert doctor.diagnose().sources[1].reason.startswith("torch and Triton cannot be imported (ValueError, without a")
    assert time.process_time() - begun < 8


def test_lines_of_any_length_and_number_are_told_apart(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A fact after a line of 3 MiB, half a line and a lone bracket; the last line has no end."""
    monkeypatch.setattr(counters, "__path__", [])
    fact = Fact("", "torch", "2.13.0")
    lines = ["x" * (3 * 2**20), "{", "}", '{"facts": 1', json.dumps({"facts": [encode(fact)]}), "[" * 100_000]
    speak(monkeypatch, tmp_path, lines, "print('its end', end='', flush=True)")
    found = doctor.diagnose()
    assert found.facts[0] == fact
    assert "ended with exit code 0 and no answer (its last words: its end)" in found.why_no_gpu


@pytest.mark.parametrize("number", [15, 2])
def test_a_probe_ended_from_outside_is_not_blamed_on_a_library(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, number: int
) -> None:
    monkeypatch.setattr(counters, "__path__", [])
    reset = f"import os, signal; signal.signal({number}, signal.SIG_DFL); os.kill(os.getpid(), {number})"
    speak(monkeypatch, tmp_path, ['{"asking": "NVML"}'], reset)
    name = {15: "SIGTERM", 2: "SIGINT"}[number]
    assert doctor.diagnose().why_no_gpu == (
        f"The probe of NVML was ended by {name} from outside. See who ends processes here, and try again."
    )


def test_the_doctor_itself_loads_neither_torch_nor_nvml() -> None:
    code = (
        "import sys; from profiler import doctor; found = doctor.diagnose(); assert found.facts and found.sources; "
        "sys.exit(bool({'torch', 'triton', 'pynvml', 'profiler.cupti'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, timeout=60, check=False).returncode == 0


def test_a_copy_is_large_against_l2(monkeypatch: pytest.MonkeyPatch) -> None:
    """8 × 60 MiB on an H200; 8 × 4 MiB is the least; 8 × 128 MiB where L2 is not known."""
    monkeypatch.setattr("profiler.known_loads.KnownLoad", lambda work, device: work.size)
    gpu = DeviceInfo("cuda:0", "GPU")
    for l2, size in ((60, 480), (4, 32), (1, 32), (None, 1024)):
        assert known_copy(replace(gpu, l2_bytes=l2 and l2 * 2**20)) == size * 2**20
    assert known_copy(DeviceInfo("cpu", "CPU")) == 32 * 2**20


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (
            RuntimeError("The NVIDIA driver is too old (found version 11040). Please update your GPU driver."),
            "The NVIDIA driver is too old (found version 11040)",
        ),
        (AssertionError("Torch not compiled with CUDA enabled"), "Torch not compiled with CUDA enabled"),
    ],
)
def test_a_torch_that_cannot_use_the_gpu_says_why(
    monkeypatch: pytest.MonkeyPatch, error: Exception, words: str
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(torch.cuda, "init", fail)
    counter = Counter("a", "A", 1, "try", (), lambda device: None, lambda load: Reading())
    with pytest.raises(Unavailable) as reason:
        try_source(counter, "cuda:0")
    assert str(reason.value) == (
        f"torch cannot use the GPU: {words}. Install an NVIDIA driver and a CUDA build of torch that fit together"
    )


def test_a_source_that_watches_is_tried_while_copies_run() -> None:
    launched: list[int] = []

    @contextmanager
    def watch(load: Load) -> Iterator[Callable[[], Reading]]:
        launch = load.launch
        load.launch = lambda: launched.append(1) or launch()  # type: ignore[method-assign]
        yield lambda: Reading((Measurement("power_watts", float(len(launched)), "W", "nvml"),))

    found, reason = try_source(Counter("a", "A", 1, "watch", (), lambda device: None, watch=watch), "cpu")
    assert found is not None and reason == ""
    assert found.measurements[0].value == len(launched) >= 1


def test_no_memory_is_a_sentence_that_says_what_to_do() -> None:
    sentence = probe._explain("A", torch.OutOfMemoryError("CUDA out of memory."))
    assert sentence.startswith("the GPU has too little free memory for the copy it is tried on (OutOfMemoryError:")


def judged(*measurements: Measurement) -> tuple[tuple[str, ...], str]:
    """Names of what counts as measured, and what is said against it, of a real copy of 32 MiB."""
    found, reason = judge(Reading(measurements), known_copy(DeviceInfo("cpu", "CPU")))
    return tuple(m.name for m in found.measurements) if found else (), reason


def test_what_is_measured_is_held_against_what_a_copy_moves() -> None:
    size = 32 * 2**20
    read = Measurement("hbm_read_bytes", 1.2 * size, "B", "cupti-range")
    assert judged(read) == (("hbm_read_bytes",), "")
    for value in (0.0, 0.7 * size, 1.3 * size):
        names, doubt = judged(replace(read, value=value))
        assert names == ("hbm_read_bytes",)
        assert doubt.startswith("hbm_read_bytes: more than 25% off what this copy is known to move, so do not trust it")
    # Read and written together.
    assert judged(Measurement("hbm_bytes", 2.0 * size, "B", "nvml-gpm")) == (("hbm_bytes",), "")
    assert "hbm_bytes: more than 25% off" in judged(Measurement("hbm_bytes", 1.0 * size, "B", "nvml-gpm"))[1]


def test_what_has_no_value_is_never_proof() -> None:
    power = Measurement("power_watts", None, "W", "nvml", "NVML answers: Not Supported")
    clock = Measurement("sm_clock_hertz", None, "Hz", "nvml", "NVML answers: Not Supported")
    heat = Measurement("temperature_celsius", 55.0, "°C", "nvml")
    reason = "power_watts, sm_clock_hertz: NVML answers: Not Supported"
    assert judged(power, clock, heat) == (("temperature_celsius",), reason)
    assert judged(power, clock) == ((), reason)
    assert judged() == ((), "it measured nothing, and did not say why")
    assert judged(replace(heat, value=float("nan"))) == ((), "temperature_celsius: it gave nan")


def test_an_answer_that_lacks_something_says_partly_and_shows_three_values() -> None:
    measurements = tuple(Measurement(f"{name}_watts", 7.0, "W", "nvml") for name in "abcde")
    answer = Answer("cuda:0", "nvml", "NVML", True, "heat: Not Supported", Found("copy", measurements))
    assert answer.verdict == "partly"
    assert answer.words == "a 7 W, b 7 W, c 7 W and 2 more. heat: Not Supported"
    moved = Measurement("hbm_read_bytes", 2.0**30, "B", "cupti-range")
    held = Measurement("peak_allocated_bytes", 2.0**30, "B", "torch")
    assert replace(answer, found=Found("copy", (moved, held)), reason="").words == (
        "HBM read 1.074 GB, peak allocated 1 GiB."
    )


def test_one_who_asks_may_have_an_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a notebook has, and this process once a browser test has run in it."""
    monkeypatch.setattr(doctor, "_diagnose", nothing)

    async def ask() -> object:
        return doctor.diagnose()

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(asyncio.run, ask()).result() == "found"


async def nothing(tell: object) -> str:
    return "found"
