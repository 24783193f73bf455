"""An audit on its way through the workers: every subject a task of its own, so that one which fails costs no other."""

import re
import shutil
import time
import uuid
from concurrent.futures import CancelledError
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

from kernels.problem import Refused
from profiler import child, progress_note
from profiler.audit import Audit, AuditRow, audits_folder, runs_of, save
from profiler.audit_grid import Subject, gpu_subjects, interpreted_subjects
from profiler.audit_limits import REFEREE, SOURCES, WHOLE_AUDIT
from profiler.audit_rows import Found, rows, without_referee
from profiler.present import present_gpus
from profiler.run import Run
from profiler.store import StoreError, load, require_writable
from profiler.timeout import require_possible_timeout
from profiler.worker import START_TIMEOUT, Job, JobStatus, Worker, worker_for
from profiler.workload import CPU, Workload

DEFAULT_TIMEOUT = 120.0  # seconds one subject may take
REFEREE_TIMEOUT = 600.0  # seconds the referee may take for all
LEFTOVER_SECONDS = 24 * 3_600.0
OWN_FOLDER = re.compile(r"\d{8}T\d{6}-audit-[0-9a-f]{8}")
NO_GPU_ASKED = "this audit is of the CPU; name a GPU with --device"


def _why_none() -> str:
    """Why there is no GPU, or why that is not known; empty where there is one."""
    try:
        return present_gpus()[1]
    except Refused as reason:
        return str(reason)


def remove_leftovers() -> None:
    """Remove Runs of audits that ended without being saved: a killed process cannot clean up after itself.

    Only those that nothing was added to for a day: another audit may be running.
    """
    for folder in audits_folder().iterdir():
        with suppress(OSError):
            is_old = time.time() - folder.stat().st_mtime > LEFTOVER_SECONDS
            if OWN_FOLDER.fullmatch(folder.name) and is_old and not folder.with_name(f"{folder.name}.json").exists():
                shutil.rmtree(folder)


class AuditJob(Job):
    """The small shapes through the interpreter, then the grid on the Worker's GPU, then the referee; saves an Audit.

    `audit` and `path` are there once the state is done, `audit` also where it could not be saved. Its Runs share the
    audit's id as their request. Raises Refused for a time-out of 0.
    """

    STOPPED = "Stopped. No audit is saved."

    def __init__(self, worker: Worker, quick: bool = False, timeout: float = DEFAULT_TIMEOUT) -> None:
        require_possible_timeout(timeout)
        self.audit: Audit | None = None
        self.path: Path | None = None
        self._id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-audit-{uuid.uuid4().hex[:8]}"
        self._on_gpu = worker.device != CPU
        self._interpreted = interpreted_subjects(quick)
        self._gpu = gpu_subjects(worker.device if self._on_gpu else "cuda:0", quick)
        self._runs: list[Run] = []
        self._own_worker = worker
        workloads = [s.work for s in (*self._interpreted, *self._gpu) if isinstance(s.work, Workload)]
        super().__init__(worker, tuple(workloads), timeout)

    def status(self) -> JobStatus:
        """A snapshot; done of total counts subjects, and the referee as one more."""
        with self._guard:
            status, note = self._status, progress_note.read(self._progress)
        if status.is_over:
            return status
        return replace(status, phase=str(note.get("phase", status.phase)), seconds=time.monotonic() - self._begun)

    def _work(self) -> None:
        require_writable(audits_folder())
        remove_leftovers()
        try:
            self.audit = self._take()
            self.path = self._save(self.audit)
        except BaseException:
            shutil.rmtree(runs_of(self._id), ignore_errors=True)
            raise
        self._update(state="done", phase="done", done=self._status.total)

    def _save(self, audit: Audit) -> Path:
        try:
            return save(audit)
        except StoreError as fault:
            # It can still be printed, but no longer points to its Runs.
            self.audit = replace(audit, run_ids=())
            raise StoreError(f"{fault} Its Runs are not kept.") from fault

    def _take(self) -> Audit:
        created = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
        self._update(total=len(self._interpreted) + (len(self._gpu) + 1 if self._on_gpu else 0))
        device = self._ask(child.describe, self._own_worker.device, timeout=START_TIMEOUT)
        # Interpreted kernels want a process of their own, into which Triton was not loaded for the GPU.
        self._worker = worker_for(CPU) if self._on_gpu else self._own_worker
        self._ask(child.describe, CPU, timeout=START_TIMEOUT)
        begun = time.monotonic()
        interpreted = [self._find(subject) for subject in self._interpreted]
        self._worker = self._own_worker
        if self._on_gpu:
            self._hold_gpu()
            begun = time.monotonic()
            found = self._with_referee([self._find(subject) for subject in self._gpu])
        else:
            found = [Found(subject, refused=_why_none() or NO_GPU_ASKED) for subject in self._gpu]
        seconds = time.monotonic() - begun
        verdict = WHOLE_AUDIT.verdict(seconds)
        took = AuditRow("whole grid", "", "audit_seconds", "s", "", seconds, "", None, WHOLE_AUDIT.sentence, verdict)
        own = [run for run in self._runs if run.request == self._id]
        environment = next((run.environment for run in (*own, *self._runs)), {})
        checked = (*(row for one in (*found, *interpreted) for row in rows(one, device)), took)
        return Audit(self._id, created, device, environment, checked, tuple(run.id for run in own), seconds)

    def _find(self, subject: Subject) -> Found:
        """What one subject gives; one that is refused or breaks down says so, and the audit goes on."""
        self._update(state="running", kernel=f"{subject.kernel} {subject.label}")
        try:
            return self._measure(subject)
        except (CancelledError, StoreError):
            raise
        except Refused as refusal:
            return Found(subject, refused=str(refusal))
        except MemoryError as error:  # says nothing about any number
            return Found(subject, refused=self._explain(error, self._timeout))
        except Exception as error:  # told in the audit, as a check that fails
            return Found(subject, broken=self._explain(error, self._timeout))
        finally:
            self._step()

    def _measure(self, subject: Subject) -> Found:
        if not isinstance(subject.work, Workload):
            return self._by_sources(subject, SOURCES)
        self._ask(child.admit_all, (subject.work,), timeout=START_TIMEOUT)
        # What is interpreted for the audit of a GPU is no Run that anyone would look at.
        is_own = self._worker is self._own_worker
        folder = runs_of(self._id) if is_own else self._progress.parent / "runs"
        request = self._id if is_own else "interpreted"
        where = (request, str(folder), str(self._progress))
        run_id = self._ask(child.measure_and_save, subject.work, *where, timeout=self._timeout)
        (run,) = load(folder / f"{run_id}.json")
        self._runs.append(run)
        found = Found.of(subject, run)
        # A Run leaves slow sources out where quick ones have counted.
        left = SOURCES - {m.source for m in run.measurements}
        if subject.is_interpreted:
            return found
        more = self._by_sources(subject, left)
        return replace(found.joined(more.measurements), elsewhere=more.elsewhere)

    def _by_sources(self, subject: Subject, sources: frozenset[str]) -> Found:
        how = (self._worker.device, sources, str(self._progress))
        (alone,) = self._ask(child.audit_loads, (subject,), *how, timeout=self._timeout)
        return cast(Found, alone)

    def _with_referee(self, found: list[Found]) -> list[Found]:
        """The same with what the referee tells of each subject that could run."""
        self._update(kernel=REFEREE)
        subjects = tuple(one.subject for one in found if not one.refused and not one.broken)
        try:
            how = (self._worker.device, frozenset({REFEREE}), str(self._progress))
            told = self._ask(child.audit_loads, subjects, *how, timeout=REFEREE_TIMEOUT)
        except CancelledError:
            raise
        except Exception as error:  # then nothing is checked against it, and this is why
            told = without_referee(subjects, self._explain(error, REFEREE_TIMEOUT))
        finally:
            self._step()
        answers = {one.subject: one.measurements for one in told}
        return [one.joined(answers[one.subject]) if one.subject in answers else one for one in found]

    def _step(self) -> None:
        """One subject more; its note goes, which a killed child may have left."""
        self._forget_note()
        self._update(done=self._status.done + 1)
