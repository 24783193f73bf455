"""Waiting for a GPU's lock, and telling for whom."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from profiler import gpu_lock

TELL_SECONDS = 1.0  # how often one who waits says for whom


def acquire(device: str, tell: Callable[[int | None], None]) -> None:
    """Take a GPU's lock; while another process has it, `tell` its id again and again, None where it is not known."""
    from filelock import Timeout

    lock = gpu_lock.lock_of(device)
    seconds = 0.0
    while True:
        try:
            lock.acquire(timeout=seconds)
            return
        except Timeout:
            tell(holder(lock.path))
            seconds = TELL_SECONDS


def holder(file: Path) -> int | None:
    """The process that holds the lock of a file, as Linux tells; None where it does not, or knows it by no number."""
    with suppress(OSError):
        inode = str(file.stat().st_ino)
        for line in Path("/proc/locks").read_text().splitlines():
            # 1: FLOCK ADVISORY WRITE pid major:minor:inode start end; a line with -> is of one who waits.
            words = line.split()
            if words[1] == "FLOCK" and words[5].rpartition(":")[2] == inode and int(words[4]) not in (0, os.getpid()):
                return int(words[4])
    return None
