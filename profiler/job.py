"""Jobs: Workloads on their way through a Worker, followed by a thread, and where they stand; free of torch."""

import threading
import time
import uuid
from concurrent.futures import CancelledError, TimeoutError
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pebble import ProcessExpired, ProcessFuture

from kernels.own import is_own
from kernels.own_fault import together
from kernels.problem import Refused
from profiler import child, progress_note
from profiler.failures import KeptAnyway, explain, how_it_died, kept_anyway, no_start
from profiler.own_job import NOTHING, imports_of, left_by, told_of, trace_of
from profiler.own_kernel import NO_OWN, NOBODY, Own, Permit
from profiler.run import new_id
from profiler.scratch import Scratch
from profiler.store import StoreError, is_kept, remove_half_written, require_writable, runs_folder
from profiler.workload import Workload

if TYPE_CHECKING:
    from profiler.worker import Worker

DEFAULT_TIMEOUT = 120.0  # seconds one Workload may take
START_TIMEOUT = 120.0  # seconds until a fresh child has imported torch, and to describe its device


@dataclass(frozen=True)
class JobStatus:
    """Where a Job stands. state: waiting, running, done, failed, refused or stopped; error is a sentence or empty.

    done of total counts phases over all Workloads of the Job; run_ids are the Runs saved so far. `trace` is the
    traceback of an own kernel that failed, empty without one; `ahead` is how many Jobs of this device come first.
    """

    state: str = "waiting"
    kernel: str = ""
    phase: str = "start"
    done: int = 0
    total: int = 1
    seconds: float = 0.0
    run_ids: tuple[str, ...] = ()
    error: str = ""
    trace: str = ""
    ahead: int = 0

    @property
    def is_over(self) -> bool:
        """True once nothing more will happen."""
        return self.state in ("done", "failed", "refused", "stopped")


class Job:
    """Workloads on their way through a Worker; a thread follows them and status() says how far they are."""

    STOPPED = "Stopped. Runs that were finished are kept."
    LOST = "Nobody follows this Job any more, for its thread broke off. Runs that were finished are kept; run again."

    def __init__(
        self, worker: "Worker", workloads: tuple[Workload, ...], timeout: float, permit: Permit = NOBODY
    ) -> None:
        self._worker, self._workloads, self._timeout, self._permit = worker, workloads, timeout, permit
        self._folder = runs_folder()
        self._scratch = Scratch()
        self._progress = self._scratch.folder / "progress.json"
        self._holder: int | None = None  # the process that holds the GPU for this Job
        self._is_warm = False  # whether the process has been ready for this Job
        self._guard = threading.Lock()
        self._status = JobStatus(kernel=workloads[0].kernel)
        self._future: ProcessFuture[Any] | None = None
        self._stopping = False
        self._why_stopped = self.STOPPED
        self._queue = worker.queue
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._queue.join(self)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: nobody is to wait behind a Job that never was
            self._queue.leave(self)
            raise

    def status(self) -> JobStatus:
        """A snapshot, with the phase that the child told last."""
        is_followed = self._thread.is_alive()
        with self._guard:
            status, note = self._status, progress_note.read(self._progress)
        if status.is_over:
            return status
        if not is_followed:
            return replace(status, state="failed", error=self.LOST)
        phases = int(note.get("total", 1))
        index = len(status.run_ids)
        total = len(self._workloads) * phases
        return replace(
            status,
            phase=str(note.get("phase", status.phase)),
            done=min(total, index * phases + int(note.get("done", 0))),
            total=total,
            seconds=time.monotonic() - self._begun,
            ahead=self._queue.ahead(self),
        )

    def stop(self, why: str = "") -> None:
        """End the Job; Runs already saved stay. `why` is the sentence that its status then has."""
        with self._guard:
            self._why_stopped = why or self._why_stopped
            self._stopping = True
            future = self._future
        self._queue.wake()
        if future is not None:
            future.cancel()

    def wait(self, timeout: float | None = None) -> JobStatus:
        """Block until the Job is over or `timeout` seconds have passed."""
        self._thread.join(timeout)
        return self.status()

    def _is_stopping(self) -> bool:
        return self._stopping

    def _work(self) -> None:
        """What is done, in the Job's own thread."""
        request = uuid.uuid4().hex[:12]
        # Held for the whole Job: its Runs are compared, so nobody else's kernels may stand between them. An own kernel
        # costs the process that holds it; from then on each Run holds the GPU for itself.
        self._hold_gpu()
        faults = self._admit()
        require_writable(self._folder)
        failures = [*faults.values()]
        for workload in self._workloads:
            if workload.kernel in faults:
                continue
            self._update(state="running", kernel=workload.kernel)
            run_id, leaves = new_id(workload.kernel), left_by(workload.kernel)
            try:
                own = told_of(workload, self._permit, self._timeout, partial(self._ask_cpu, leaves=leaves))
                self._measure_into(self._folder, run_id, workload, request, own, leaves)
                self._count(run_id)
            except CancelledError:
                if is_kept(run_id, self._folder):
                    self._count(run_id)
                raise
            # What the user's kernel does wrong costs none of the others, be it KeyboardInterrupt.
            except BaseException as error:
                if isinstance(error, KeptAnyway):
                    self._count(run_id)
                if not is_own(workload.kernel):
                    raise
                failures.append((self._explain(error, self._timeout), trace_of(error, self._progress)))
                self._forget_note()
        if failures:
            sentence, trace = together(failures)
            self._update(state="failed", error=sentence, trace=trace)
            return
        count = len(self._workloads)
        self._update(state="done", phase="done", done=count, total=count)

    def _measure_into(
        self,
        folder: Path,
        run_id: str,
        workload: Workload,
        request: str,
        own: Own = NO_OWN,
        leaves: frozenset[str] = NOTHING,
    ) -> None:
        """Measure a Workload; its Run is then in the folder. Raises KeptAnyway where it is, though the task failed."""
        where = (workload, request, str(folder), str(self._progress), run_id, own)
        try:
            self._ask(child.measure_and_save, *where, timeout=self._timeout, leaves=leaves)
        except BaseException as error:
            if isinstance(error, CancelledError) and self._future is not None:
                self._worker.settle(self._future)
            remove_half_written(run_id, folder)
            if isinstance(error, CancelledError) or not is_kept(run_id, folder):
                raise
            raise KeptAnyway(kept_anyway(error, workload.kernel)) from None

    def _hold_gpu(self) -> None:
        """Wait until nobody else on this host measures on the GPU, and keep it so until _let_go_of_gpu."""
        self._holder = self._ask(child.lock, self._worker.device, str(self._progress))

    def _let_go_of_gpu(self) -> None:
        """Let others measure."""
        self._ask(child.unlock, self._worker.device, self._holder)
        self._holder = None

    def _admit(self) -> dict[str, tuple[str, str]]:
        """What child.admit_all tells."""
        own = [workload.kernel for workload in self._workloads if is_own(workload.kernel)]
        try:
            leaves = imports_of(*own)
            found: dict[str, tuple[str, str]] = self._ask(
                child.admit_all, self._workloads, self._permit, timeout=START_TIMEOUT, leaves=leaves
            )
            return found
        except (TimeoutError, ProcessExpired) as error:
            if not own:
                raise
            what = f"did not import within {START_TIMEOUT:.0f} s"
            if isinstance(error, ProcessExpired):
                what = f"did not import, for the worker process {how_it_died(error)}"
            raise Refused(f"{' or '.join(own)} {what}; see what the module does when it is imported.") from None

    def _ask_cpu(self, function: Any, *arguments: object, timeout: float, leaves: frozenset[str]) -> Any:
        return self._schedule(
            function, *arguments, timeout=timeout, leaves=leaves, worker=self._worker.beside()
        ).result()

    def _follow(self) -> None:
        try:
            self._queue.wait(self, self._is_stopping)
            self._begun = time.monotonic()
            self._work()
        except CancelledError:
            self._update(state="stopped", error=self._why_stopped)
        except Refused as refusal:
            self._update(state="refused", error=str(refusal), trace=trace_of(refusal, self._progress))
        except StoreError as fault:
            self._update(state="failed", error=str(fault))
        except BaseException as error:  # the thread's last line of defence: whatever it is becomes a sentence
            self._update(state="failed", error=self._explain(error, self._timeout))
        finally:
            with suppress(CancelledError):
                if self._holder is not None:
                    self._worker.schedule(child.unlock, self._worker.device, self._holder)
                if self._is_warm:
                    # Where the process has ended, or an own kernel has left something in it, the next Job finds a fresh
                    # one warm. One that has not become ready is not tried again unasked.
                    self._worker.schedule(child.import_torch, timeout=START_TIMEOUT)
            self._queue.leave(self)
            self._scratch.remove()

    def _explain(self, error: BaseException, timeout: float) -> str:
        return explain(error, timeout, self.status().phase, self._status.kernel)

    def _ask(
        self, function: Any, *arguments: object, timeout: float | None = None, leaves: frozenset[str] = NOTHING
    ) -> Any:
        try:
            self._become_ready(leaves)
        except Exception as error:
            raise no_start(error, "importing torch", START_TIMEOUT) or error from None
        return self._schedule(function, *arguments, timeout=timeout, leaves=leaves).result()

    def _become_ready(self, leaves: frozenset[str]) -> None:
        try:
            self._schedule(child.import_torch, timeout=START_TIMEOUT, leaves=leaves).result()
        except ProcessExpired:
            # One that was ready before has died between two tasks, and not of what it does when it starts.
            if not self._is_warm:
                raise
            self._schedule(child.import_torch, timeout=START_TIMEOUT, leaves=leaves).result()
        self._is_warm = True

    def _schedule(
        self,
        function: Any,
        *arguments: object,
        timeout: float | None,
        leaves: frozenset[str],
        worker: "Worker | None" = None,
    ) -> ProcessFuture[Any]:
        with self._guard:
            if self._stopping:
                raise CancelledError
            self._future = (worker or self._worker).schedule(function, *arguments, timeout=timeout, leaves=leaves)
            return self._future

    def _count(self, run_id: str) -> None:
        """One Run more; the note goes, so that status() does not count its phases twice."""
        with self._guard:
            progress_note.drop(self._progress)
            self._status = replace(self._status, run_ids=(*self._status.run_ids, run_id))

    def _forget_note(self) -> None:
        """A task is over."""
        with self._guard:
            progress_note.drop(self._progress)

    def _update(self, **changes: Any) -> None:
        with self._guard:
            self._status = replace(self._status, seconds=time.monotonic() - self._begun, **changes)
