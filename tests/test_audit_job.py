"""An audit's way through the workers, by fakes and on the CPU for real, and the command."""

import os
import re
import time
from collections.abc import Callable
from concurrent.futures import TimeoutError
from dataclasses import dataclass, field, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from rich.console import Console
from typer.testing import CliRunner

from kernels.problem import Refused
from profiler import audit_command, audit_job, child
from profiler.audit import (
    FAIL,
    NOT_CHECKED,
    PASS,
    Audit,
    audits_folder,
    from_json,
    load,
    newest,
    runs_of,
)
from profiler.audit_grid import Subject
from profiler.audit_job import AuditJob
from profiler.audit_limits import SOURCES
from profiler.audit_rows import Found
from profiler.audit_summary import unchecked
from profiler.device import why_no_gpu
from profiler.gpu_errors import OutOfGpuMemory
from profiler.job_queue import JobQueue
from profiler.run import DeviceInfo
from profiler.store import StoreError, list_runs
from profiler.store import save as save_run
from profiler.worker import Worker
from profiler.workload import CPU, Workload
from tests.fake_audits import REFUSED, gpu_found, h200_audit, interpreted_found
from tests.fake_runs import H200, THIS_CPU, flash_run
from tests.faults import break_flash, mend_flash

PATIENCE = 120.0


@dataclass
class FakeWorker:
    """A Worker that answers at once, by what `audit_loads` and `measure_and_save` are told to do."""

    device: str
    load: Callable[[Subject], Found] = gpu_found
    referee: Callable[[tuple[Subject, ...]], tuple[Found, ...]] = lambda subjects: ()
    refuse: str = ""
    asked: list[str] = field(default_factory=list)
    sources: list[frozenset[str]] = field(default_factory=list)
    queue: JobQueue = field(default_factory=JobQueue)

    def schedule(self, function: Any, *arguments: Any, timeout: float | None = None, **_: Any) -> "FakeWorker":
        if function is not child.import_torch:  # stands before every task
            self.asked.append(function.__name__)
        self._answer = lambda: getattr(self, f"_{function.__name__}")(*arguments)
        return self

    def result(self) -> Any:
        return self._answer()

    def cancel(self) -> None:
        pass

    def _describe(self, device: str) -> DeviceInfo:
        if self.refuse:
            raise Refused(self.refuse)
        return THIS_CPU if device == CPU else H200

    def _import_torch(self) -> None:
        pass

    def _lock(self, device: str, progress: str) -> int:
        assert device == self.device
        return 1

    def _unlock(self, device: str, holder: int) -> None:
        assert holder == 1

    def _admit_all(self, workloads: tuple[Workload, ...]) -> None:
        pass

    def _measure_and_save(self, workload: Workload, request: str, folder: str, progress: str) -> str:
        found = (gpu_found if workload.on_gpu else interpreted_found)(Subject(workload))
        if workload.on_gpu:
            found = self.load(Subject(workload))
        number = f"run-{self.asked.count('measure_and_save')}-{self.device.replace(':', '-')}"
        run = replace(
            flash_run(),
            id=number,
            request=request,
            workload=workload,
            device=H200 if workload.on_gpu else THIS_CPU,
            measurements=tuple(m for m in found.measurements if m.source not in ("ncu", "cupti-sampling")),
            samples=found.samples,
            phases=found.phases,
            softmax=None,
            timeline=None,
        )
        save_run(run, Path(folder))
        return number

    def _audit_loads(self, subjects: tuple[Subject, ...], device: str, sources: frozenset[str], progress: str) -> Any:
        if sources == {"ncu"}:
            return self.referee(subjects)
        self.sources.append(sources)
        found = [self.load(subject) for subject in subjects]
        return tuple(
            replace(one, measurements=tuple(m for m in one.measurements if m.source in {*sources, "model"}))
            for one in found
        )


def ncu_agrees(subjects: tuple[Subject, ...]) -> tuple[Found, ...]:
    every = [gpu_found(subject) for subject in subjects]
    return tuple(replace(one, measurements=tuple(m for m in one.measurements if m.source == "ncu")) for one in every)


def audit_on_gpu(monkeypatch: pytest.MonkeyPatch, gpu: FakeWorker) -> tuple[AuditJob, FakeWorker]:
    cpu = FakeWorker(CPU)
    monkeypatch.setattr(audit_job, "worker_for", lambda device: cpu)
    job = AuditJob(gpu, quick=True)  # type: ignore[arg-type]
    assert job.wait(PATIENCE).is_over
    return job, cpu


def test_an_audit_of_a_gpu(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    """6 interpreted shapes, then 3 known operations and 2 shapes by naive, flash and cuDNN, then ncu once."""
    gpu = FakeWorker("cuda:0", referee=ncu_agrees)
    job, cpu = audit_on_gpu(monkeypatch, gpu)
    status = job.status()
    assert (status.state, status.error, status.done) == ("done", "", 6 + 9 + 1)
    assert cpu.asked.count("measure_and_save") == 6 and "lock" not in cpu.asked
    pair = ["admit_all", "measure_and_save", "audit_loads"]
    assert gpu.asked == [
        *("describe", "lock", *["audit_loads"] * 3),
        *(pair * 2 + ["audit_loads"]) * 2,
        *("audit_loads", "unlock"),
    ]
    sampled = frozenset({"cupti-sampling"})
    assert gpu.sources == [SOURCES] * 3 + [sampled, sampled, SOURCES] * 2, "what the Runs left out is asked as well"
    audit = job.audit
    assert audit is not None and job.path is not None and load(job.path) == audit
    assert audit.device == H200
    assert [row for row in audit.rows if row.verdict == FAIL] == []
    saved = list_runs(runs_of(audit.id)).runs
    assert {run.id for run in saved} == set(audit.run_ids) and len(saved) == 4
    assert {run.request for run in saved} == {audit.id}
    assert list_runs(runs).runs == (), "nobody asked for them one by one"
    assert {row.referee_source for row in audit.rows if row.verdict == PASS} == {
        *("ncu", "model", "cupti-range", "cuda-event", "interpreter", "schedule", "")
    }
    assert [row.subject for row in audit.rows if row.quantity == "audit_seconds"] == ["whole grid"]


@pytest.mark.parametrize(
    ("error", "verdict", "sentence"),
    [
        (Refused(REFUSED), NOT_CHECKED, REFUSED),
        (OutOfGpuMemory("tried to allocate 4 GiB"), NOT_CHECKED, "ran out of GPU memory: tried to allocate 4 GiB"),
        (TimeoutError(), FAIL, "was stopped after 120 s"),
        (ValueError("the kernel is broken"), FAIL, "failed: ValueError: the kernel is broken"),
    ],
)
def test_one_subject_that_cannot_be_measured_costs_no_other(
    monkeypatch: pytest.MonkeyPatch, error: Exception, verdict: str, sentence: str
) -> None:
    def one_fails(subject: Subject) -> Found:
        if subject.kernel == "fill":
            raise error
        return gpu_found(subject)

    asked: list[tuple[Subject, ...]] = []

    def referee(subjects: tuple[Subject, ...]) -> tuple[Found, ...]:
        asked.append(subjects)
        return ncu_agrees(subjects)

    job, _ = audit_on_gpu(monkeypatch, FakeWorker("cuda:0", one_fails, referee))
    assert job.audit is not None and job.status().state == "done"
    fill = [row for row in job.audit.rows if row.kernel == "fill"]
    assert {row.verdict for row in fill} == {verdict} and all(sentence in row.note for row in fill)
    others = [row.verdict for row in job.audit.rows if row.kernel != "fill"]
    assert others.count(FAIL) == 0 and others.count(PASS) > 40
    assert "fill" not in {subject.kernel for subject in asked[0]} and len(asked[0]) == 8


def test_a_referee_that_breaks_down_leaves_its_checks_unchecked(monkeypatch: pytest.MonkeyPatch) -> None:
    def referee(subjects: tuple[Subject, ...]) -> tuple[Found, ...]:
        raise TimeoutError

    job, _ = audit_on_gpu(monkeypatch, FakeWorker("cuda:0", referee=referee))
    assert job.audit is not None
    against = [row for row in job.audit.rows if row.referee_source == "ncu"]
    assert {row.verdict for row in against} == {NOT_CHECKED}
    assert all("was stopped after 600 s" in row.note for row in against)


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = FakeWorker("cuda:7", refuse="There is no GPU cuda:7 here (1 found).")
    job, cpu = audit_on_gpu(monkeypatch, gpu)
    status = job.status()
    assert (status.state, status.error) == ("refused", "There is no GPU cuda:7 here (1 found).")
    assert job.audit is None and not cpu.asked and newest().audit is None


def test_an_audit_that_cannot_be_saved_measures_nothing(monkeypatch: pytest.MonkeyPatch, runs: Path) -> None:
    runs.write_text("a file where the folder should be")
    job, cpu = audit_on_gpu(monkeypatch, FakeWorker("cuda:0"))
    assert job.status().state == "failed" and job.status().error.startswith("Nothing could be written to")
    assert not cpu.asked


def finished(job: AuditJob) -> AuditJob:
    assert job.wait(PATIENCE).is_over
    return job


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_an_audit_of_the_cpu_checks_requested_bytes_and_says_why_no_more(cpu_worker: Worker, runs: Path) -> None:
    job = finished(AuditJob(cpu_worker, quick=True))
    audit = job.audit
    assert audit is not None, job.status().error
    checked = [row for row in audit.rows if row.verdict != NOT_CHECKED]
    assert {row.verdict for row in checked} == {PASS} and len(checked) == 6 * 2 + 1
    assert all(row.value == row.referee_value for row in checked[:-1])
    reasons = unchecked(audit)
    assert list(reasons) == [why_no_gpu()], "one reason for all that needs a GPU"
    assert len(audit.run_ids) == 6 and {run.request for run in list_runs(runs_of(audit.id)).runs} == {audit.id}
    assert newest().audit == audit and audit.environment["torch"] == torch.__version__


def test_stop_ends_an_audit_and_saves_none(cpu_worker: Worker) -> None:
    job = AuditJob(cpu_worker)
    while job.status().done < 1:
        assert not job.status().is_over
    job.stop()
    status = job.wait(PATIENCE)
    assert (status.state, status.error) == ("stopped", "Stopped. No audit is saved.")
    assert newest().audit is None and list(audits_folder().iterdir()) == []


@pytest.fixture
def flash_fails(cpu_worker: Worker) -> Any:
    yield cpu_worker
    cpu_worker.schedule(mend_flash).result(PATIENCE)


def command(*words: str) -> Any:
    app = typer.Typer()
    app.command()(audit_command.audit)
    return CliRunner().invoke(app, words)


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_the_command_prints_checks_limits_reasons_and_the_file(cpu_worker: Worker) -> None:
    answer = command("--device", "cpu", "--quick")
    assert answer.exit_code == 0
    words = " ".join(answer.stdout.split())
    assert "flash (1, 2, 128, 64) float16, full mask requested read schedule" in words
    assert re.search(r"requested read schedule \S+ kB \S+ kB interpreter equal pass", words)
    assert f"checks of 9 shapes: {why_no_gpu()}" in words
    found = newest()
    assert found.audit is not None and f"{found.audit.summary}. The grid took" in words
    assert words.endswith(f"Saved as {found.path}")


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_json_is_the_audit_on_the_last_line_of_stdout(cpu_worker: Worker) -> None:
    answer = command("--device", "cpu", "--quick", "--json")
    assert answer.exit_code == 0 and len(answer.stdout.splitlines()) == 1
    assert from_json(answer.stdout) == newest().audit
    assert "Saved as" in answer.stderr


def test_an_audit_that_cannot_be_saved_is_shown_and_is_exit_code_1(
    cpu_worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(audit: Audit) -> None:
        raise StoreError("The audit could not be saved in audits: No space left on device.")

    monkeypatch.setattr(audit_job, "save", full)
    answer = command("--device", "cpu", "--quick", "--json")
    assert answer.exit_code == 1
    assert "The grid took" in answer.stderr and "Saved as" not in answer.stderr
    assert answer.stderr.endswith(
        "The audit could not be saved in audits: No space left on device. Its Runs are not kept.\n"
    )
    assert from_json(answer.stdout).run_ids == () and list(audits_folder().iterdir()) == []


def leave(name: str, hours: float) -> Path:
    """A folder with a Run to which nothing was added for so long."""
    folder = audits_folder() / name
    folder.mkdir(parents=True)
    (folder / "run.json").touch()
    os.utime(folder, (time.time() - hours * 3600,) * 2)
    return folder


def test_runs_of_audits_that_were_killed_go_a_day_later(monkeypatch: pytest.MonkeyPatch) -> None:
    killed = leave("20261101T000000-audit-0123abcd", 25)
    running = leave("20261101T000000-audit-4567abcd", 23)
    saved = leave("20261101T000000-audit-89ababcd", 25)
    saved.with_name(f"{saved.name}.json").touch()
    foreign = leave("notes", 25)
    elsewhere = leave("elsewhere", 25)
    link = audits_folder() / "20261101T000000-audit-cdefabcd"
    link.symlink_to(elsewhere)
    os.utime(elsewhere, (time.time() - 25 * 3600,) * 2)
    audit_on_gpu(monkeypatch, FakeWorker("cuda:0"))
    assert not killed.exists()
    assert all((folder / "run.json").exists() for folder in (running, saved, foreign, elsewhere))


NO_COUNTERS = "Reading counters needs a permission that this process lacks."


def without_counter(subject: Subject) -> Found:
    found = gpu_found(subject)
    missing = [replace(m, value=None, note=NO_COUNTERS) if m.source == "cupti-range" else m for m in found.measurements]
    return replace(found, measurements=tuple(missing), samples={}, phases={})


@pytest.mark.parametrize(
    ("load", "code", "told"),
    [(gpu_found, 0, ""), (without_counter, 1, f"No number of cupti-range could be checked: {NO_COUNTERS}\n")],
)
def test_a_gpu_whose_counters_told_nothing_is_exit_code_1(
    monkeypatch: pytest.MonkeyPatch, load: Callable[[Subject], Found], code: int, told: str
) -> None:
    cpu, gpu = FakeWorker(CPU), FakeWorker("cuda:0", load, ncu_agrees)
    monkeypatch.setattr(audit_job, "worker_for", lambda device: cpu)
    monkeypatch.setattr(audit_command, "worker_for", lambda device: gpu)
    answer = command("--device", "cuda:0", "--quick")
    assert (answer.exit_code, answer.stderr) == (code, told)
    audit = newest().audit
    assert audit is not None and audit.count(FAIL) == 0


def test_a_kernel_that_fails_is_exit_code_1(flash_fails: Worker) -> None:
    flash_fails.schedule(break_flash, "raise").result(PATIENCE)
    answer = command("--device", "cpu", "--quick")
    assert answer.exit_code == 1
    assert "fail: measuring should be finished. flash" in " ".join(answer.stdout.split())
    saved = newest().audit
    assert saved is not None and saved.count(FAIL) == 6


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_a_missing_gpu_is_exit_code_2(cpu_worker: Worker) -> None:
    answer = command("--device", "cuda:0")
    assert answer.exit_code == 2 and answer.stdout == ""
    assert answer.stderr == "There is no GPU cuda:0 here (0 found); choose device cpu, or open a recorded Run.\n"


def test_a_time_out_of_nothing_and_a_device_of_no_kind_are_refused(cpu_worker: Worker) -> None:
    for words, sentence in (
        (("--device", "cpu", "--timeout", "0"), "The timeout is 0 s; choose more than 0."),
        (("--device", "tpu"), "Device 'tpu' is not known; choose cpu or cuda:0."),
    ):
        answer = command(*words)
        assert isinstance(answer.exception, Refused) and str(answer.exception) == sentence


def test_the_table_of_a_gpu_names_missed_limits() -> None:
    console = Console(width=160, record=True, file=StringIO())
    for part in audit_command.tables(h200_audit()):
        console.print(part)
    text = " ".join(console.export_text().split())
    assert "−2.42% fail" in text and "fail: HBM total should be within 2%. as cupti-sampling counts it" in text
    assert (
        "fail: measuring should be finished. flash (phase: time) ended: the worker process was killed by SIGKILL."
        in text
    )
    assert f"30 checks of 3 shapes: {REFUSED}" in text
