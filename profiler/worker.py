"""A warm child process for each device; free of torch, safe to use from threads."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any
from weakref import WeakKeyDictionary

from pebble import ProcessFuture

from profiler import child
from profiler.failures import explain, no_start
from profiler.gpu_errors import ContextLost
from profiler.job import DEFAULT_TIMEOUT, START_TIMEOUT, Job, JobStatus
from profiler.job_queue import JobQueue
from profiler.own_job import NOTHING
from profiler.own_kernel import NOBODY, Permit
from profiler.run import DeviceInfo
from profiler.task_pipe import TaskFailed, order_of
from profiler.task_process import Ended, TaskProcess
from profiler.timeout import require_possible_timeout
from profiler.workload import CPU, Workload

__all__ = ["DEFAULT_TIMEOUT", "START_TIMEOUT", "Job", "JobStatus", "Worker", "worker_for"]

MOST_STARTS = 3  # of processes that end before they begin with a task
STOP_SECONDS = 10.0  # to wait for the end of a process, at most


@dataclass(frozen=True)
class Task:
    """A function of some module that is to run in the child process; `leaves` as in Worker.schedule."""

    function: Callable[..., Any]
    arguments: tuple[object, ...]
    timeout: float | None
    leaves: frozenset[str]
    future: "ProcessFuture[Any]"
    is_over: threading.Event  # what was cancelled may go on in the process for a moment


class Worker:
    """One child process that does one task after the other, replaced after a crash, a time-out or a stop.

    A thread takes the tasks in the order in which they came. The process and what it is spoken to with belong to that
    thread alone, and the process never has more than the one task: what ends it costs nobody else's.
    """

    def __init__(self, device: str) -> None:
        self.device = device
        self.queue = JobQueue()
        self._guard = threading.Lock()
        self._tasks: SimpleQueue[Task | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._process: TaskProcess | None = None
        self._left = NOTHING  # what own kernels have left in the process
        self._stopped = False
        self._futures: WeakKeyDictionary[ProcessFuture[Any], threading.Event] = WeakKeyDictionary()
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

    def submit(self, workloads: tuple[Workload, ...], timeout: float = DEFAULT_TIMEOUT, permit: Permit = NOBODY) -> Job:
        """Queue Workloads, to be measured one after the other; returns at once. Raises Refused for a time-out of 0.

        `permit` says which own kernels may be imported; without it none may.
        """
        require_possible_timeout(timeout)
        return Job(self, workloads, timeout, permit)

    def schedule(
        self, function: Any, *arguments: object, timeout: float | None = None, leaves: frozenset[str] = NOTHING
    ) -> "ProcessFuture[Any]":
        """Run a function of profiler.child in the child process. Raises CancelledError once the Worker is stopped.

        `timeout` counts from when it begins; the future can be cancelled until it ends. `leaves` is what it leaves in
        the process of the user's own, which outlives it there: whatever is to run without that gets a fresh process.
        """
        with self._guard:
            if self._stopped:
                raise CancelledError
            if self._thread is None:
                self._thread = threading.Thread(target=self._serve, name=f"worker of {self.device}", daemon=True)
                self._thread.start()
            future: ProcessFuture[Any] = ProcessFuture()
            self._futures[future] = threading.Event()
            self._tasks.put(Task(function, arguments, timeout, leaves, future, self._futures[future]))
            return future

    def settle(self, future: "ProcessFuture[Any]") -> None:
        """Wait until the process does nothing of a task any more, at most STOP_SECONDS."""
        with self._guard:
            is_over = self._futures.get(future)
        if is_over is not None:
            is_over.wait(STOP_SECONDS)

    def beside(self) -> "Worker":
        """The CPU's Worker, which interprets what this one measures."""
        return worker_for(CPU)

    def stop(self) -> None:
        """End the child and whatever it does."""
        with self._guard:
            self._stopped = True
            futures, thread = tuple(self._futures), self._thread
        for future in futures:
            future.cancel()
        self._tasks.put(None)
        if thread is not None:
            thread.join(STOP_SECONDS)

    def _serve(self) -> None:
        """What is done, in the Worker's own thread."""
        while (task := self._tasks.get()) is not None:
            try:
                value = self._result(task)
            except BaseException as error:  # the last line of defence: whoever waits for it is told, whatever it is
                with suppress(InvalidStateError):  # it was cancelled, and stays so
                    task.future.set_exception(error)
            else:
                try:
                    task.future.set_result(value)
                except InvalidStateError:
                    # Cancelled as it ended: what it has done there, such as hold a GPU, is nobody's now.
                    self._end_process()
            task.is_over.set()
            del task  # its future is kept by whoever wants it
        self._end_process()

    def _result(self, task: Task) -> Any:
        """What comes of a task; raises what it does, and what TaskProcess.do raises."""
        future = task.future
        if future.cancelled():
            raise CancelledError
        try:
            order = order_of(task.function, task.arguments)
        except Exception as error:
            raise TaskFailed(f"it cannot be sent to the worker's process ({child.words_of(error)})") from None
        for starts_left in reversed(range(MOST_STARTS)):
            try:
                went_well, value = self._ready_for(task.leaves).do(order, task.timeout, future)
                break
            except BaseException as error:
                self._process = None
                if not isinstance(error, Ended) or error.has_begun or not starts_left:
                    raise
        if went_well:
            return value
        if isinstance(value, ContextLost):
            self._end_process()
        raise value

    def _ready_for(self, leaves: frozenset[str]) -> TaskProcess:
        """The process, a fresh one where there is none or something else was left in it."""
        if self._process is not None and not self._left <= leaves:
            self._end_process()
        if self._process is None:
            try:
                self._process = TaskProcess(self.device)
            except OSError as error:
                raise child.CannotStart(
                    f"The worker cannot start: the system makes no process for it ({child.words_of(error)}). End other "
                    "programs, and run again."
                ) from None
        self._left = leaves
        return self._process

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.end()
            self._process = None


_workers: dict[str, Worker] = {}
_workers_guard = threading.Lock()


def worker_for(device: str) -> Worker:
    """The one Worker of a device in this process, made when first asked for."""
    with _workers_guard:
        if device not in _workers:
            _workers[device] = Worker(device)
        return _workers[device]
