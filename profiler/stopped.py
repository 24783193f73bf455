"""SIGTERM and SIGHUP taken for Ctrl-C, so that a program that is ended from outside ends as one that a user stops."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

STOPPED = 130  # the exit code that shells know of Ctrl-C

SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextmanager
def stopped_by_signals() -> Iterator[list[int]]:
    """Inside, the first of SIGNALS raises KeyboardInterrupt, and a second ends the process; yields what has come.

    Signals are the main thread's affair: in another one nothing changes.
    """
    received: list[int] = []

    def stop(number: int, frame: FrameType | None) -> None:
        received.append(number)
        for one in SIGNALS:
            signal.signal(one, signal.SIG_DFL)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield received
        return
    # One that is ignored, as nohup has it, stays so.
    taken = [one for one in SIGNALS if signal.getsignal(one) == signal.SIG_DFL]
    for one in taken:
        signal.signal(one, stop)
    try:
        yield received
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)
