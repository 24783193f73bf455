"""Every command with words that nobody means: it is done, or it says in one sentence why not; never a traceback."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import typer
from hypothesis import given, settings
from hypothesis import strategies as st

from app import compare_report, report
from kernels.problem import Refused
from profiler import __main__ as cli
from profiler import audit_command, compare_command, resources_command, sweep_command
from profiler.admission import admit
from profiler.compile_pool import known
from profiler.device import cpu_device
from profiler.doctor import diagnose
from profiler.run import to_json
from profiler.store import write_atomically
from profiler.sweep_job import LocalDevices
from profiler.timeout import require_possible_timeout
from profiler.worker import JobStatus
from tests.command_line import Answer
from tests.fake_audits import h200_audit
from tests.fake_runs import cpu_run, flash_run, naive_run
from tests.hostile import quickly
from tests.hostile_words import COMMANDS, answer, command_lines, require_answered

MOST_SECONDS_OF_A_REPORT = 30.0  # of many Runs of several problems
ROOT = Path(__file__).parents[1]
EXAMPLE = str(ROOT / "examples" / "library_8k.json")
FILES = (
    "one.json", "two.json", "broken.json", "folder", "folder/one.json", "ncu.csv", ".", "nothing.json", "sweep",
    "one.json:flash", "one.json:1", "two.json:99", "new/out.json", "/proc/nothing/x", "/dev/null", "empty.json",
    EXAMPLE,
)  # fmt: skip


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with Run files, and nothing of it outside."""
    folder = tmp_path_factory.mktemp("words")
    (folder / "folder").mkdir()
    for name, runs in (("one", [flash_run()]), ("two", [naive_run(), cpu_run()]), ("folder/one", [naive_run()])):
        write_atomically(folder / f"{name}.json", to_json(runs))
    (folder / "broken.json").write_text('{"format_version": 1, "runs": [3]}')
    (folder / "empty.json").touch()
    (folder / "ncu.csv").write_bytes((ROOT / "tests" / "data" / "ncu_flash.csv").read_bytes())
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


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


@contextmanager
def without_work() -> Iterator[None]:
    """What takes long is left out; what checks the words stays."""
    found = diagnose_once()
    with ExitStack() as stack:
        for target, name, put in (
            (cli, "worker_for", Instantly),
            (cli, "diagnose", lambda tell: found),
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


FOUND: list[Any] = []


def diagnose_once() -> Any:
    """The doctor's answer, asked once."""
    if not FOUND:
        FOUND.append(diagnose())
    return FOUND[0]


def require_good_answer(words: list[str]) -> Answer:
    with without_work(), quickly(MOST_SECONDS_OF_A_REPORT):
        found = answer(words)
    require_answered(found)
    return found


@pytest.mark.parametrize("name", sorted(COMMANDS))
@settings(max_examples=max(40, settings().max_examples // 5))
@given(data=st.data())
def test_a_command_is_done_or_refused(name: str, place: Path, data: st.DataObject) -> None:
    require_good_answer(data.draw(command_lines(name, FILES)))
