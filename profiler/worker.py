"""A warm child process for each device, and Jobs that run Workloads in it; free of torch, safe to use from threads."""

import json
import shutil
import tempfile
import threading
import time
import uuid
from concurrent.futures import CancelledError, TimeoutError
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from pebble import ProcessExpired, ProcessFuture, ProcessPool

from kernels.own import is_own
from kernels.own_fault import together
from kernels.problem import Refused
from profiler import child
from profiler.failures import explain, how_it_died, no_start
from profiler.job_queue import JobQueue
from profiler.own_job import NOTHING, imports_of, left_by, told_of, trace_of
from profiler.own_kernel import NOBODY, Permit
from profiler.run import DeviceInfo
from profiler.spawn import LoneContext
from profiler.store import StoreError, require_writable, runs_folder
from profiler.workload import CPU, Workload

DEFAULT_TIMEOUT = 120.0  # seconds one Workload may take
REST_SECONDS = 0.01  # until a process that rests is replaced
START_TIMEOUT = 120.0  # seconds until a fresh child has imported torch, and to describe its device


@dataclass(frozen=True)
class JobStatus:
    """Where a Job stands. state: waiting, running, done, failed, refused or stopped; error is a sentence or empty.

    done of total counts phases over all Workloads of the Job; run_ids are the Runs saved so far. `trace` is the
    traceback of an own kernel that failed, empty without one.
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


class Worker:
    """One child process, started once, replaced by pebble after a crash, a time-out or a stop."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.queue = JobQueue()
        self._guard = threading.Lock()
        self._pool = self._new_pool()
        self._left = NOTHING  # what own kernels have left in the child
        self._stopped = False
        self._futures: WeakSet[ProcessFuture[Any]] = WeakSet()
        self._description: ProcessFuture[DeviceInfo] | None = None

    def start(self) -> None:
        """Begin to warm up, again if that failed before; returns at once."""
        if self._description is None or self.why_not is not None:
            self._description = self.schedule(child.warm_up, self.device, timeout=START_TIMEOUT)

    def describe(self) -> DeviceInfo | None:
        """The device's facts once the child is warm, else None."""
        future = self._description
        if future is None or not future.done() or future.cancelled() or future.exception() is not None:
            return None
        return future.result()

    @property
    def why_not(self) -> str | None:
        """Why the child could not be started; None while it is starting or well."""
        future = self._description
        if future is None or not future.done() or future.cancelled():
            return None
        error = future.exception()
        if error is None:
            return None
        what = "importing torch" if self.device == CPU else f"importing torch or waking {self.device}"
        return explain(no_start(error, what, START_TIMEOUT) or error, START_TIMEOUT, "start", "")

    def submit(
        self, workloads: tuple[Workload, ...], timeout: float = DEFAULT_TIMEOUT, permit: Permit = NOBODY
    ) -> "Job":
        """Queue Workloads, to be measured one after the other; returns at once. Raises Refused for a time-out of 0.

        `permit` says which own kernels may be imported; without it none may.
        """
        if not timeout > 0:
            raise Refused(f"The timeout is {timeout:g} s; choose more than 0.")
        return Job(self, workloads, timeout, permit)

    def schedule(
        self, function: Any, *arguments: object, timeout: float | None = None, leaves: frozenset[str] = NOTHING
    ) -> ProcessFuture[Any]:
        """Run a function of profiler.child in the child process. Raises CancelledError once the Worker is stopped.

        `leaves` is what it leaves in the process of the user's own, which outlives it there: whatever is to run without
        that gets a fresh process.
        """
        with self._guard:
            if self._stopped:
                raise CancelledError
            # pebble gives its pool up when the child dies between two tasks.
            if not self._pool.active:
                self._end_pool()
                self._pool = self._new_pool()
                self._left = NOTHING
            if not self._left <= leaves:
                self._futures.add(self._pool.schedule(child.rest, timeout=REST_SECONDS))
            self._left = leaves
            future = self._pool.schedule(function, arguments, timeout=timeout)
            self._futures.add(future)
            return future

    def stop(self) -> None:
        """End the child and whatever it does."""
        with self._guard:
            self._stopped = True
            self._end_pool()

    def _end_pool(self) -> None:
        # A pool that is stopped forgets the tasks it was at; whoever waits for them would wait for ever.
        for future in tuple(self._futures):
            future.cancel()
        self._futures.clear()
        self._pool.stop()
        self._pool.join()

    def _new_pool(self) -> ProcessPool:
        return ProcessPool(
            max_workers=1,
            initializer=child.start,
            initargs=(self.device,),
            # A forked child would inherit threads and locks of the server; a spawned one starts clean.
            context=LoneContext(),
        )


class Job:
    """Workloads on their way through a Worker; a thread follows them and status() says how far they are."""

    STOPPED = "Stopped. Runs that were finished are kept."
    LOST = "Nobody follows this Job any more, for its thread broke off. Runs that were finished are kept; run again."

    def __init__(
        self, worker: Worker, workloads: tuple[Workload, ...], timeout: float, permit: Permit = NOBODY
    ) -> None:
        self._worker, self._workloads, self._timeout, self._permit = worker, workloads, timeout, permit
        self._folder = runs_folder()
        self._progress = Path(tempfile.mkdtemp(prefix="bytescope-")) / "progress.json"
        self._guard = threading.Lock()
        self._status = JobStatus(kernel=workloads[0].kernel)
        self._future: ProcessFuture[Any] | None = None
        self._stopping = False
        self._why_stopped = self.STOPPED
        self._begun = time.monotonic()
        self._queue = worker.queue
        self._has_turn = False
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
            status, note = self._status, self._note()
        if status.is_over:
            return status
        if not is_followed:
            return replace(status, state="failed", error=self.LOST)
        phases = int(note.get("total", 1))
        index = len(status.run_ids)
        return replace(
            status,
            phase=str(note.get("phase", status.phase)),
            done=index * phases + int(note.get("done", 0)),
            total=len(self._workloads) * phases,
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
        self._ask(child.lock, self._worker.device, str(self._progress))
        faults = self._admit()
        require_writable(self._folder)
        failures = [*faults.values()]
        for workload in self._workloads:
            if workload.kernel in faults:
                continue
            self._update(state="running", kernel=workload.kernel)
            try:
                leaves = left_by(workload.kernel)
                own = told_of(workload, self._permit, self._timeout, partial(self._ask_cpu, leaves=leaves))
                where = (workload, request, str(self._folder), str(self._progress), None, own)
                self._count(self._ask(child.measure_and_save, *where, timeout=self._timeout, leaves=leaves))
            except CancelledError:
                raise
            # What the user's kernel does wrong costs none of the others, be it KeyboardInterrupt.
            except BaseException as error:
                if not is_own(workload.kernel):
                    raise
                failures.append((self._explain(error, self._timeout), trace_of(error, self._progress, self._note())))
                self._forget_note()
        if failures:
            sentence, trace = together(failures)
            self._update(state="failed", error=sentence, trace=trace)
            return
        count = len(self._workloads)
        self._update(state="done", phase="done", done=count, total=count)

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
                what = f"did not import, for the worker process {how_it_died(error.exitcode)}"
            raise Refused(f"{' or '.join(own)} {what}; see what the module does when it is imported.") from None

    def _ask_cpu(self, function: Any, *arguments: object, timeout: float, leaves: frozenset[str]) -> Any:
        return self._schedule(function, *arguments, timeout=timeout, leaves=leaves, worker=worker_for(CPU)).result()

    def _follow(self) -> None:
        try:
            self._queue.wait(self, self._is_stopping)
            self._has_turn = True
            self._work()
        except CancelledError:
            self._update(state="stopped", error=self._why_stopped)
        except Refused as refusal:
            self._update(state="refused", error=str(refusal), trace=trace_of(refusal, self._progress, self._note()))
        except StoreError as fault:
            self._update(state="failed", error=str(fault))
        except BaseException as error:  # the thread's last line of defence: whatever it is becomes a sentence
            self._update(state="failed", error=self._explain(error, self._timeout))
        finally:
            if self._has_turn:  # who never had it holds no lock: what this process holds is another Job's
                with suppress(CancelledError):
                    self._worker.schedule(child.unlock, self._worker.device)
                    if any(is_own(workload.kernel) for workload in self._workloads):
                        self._worker.schedule(child.import_torch)  # the next Job finds the fresh process warm
            self._queue.leave(self)
            # A child that was killed may have left half a note.
            shutil.rmtree(self._progress.parent, ignore_errors=True)

    def _explain(self, error: BaseException, timeout: float) -> str:
        fatal = self._note().get("fatal")
        if fatal is not None:
            return f"{self._status.kernel} lost its CUDA context: {fatal}. Run again: a fresh worker takes over."
        return explain(error, timeout, self.status().phase, self._status.kernel)

    def _ask(
        self, function: Any, *arguments: object, timeout: float | None = None, leaves: frozenset[str] = NOTHING
    ) -> Any:
        try:
            self._result(child.import_torch, timeout=START_TIMEOUT, leaves=leaves)
        except Exception as error:
            raise no_start(error, "importing torch", START_TIMEOUT) or error from None
        return self._result(function, *arguments, timeout=timeout, leaves=leaves)

    def _result(self, function: Any, *arguments: object, timeout: float | None, leaves: frozenset[str]) -> Any:
        try:
            return self._schedule(function, *arguments, timeout=timeout, leaves=leaves).result()
        except BrokenProcessPool:
            if self._note():
                raise
            # The child died before it took the task: nothing of it has run.
            return self._schedule(function, *arguments, timeout=timeout, leaves=leaves).result()

    def _schedule(
        self,
        function: Any,
        *arguments: object,
        timeout: float | None,
        leaves: frozenset[str],
        worker: Worker | None = None,
    ) -> ProcessFuture[Any]:
        with self._guard:
            if self._stopping:
                raise CancelledError
            self._future = (worker or self._worker).schedule(function, *arguments, timeout=timeout, leaves=leaves)
            return self._future

    def _count(self, run_id: str) -> None:
        """One Run more; the note goes, so that status() does not count its phases twice."""
        with self._guard:
            self._progress.unlink(missing_ok=True)
            self._status = replace(self._status, run_ids=(*self._status.run_ids, run_id))

    def _forget_note(self) -> None:
        """A task is over, or a killed child may have left its note."""
        with self._guard:
            self._progress.unlink(missing_ok=True)

    def _update(self, **changes: Any) -> None:
        with self._guard:
            self._status = replace(self._status, seconds=time.monotonic() - self._begun, **changes)

    def _note(self) -> dict[str, Any]:
        try:
            note: dict[str, Any] = json.loads(self._progress.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return note


_workers: dict[str, Worker] = {}
_workers_guard = threading.Lock()


def worker_for(device: str) -> Worker:
    """The one Worker of a device in this process, made when first asked for."""
    with _workers_guard:
        if device not in _workers:
            _workers[device] = Worker(device)
        return _workers[device]
