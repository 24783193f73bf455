"""One process that does a worker's tasks, on a line of its own: whatever becomes of both, the next has another line."""

import atexit
import math
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from pebble import ProcessExpired, ProcessFuture

from profiler.oom import OomKills
from profiler.proc_stat import STATE, fields
from profiler.spawn import LoneContext
from profiler.task_pipe import Answer, read_answer, receive, send, serve

LOOK_SECONDS = 0.05  # how often one who waits for an answer looks whether it is still wanted, and may still come
LONGEST_LOOK = 1.0  # seconds between two looks that count: more pass only where this process itself was stopped
SILENT_SECONDS = 2.0  # after which a warm process that has not begun, or one that was stopped, is given up
START_SECONDS = 120.0  # in which a fresh one begins
END_SECONDS = 5.0  # until a killed one is gone; more only where the kernel or a driver does not let it go
GONE_LOOK_SECONDS = 0.005  # how often one looks whether it is

OUT_OF_MEMORY = "was killed by the system, which ran out of memory"
STOOD_STILL = f"was stopped by a signal and had not gone on after {SILENT_SECONDS:.0f} s"
SILENT = f"did not answer within {SILENT_SECONDS:.0f} s"
OFF_LINE = "broke off its line to Bytescope"

_guard = threading.Lock()
_all: "WeakSet[TaskProcess]" = WeakSet()
_is_closing = False


class Ended(ProcessExpired):
    """The process ended, or was given up, before it answered; `how` says it where its exit code alone cannot.

    Where it had not begun, nothing of the task has run.
    """

    def __init__(self, exitcode: int, how: str = "", has_begun: bool = True) -> None:
        super().__init__(how or f"exit code {exitcode}", code=exitcode)  # type: ignore[no-untyped-call]
        self.how, self.has_begun = how, has_begun


class TaskProcess:
    """A process, started to do tasks for a device, for one thread to use. It has ended after whatever `do` raises."""

    def __init__(self, device: str) -> None:
        self._line, theirs = socket.socketpair()
        self._line.settimeout(LOOK_SECONDS)
        self._process = LoneContext().Process(target=serve, args=(theirs, device), name="bytescope-worker")
        self._is_warm = False
        try:
            with theirs, _guard:
                if _is_closing:
                    raise CancelledError
                self._process.start()
                _all.add(self)
        except BaseException:
            self._line.close()
            raise

    @property
    def pid(self) -> int:
        """The system's number of it."""
        return self._process.pid or 0

    def do(self, order: bytes, timeout: float | None, future: "ProcessFuture[Any]") -> Answer:
        """What comes of an order; `future` is set to running when the process begins with it.

        Raises Ended, TimeoutError after `timeout` seconds of work, and CancelledError once the future is cancelled.
        """
        try:
            return self._do(order, timeout, future)
        except BaseException:
            self.end()
            raise

    def end(self) -> None:
        """Kill it, and wait until it is gone; at once where it is."""
        self._line.close()
        self._process.kill()
        self._exit_code()

    def _do(self, order: bytes, timeout: float | None, future: "ProcessFuture[Any]") -> Answer:
        oom = OomKills(self.pid)
        watch = Watch(self.pid, future.cancelled, has_ended=lambda: self._process.exitcode is not None)
        has_begun, was_warm = False, self._is_warm
        try:
            watch.allow(SILENT_SECONDS if was_warm else START_SECONDS)
            send(self._line, order, watch.look)
            receive(self._line, watch.look)
            self._is_warm = has_begun = True
            if not future.set_running_or_notify_cancel():
                raise CancelledError
            watch.allow(timeout)
            return read_answer(receive(self._line, watch.look))
        except StoodStill:
            raise Ended(-signal.SIGKILL, STOOD_STILL, has_begun) from None
        except TimeoutError:
            if has_begun or not was_warm:
                raise
            raise Ended(-signal.SIGKILL, SILENT, has_begun) from None
        except (EOFError, OSError):
            code = self._exit_code()
            if code is None:
                raise Ended(-signal.SIGKILL, OFF_LINE, has_begun) from None
            is_oom = code == -signal.SIGKILL and oom.have_risen()
            raise Ended(code, OUT_OF_MEMORY if is_oom else "", has_begun) from None

    def _exit_code(self) -> int | None:
        """Of the process, which is about to end; None if it does not."""
        # multiprocessing's join waits for ever for one that has closed its files and lives on.
        end = time.monotonic() + END_SECONDS
        while (code := self._process.exitcode) is None and time.monotonic() < end:
            time.sleep(GONE_LOOK_SECONDS)
        return code


class StoodStill(Exception):
    """The process was stopped, as by SIGSTOP, and does not go on."""


class Watch:
    """Says, while nothing comes from a process, whether to go on waiting."""

    def __init__(self, pid: int, is_cancelled: Callable[[], bool], has_ended: Callable[[], bool]) -> None:
        self._pid = pid
        self._is_cancelled, self._has_ended = is_cancelled, has_ended
        self._left, self._still, self._seen = math.inf, 0.0, time.monotonic()

    def allow(self, seconds: float | None) -> None:
        """From now on wait for so long."""
        self._left, self._seen = math.inf if seconds is None else seconds, time.monotonic()

    def look(self) -> None:
        """Raises CancelledError, EOFError, TimeoutError or StoodStill where there is nothing to wait for."""
        now = time.monotonic()
        passed, self._seen = min(now - self._seen, LONGEST_LOOK), now
        self._left -= passed
        self._still = self._still + passed if self._is_stopped() else 0.0
        if self._is_cancelled():
            raise CancelledError
        # A process that it has forked keeps its line open.
        if self._has_ended():
            raise EOFError
        if self._still > SILENT_SECONDS:
            raise StoodStill
        if self._left <= 0:
            raise TimeoutError

    def _is_stopped(self) -> bool:
        with suppress(OSError):
            return fields(self._pid)[STATE] == "T"  # a debugger's stop is another one
        return False


@atexit.register
def _end_all() -> None:
    """multiprocessing, whose turn is later, would wait for them for ever."""
    global _is_closing
    with _guard:
        _is_closing = True
        left = tuple(_all)
    for process in left:
        process._process.kill()
