"""Configurations on their way through the compiler, in a thread; status() says how far they are."""

import threading
import time
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from profiler.child import words_of
from profiler.compile_pool import compile_all
from profiler.resources import Configuration, Resources


@dataclass(frozen=True)
class CompileStatus:
    """How many of `total` configurations are done and how many of those have no code; `error` is why it broke off."""

    total: int
    done: int = 0
    without_code: int = 0
    seconds: float = 0.0
    is_over: bool = False
    error: str = ""


class CompileJob:
    """Compiles in the background; what is done is in the cache, whatever becomes of the rest."""

    def __init__(self, chosen: Sequence[Configuration], processes: int | None = None) -> None:
        self._status = CompileStatus(len(set(chosen)))
        self._guard = threading.Lock()
        self._stopping = threading.Event()
        self._why_stopped = ""
        self._begun = time.monotonic()
        self._thread = threading.Thread(target=self._follow, args=(tuple(chosen), processes), daemon=True)
        self._thread.start()

    def status(self) -> CompileStatus:
        """A snapshot."""
        with self._guard:
            status = self._status
        return status if status.is_over else replace(status, seconds=time.monotonic() - self._begun)

    def stop(self, why: str = "") -> None:
        """End it, with the configurations at hand; what is done stays in the cache. `why` is then its error."""
        self._why_stopped = why
        self._stopping.set()

    def wait(self, timeout: float | None = None) -> CompileStatus:
        """Block until it is over or `timeout` seconds have passed."""
        self._thread.join(timeout)
        return self.status()

    def _follow(self, chosen: tuple[Configuration, ...], processes: int | None) -> None:
        error = ""
        try:
            with closing(compile_all(chosen, processes=processes, stopping=self._stopping)) as found:
                self._count(found)
        except Exception as fault:  # the thread's last line of defence: whatever it is becomes a sentence
            error = f"Compiling broke off: {words_of(fault)}"
        with self._guard:
            seconds = time.monotonic() - self._begun
            self._status = replace(self._status, is_over=True, seconds=seconds, error=error or self._why_stopped)

    def _count(self, found: Generator[Resources, None, None]) -> None:
        for one in found:
            with self._guard:
                done, without = self._status.done + 1, self._status.without_code + (one.main is None)
                self._status = replace(self._status, done=done, without_code=without)
            if self._stopping.is_set():
                return
