"""The lock that all processes of this host share for one GPU, so that no two of them measure on it at once."""

import errno
import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from profiler.store import StoreError

# Not where TMPDIR says: that may be another place for each user, and locks in two places are none.
FOLDER = Path("/tmp/bytescope-locks")
POLL_SECONDS = 0.05  # how often one who waits looks
EVERYBODY, EVERYBODYS_FILE = 0o777, 0o666


class GpuLock:
    """A FileLock; what keeps it from being taken, other than who has it, is a StoreError with a sentence."""

    def __init__(self, path: Path) -> None:
        # Loaded only where something is measured: it takes longer than all that else a probe starts with.
        from filelock import FileLock

        self.path = path
        self._lock = FileLock(path, mode=EVERYBODYS_FILE, poll_interval=POLL_SECONDS)

    def acquire(self, timeout: float = -1) -> None:
        """Wait for it, for ever or so many seconds. Raises StoreError, and filelock's Timeout."""
        try:
            self._lock.acquire(timeout)
        except TimeoutError:
            raise
        except OSError as fault:
            raise _unusable(self.path, fault) from fault

    def release(self) -> None:
        """Let others have it, once for each time that it was taken."""
        self._lock.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *fault: object) -> None:
        self.release()


_locks: dict[str, GpuLock] = {}


def lock_of(device: str) -> GpuLock:
    """A GPU's lock, by its UUID; the system drops it where this process dies. Raises StoreError."""
    import torch

    if device not in _locks:
        _locks[device] = lock_named(str(getattr(torch.cuda.get_device_properties(device), "uuid", device)))
    return _locks[device]


def lock_named(name: str) -> GpuLock:
    """The lock of a name, which every user of this host can take. Raises StoreError."""
    try:
        if not FOLDER.is_dir():
            _make_folder()
        if not stat.S_ISDIR(FOLDER.lstat().st_mode):
            raise NotADirectoryError(errno.ENOTDIR, "it is a link, and locks in two places are none")
    except OSError as fault:
        raise _unusable(FOLDER, fault) from fault
    return GpuLock(FOLDER / f"{name}.lock")


def held_here(device: str) -> GpuLock | None:
    """The GPU's lock where this process has asked for it before; None in a fresh one, which holds none."""
    return _locks.get(device)


def _make_folder() -> None:
    """Make FOLDER, everybody's from its first moment: whoever makes it may die before the next line."""
    made = Path(tempfile.mkdtemp(prefix=f"{FOLDER.name}-", dir=FOLDER.parent))
    try:
        made.chmod(EVERYBODY)
        made.rename(FOLDER)
    except OSError:
        with suppress(OSError):
            made.rmdir()
        # Another process was quicker.
        if not FOLDER.is_dir():
            raise


def _unusable(place: Path, fault: OSError) -> StoreError:
    """Why no lock can be taken there, and who can change that."""
    advice = "free some space there"
    if isinstance(fault, PermissionError | NotADirectoryError | FileExistsError):
        advice = f"{_owner(place)} must let everybody read and write there, or remove it"
    return StoreError(
        f"The GPU cannot be kept from others while it measures: {place}: {fault.strerror or fault}; {advice}."
    )


def _owner(place: Path) -> str:
    """Who owns what stands in the way: the file or, where that is not there, its folder."""
    for one in (place, place.parent):
        with suppress(OSError):
            uid = one.lstat().st_uid
            return "you, its owner," if uid == os.geteuid() else f"its owner (user id {uid})"
    return "its owner"
