"""A warm child process for each device; free of torch, safe to use from threads."""

import threading
from concurrent.futures import CancelledError
from typing import Any
from weakref import WeakSet

from pebble import ProcessFuture, ProcessPool

from kernels.problem import Refused
from profiler import child
from profiler.failures import explain, no_start
from profiler.job import DEFAULT_TIMEOUT, START_TIMEOUT, Job, JobStatus
from profiler.own_job import NOTHING
from profiler.own_kernel import NOBODY, Permit
from profiler.run import DeviceInfo
from profiler.spawn import LoneContext
from profiler.workload import CPU, Workload

__all__ = ["DEFAULT_TIMEOUT", "START_TIMEOUT", "Job", "JobStatus", "Worker", "worker_for"]

REST_SECONDS = 0.01  # until a process that rests is replaced


class Worker:
    """One child process, started once, replaced by pebble after a crash, a time-out or a stop."""

    def __init__(self, device: str) -> None:
        self.device = device
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

    def submit(self, workloads: tuple[Workload, ...], timeout: float = DEFAULT_TIMEOUT, permit: Permit = NOBODY) -> Job:
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

    def beside(self) -> "Worker":
        """The CPU's Worker, which interprets what this one measures."""
        return worker_for(CPU)

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


_workers: dict[str, Worker] = {}
_workers_guard = threading.Lock()


def worker_for(device: str) -> Worker:
    """The one Worker of a device in this process, made when first asked for."""
    with _workers_guard:
        if device not in _workers:
            _workers[device] = Worker(device)
        return _workers[device]
