"""The lock that all processes of this host share for one GPU, so that no two of them measure on it at once."""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from filelock import FileLock

POLL_SECONDS = 0.05  # how often one who waits looks

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
