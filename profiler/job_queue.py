"""The Jobs of one Worker, first come, first served: only the first one works, and whoever leaves lets the next in."""

import threading
from collections.abc import Callable
from concurrent.futures import CancelledError


class JobQueue:
    """An order of whoever waits for the same device in this process; safe to use from threads."""

    def __init__(self) -> None:
        self._line: list[object] = []
        self._changed = threading.Condition()

    def __len__(self) -> int:
        with self._changed:
            return len(self._line)

    def join(self, who: object) -> None:
        """Stand at the end."""
        with self._changed:
            self._line.append(who)

    def wait(self, who: object, is_stopped: Callable[[], bool]) -> None:
        """Block until it is the turn of `who`; who is stopped leaves. Raises CancelledError then.

        `is_stopped` is asked again after each `wake`.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._line[:1] == [who] or is_stopped())
            if not is_stopped():
                return
        self.leave(who)
        raise CancelledError

    def wake(self) -> None:
        """Let everybody see whether they are stopped."""
        with self._changed:
            self._changed.notify_all()

    def ahead(self, who: object) -> int:
        """How many stand before `who`; 0 for the first, and for who has left."""
        with self._changed:
            return self._line.index(who) if who in self._line else 0

    def leave(self, who: object) -> bool:
        """`who` is done, or gone; True if it stood here."""
        with self._changed:
            stood = who in self._line
            if stood:
                self._line.remove(who)
                self._changed.notify_all()
            return stood

    def let_others(self, who: object, is_stopped: Callable[[], bool]) -> None:
        """Give the turn to those who wait now, and block until it comes round. Raises CancelledError as `wait` does."""
        self.leave(who)
        self.join(who)
        self.wait(who, is_stopped)
