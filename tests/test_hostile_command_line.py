"""Every command with words that nobody means: it is done, or it says in one sentence why not; never a traceback."""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import typer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app import compare_report, report
from kernels.problem import Refused
from profiler import __main__ as cli
from profiler import audit_command, compare_command, resources_command, run_command, sweep_command
from profiler.admission import admit
from profiler.compile_pool import known
from profiler.device import cpu_device
from profiler.diagnosis import Answer as Told
from profiler.diagnosis import Diagnosis, Fact
from profiler.run_document import to_json
from profiler.sweep_job import LocalDevices
from profiler.timeout import require_possible_timeout
from profiler.worker import JobStatus
from tests.command_line import Answer
from tests.fake_audits import h200_audit
from tests.fake_runs import cpu_run, flash_run, naive_run
from tests.hostile import quickly, seldom
from tests.hostile_words import COMMANDS, answer, command_lines, require_answered

RENAME = os.replace
MOST_SECONDS_OF_A_REPORT = 30.0  # of many Runs of several problems
ROOT = Path(__file__).parents[1]
FILES = (
    "one.json", "two.json", "broken.json", "folder", "folder/one.json", "ncu.csv", ".", "nothing.json", "sweep",
    "one.json:flash", "one.json:1", "two.json:99", "new/out.json", "/proc/nothing/x", "/dev/null", "empty.json",
    "recorded.json",
)  # fmt: skip


def fill(folder: Path) -> None:
    """Run files as FILES names them, whatever a command has made of them."""
    (folder / "folder").mkdir(exist_ok=True)
    for name, content in CONTENT.items():
        (folder / name).write_bytes(content)


CONTENT = {
    "one.json": to_json([flash_run()]).encode(),
    "two.json": to_json([naive_run(), cpu_run()]).encode(),
    "folder/one.json": to_json([naive_run()]).encode(),
    "copy.json": to_json([replace(flash_run(), recorded="a copy")]).encode(),
    "broken.json": b'{"format_version": 1, "runs": [3]}',
    "empty.json": b"",
    "recorded.json": (ROOT / "examples" / "library_8k.json").read_bytes(),
    "ncu.csv": (ROOT / "tests" / "data" / "ncu_flash.csv").read_bytes(),
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with Run files, and nothing of it outside."""
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    fill(folder)
    return folder


class Instantly:
    """A worker that admits Workloads as the real one does, and then measures nothing."""

    def __init__(self, device: str) -> None:
        self.device = device

    def submit(self, workloads: Sequence[Any], timeout: float, permit: object = None) -> Any:
        require_possible_timeout(timeout)
        status = JobStatus("done")
        try:
            for workload in workloads:
                admit(workload, cpu_device(), None, 2**34)
        except Refused as refusal:
            status = JobStatus("refused", error=str(refusal))
        return SimpleNamespace(status=lambda: status)


SMALL_AUDIT = replace(h200_audit(), rows=h200_audit().rows[:3])


class AuditInstantly:
    """An audit that is over at once."""

    def __init__(self, worker: Instantly, quick: bool, timeout: float) -> None:
        require_possible_timeout(timeout)
        self.audit, self.path = SMALL_AUDIT, None

    def status(self) -> JobStatus:
        return JobStatus("done")


def in_this_process(words: Sequence[str], cwd: Path, check: bool) -> SimpleNamespace:
    """`python -m app.report …` without a process of its own."""
    module = {"app.report": report, "app.compare_report": compare_report}[words[2]]
    drawn = typer.Typer(add_completion=False)
    drawn.command(cls=getattr(module, "LimitedCommand", None))(module.main)
    try:
        drawn(list(words[3:]))
    except SystemExit as end:
        return SimpleNamespace(returncode=int(end.code or 0))
    return SimpleNamespace(returncode=0)


def replace_inside(source: Any, target: Any) -> None:
    """os.replace, which fails where a command would write anything outside of the tests' own folders."""
    assert Path(target).resolve().is_relative_to(Path.cwd().parent.parent), target
    RENAME(source, target)


@contextmanager
def without_work() -> Iterator[None]:
    """What takes long is left out; what checks the words stays."""
    with ExitStack() as stack:
        for target, name, put in (
            (os, "replace", replace_inside),
            (run_command, "worker_for", Instantly),
            (cli, "diagnose", lambda tell: DIAGNOSIS),
            (cli, "subprocess", SimpleNamespace(run=in_this_process)),
            (compare_command, "subprocess", SimpleNamespace(run=in_this_process)),
            (audit_command, "worker_for", Instantly),
            (audit_command, "AuditJob", AuditInstantly),
            (resources_command, "compile_all", lambda chosen, timeout: iter(known(chosen).values())),
            (LocalDevices, "run", lambda devices, turns: None),
            (sweep_command, "estimate", lambda *_: 1.0),
        ):
            stack.enter_context(mock.patch.object(target, name, put))
        yield


DIAGNOSIS = Diagnosis(
    (),
    "There is no driver.",
    (Fact("", "driver", "none", "There is no driver."), Fact("cpu", "name", "Two cores")),
    (Told("cpu", "torch", "torch's allocator", True), Told("cpu", "ncu", "Nsight Compute", False, "no GPU here")),
)


def require_good_answer(words: list[str]) -> Answer:
    with without_work(), quickly(MOST_SECONDS_OF_A_REPORT):
        found = answer(words)
    require_answered(found)
    return found


@pytest.mark.parametrize("name", sorted(COMMANDS))
@settings(seldom, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_command_is_done_or_refused(name: str, place: Path, data: st.DataObject) -> None:
    fill(place)  # as it was: the folder is one for all examples
    require_good_answer(data.draw(command_lines(name, FILES)))


LONG = "a" * 5_000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["list", LONG], f"The file or folder '{LONG[:39]}"),
        (["report", LONG], "The file or folder '"),
        (
            ["report", "one.json", "copy.json"],
            "There are two Runs of one id, fake-flash, that",
        ),
        (["list", " "], "' ' does not exist."),
        (["list", "a\nb"], "'a\\nb' does not exist."),
        (["list", "\x1b[2J"], "'\\x1b[2J' does not exist."),
        (["compare", " "], "' ' could not be read: No such file or directory."),
        (["run", "--nothing"], "No such option: --nothing (Possible options: --no-drain)."),
        (["nothing"], "No such command 'nothing'."),
        (["run", "--heads", "x\ny"], "Invalid value for '--heads': Input should be a valid integer, "),
        (["run", "--timeout", "1e300"], "The timeout is 1e+300 s; choose up to 604,800, a week."),
        (["run", "--timeout", "inf"], "The timeout is inf s; choose up to 604,800, a week."),
        (["run", "--device", "cuda:٣"], "Device 'cuda:٣' is not known; choose cpu or cuda:0."),
        (["audit", "--device", "tpu"], "Device 'tpu' is not known; choose cpu or cuda:0."),
        (["sweep", "--where", "\udcff"], r"The condition '\udcff' cannot be used ('utf-8' codec can't encode"),
        (["run", "--dtype", "f" * 5_000], f"dtype '{'f' * 40}' is not supported; choose float16, bfloat16, float32."),
        (
            ["sweep", "--device", "cpu", "--workers", "99999999"],
            "The sweep has 99999999 workers; choose 1 to 1,024.",
        ),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_what_was_a_traceback_or_no_sentence(place: Path, words: list[str], sentence: str) -> None:
    found = require_good_answer(words)
    assert found.code == 2 and found.err.startswith(sentence), found.err


def test_a_target_whose_name_is_too_long(place: Path) -> None:
    found = require_good_answer(["report", "one.json", "--format", "csv", "--out", LONG])
    assert found.code == 2 and found.err.endswith("aaa could not be written: File name too long.\n")
    assert "…" in found.err and len(found.err) < 500


def test_what_ncu_has_no_name_for_is_refused_at_the_door(place: Path) -> None:
    shape = ["--heads", "16", "--seq-len", "8192", "--head-dim", "128", "--dtype", "bfloat16"]
    for words, sentence in (
        (["--only", "\x1b[2J"], r"No kernel's name holds '\x1b[2J'; the file has 'bytescope_mark', 'flash_forward'."),
        (["--device-name", "a\nb"], r"--device-name is 'a\nb'; give up to 500 characters that can be printed."),
    ):
        found = require_good_answer(["import", "ncu.csv", *shape, *words])
        assert (found.code, found.err) == (2, f"{sentence}\n")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        ([b"list", b"\xff\xfe none"], 2, rb"'\udcff\udcfe none' does not exist."),
        ([b"export", b"one.json", b"--format", b"csv", b"--out", b"\xff.csv"], 0, rb"1 Run written to '\udcff.csv'"),
        (
            [b"report", b"one.json", b"--format", b"csv", b"--out", b"no/x"],
            2,
            b"no/x could not be written, for there is no folder",
        ),
        ([b"compare", b"two.json", b"--fail-above", b"nan", b"flops"], 2, b"--fail-above is 'nan'; give a ratio"),
    ],
    ids=["list", "export", "report", "compare"],
)
def test_a_process_of_its_own_says_the_same(place: Path, words: list[bytes], code: int, said: bytes) -> None:
    done = subprocess.run(
        [sys.executable.encode(), b"-m", b"profiler", *words],
        cwd=place,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, b"Traceback" in done.stderr) == (code, False), done.stderr
    assert said in done.stdout + done.stderr
