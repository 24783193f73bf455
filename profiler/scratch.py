"""Temporary folders that outlive nobody: the process that makes one holds its lock, and what the dead left is removed.

A process that is killed removes nothing. The system drops its locks all the same, whatever its number is used for by
now, so the next one can tell whose folders are nobody's.
"""

import atexit
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from weakref import WeakSet

from filelock import FileLock, Timeout

from profiler.store import StoreError

PREFIX, LOCK = "bytescope-", ".lock"
YOUNG_SECONDS = 60.0  # between a folder, its lock's file and the lock itself some time passes


class Scratch:
    """A new empty folder for temporary files, this process's until `remove`. Raises StoreError where there is none."""

    def __init__(self) -> None:
        try:
            root = tempfile.gettempdir()
            _remove_leftovers(root)
            self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=root))
            # Any thread may remove the folder.
            self._lock = FileLock(self.folder / LOCK, timeout=0, thread_local=False)
            self._lock.acquire()
        except OSError as fault:
            raise StoreError(
                f"No folder for temporary files could be made: {fault.strerror or fault}. Free some space there, or "
                "name another folder with TMPDIR."
            ) from fault
        _held.add(self)

    def remove(self) -> None:
        """Remove the folder with all that is in it, even if somebody else has begun to."""
        shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):
            self._lock.release()
        _held.discard(self)


@contextmanager
def scratch() -> Iterator[Path]:
    """A Scratch's folder, until the block ends. Raises StoreError."""
    found = Scratch()
    try:
        yield found.folder
    finally:
        found.remove()


def remove_leftovers(root: Path) -> None:
    """Remove this user's folders below `root` whose process has died; what cannot be removed stays."""
    try:
        with os.scandir(root) as entries:
            named = [Path(entry.path) for entry in entries if entry.name.startswith(PREFIX)]
    except OSError:
        return
    for folder in named:
        with suppress(OSError):
            if _is_nobodys(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _is_nobodys(folder: Path) -> bool:
    """Whether it is a folder of a Scratch that no process holds any more. Raises OSError."""
    found, lock = folder.lstat(), folder / LOCK
    # A folder without a lock is of something else, such as the locks of GPUs.
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or not lock.is_file():
        return False
    if time.time() - lock.lstat().st_mtime < YOUNG_SECONDS:
        return False
    try:
        with FileLock(lock, timeout=0):
            return True
    except Timeout:
        return False


@cache
def _remove_leftovers(root: str) -> None:
    """Once for each process and place."""
    remove_leftovers(Path(root))


_held: WeakSet[Scratch] = WeakSet()


@atexit.register
def _remove_all() -> None:
    """Threads that would remove theirs do not live to see the end of the process."""
    for one in tuple(_held):
        one.remove()
