"""The lock that all processes of this host share for one GPU, so that no two of them measure on it at once."""

import os
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import FileLock

POLL_SECONDS = 0.05  # how often one who waits looks
TELL_SECONDS = 1.0  # how often one who waits says for whom

_locks: "dict[str, FileLock]" = {}


def lock_of(device: str) -> "FileLock":
    """A GPU's lock, by its UUID; the system drops it where this process dies."""
    import torch
    from filelock import FileLock

    if device not in _locks:
        folder = Path(tempfile.gettempdir()) / "bytescope-locks"
        if not folder.is_dir():
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)  # other users of the host wait on the same files
        name = getattr(torch.cuda.get_device_properties(device), "uuid", device)
        _locks[device] = FileLock(folder / f"{name}.lock", mode=0o666, poll_interval=POLL_SECONDS)
    return _locks[device]


def held_here(device: str) -> "FileLock | None":
    """The GPU's lock where this process has asked for it before; None in a fresh one, which holds none."""
    return _locks.get(device)


def acquire(device: str, tell: Callable[[int | None], None]) -> None:
    """Take a GPU's lock; while another process has it, `tell` its id again and again, None where it is not known."""
    from filelock import Timeout

    lock = lock_of(device)
    seconds = 0.0
    while True:
        try:
            lock.acquire(timeout=seconds)
            return
        except Timeout:
            tell(holder(Path(lock.lock_file)))
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
