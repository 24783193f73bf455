"""The cells of a sweep that are still to do, taken in turn by whoever is free, and how far it is."""

import threading
import time
from collections import deque
from dataclasses import dataclass

from profiler.grid import Cell
from profiler.store import StoreError
from profiler.sweep import Sweep

RUNNING, DONE, FAILED, STOPPED = "running", "done", "failed", "stopped"


@dataclass(frozen=True)
class SweepStatus:
    """How far a sweep is. state: running, done, failed (it could not go on; `error` says why) or stopped.

    `finished` counts cells that have become done or failed since it was started, `seconds` since then.
    """

    state: str
    cells: int
    done: int
    failed: int
    finished: int
    seconds: float
    running: tuple[str, ...] = ()
    error: str = ""

    @property
    def is_over(self) -> bool:
        """True once nothing more will happen."""
        return self.state != RUNNING

    @property
    def left(self) -> int:
        """Cells that are neither done nor failed."""
        return self.cells - self.done - self.failed

    @property
    def rate(self) -> float | None:
        """Cells a second; None until one is finished."""
        return self.finished / self.seconds if self.finished and self.seconds > 0 else None

    @property
    def seconds_left(self) -> float | None:
        """As long as the rest takes at this rate; None until one cell is finished."""
        return None if self.rate is None else self.left / self.rate


class Turns:
    """Hands out cells, and writes down what became of them; safe to use from threads.

    `broken` names cells whose Run files cannot be read any more; they are handed out again.
    """

    def __init__(self, sweep: Sweep, again: bool = False) -> None:
        self.sweep = sweep
        self.broken = sweep.broken()
        done = sweep.done() - self.broken.keys()
        over = done if again else done | (sweep.failed().keys() - self.broken.keys())
        self._left = deque(cell for cell in sweep.cells if cell.id not in over)
        self._done = len(done)
        self._failed = len(sweep.cells) - self._done - len(self._left)
        self._finished = 0
        self._running: dict[str, str] = {}
        self._error = ""
        self._is_stopped = False
        self._end: tuple[str, float] | None = None
        self._guard = threading.Lock()
        self._begun = time.monotonic()

    @property
    def waiting(self) -> tuple[Cell, ...]:
        """Cells that nobody has begun, in their order."""
        with self._guard:
            return tuple(self._left)

    def take(self, who: str) -> Cell | None:
        """The next cell for `who`; None where there is none, or nobody is to begin another.

        A cell that cannot be is noted as failed, and passed over.
        """
        while True:
            with self._guard:
                if self._is_stopped or self._error or not self._left:
                    return None
                cell = self._left.popleft()
                self._running[who] = cell.label
            if cell.workload is not None:
                return cell
            self.failed(who, cell, cell.refused)

    def note(self, who: str, what: str) -> None:
        """What `who` is doing."""
        with self._guard:
            self._running[who] = what

    def give_back(self, who: str, cell: Cell) -> None:
        """`who` cannot do it; somebody else may."""
        with self._guard:
            self._running.pop(who, None)
            self._left.appendleft(cell)

    def done(self, who: str, cell: Cell) -> None:
        """The cell has its Run."""
        self.broken.pop(cell.id, None)
        self.sweep.forget_failure(cell)
        self._finish(who, failed=False)

    def failed(self, who: str, cell: Cell, reason: str) -> None:
        """The cell has none, and why; where even that cannot be written, the sweep ends."""
        try:
            self.sweep.note_failure(cell, reason)
        except StoreError as fault:
            self.give_back(who, cell)
            self.give_up(str(fault))
            return
        self._finish(who, failed=True)

    def give_up(self, reason: str) -> None:
        """Nobody is to begin another cell, since none could be kept or measured."""
        with self._guard:
            # Each worker may have kept the Run it was at somewhere else, and says where.
            if reason not in self._error:
                self._error = f"{self._error} {reason}".strip()

    def stop(self) -> None:
        """Nobody is to begin another cell, since the user wants it so."""
        with self._guard:
            self._is_stopped = True

    def end(self) -> None:
        """Everybody has gone home. Counted anew: who was stopped may have kept a Run and not come to say so."""
        done, failed = len(self.sweep.done() - self.broken.keys()), len(self.sweep.failed())
        with self._guard:
            self._done, self._failed = done, failed
            self._running.clear()
            state = STOPPED if self._is_stopped else FAILED if self._error or self._left else DONE
            self._end = (state, time.monotonic() - self._begun)

    def status(self) -> SweepStatus:
        """A snapshot."""
        with self._guard:
            state, seconds = self._end or (RUNNING, time.monotonic() - self._begun)
            counts = len(self.sweep.cells), self._done, self._failed, self._finished
            return SweepStatus(state, *counts, seconds, tuple(self._running.values()), self._error)

    def _finish(self, who: str, failed: bool) -> None:
        with self._guard:
            self._running.pop(who, None)
            self._finished += 1
            self._failed += failed
            self._done += not failed
