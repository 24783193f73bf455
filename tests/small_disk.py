"""Disks that are full or must not be written to, made for real by what this user may do, never by a fake."""

import errno
import os
import resource
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

NOBODY = 65534
SIZE = "16m"


@dataclass
class SmallDisk:
    """A folder on a disk of its own; without the right to mount one, a folder and a limit on this user's files."""

    folder: Path
    is_mounted: bool

    @property
    def reason(self) -> str:
        """What the system says of a write once it is full."""
        return os.strerror(errno.ENOSPC if self.is_mounted else errno.EFBIG)

    def fill(self, leave: int = 0) -> None:
        """Take all room but so many bytes."""
        if not self.is_mounted:
            resource.setrlimit(resource.RLIMIT_FSIZE, (leave, resource.getrlimit(resource.RLIMIT_FSIZE)[1]))
            return
        with (self.folder / "ballast").open("wb", buffering=0) as ballast, suppress(OSError):
            while ballast.write(bytes(2**16)):
                pass
        size = (self.folder / "ballast").stat().st_size
        os.truncate(self.folder / "ballast", size - leave)

    def free(self) -> None:
        """There is room again."""
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        (self.folder / "ballast").unlink(missing_ok=True)

    def names(self) -> set[str]:
        """What is on it, without what fills it."""
        return {path.name for path in self.folder.iterdir()} - {"ballast"}


@contextmanager
def small_disk(folder: Path, size: str = SIZE) -> Iterator[SmallDisk]:
    """A disk of that size at a folder."""
    folder.mkdir(exist_ok=True)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    is_mounted = mount("-t", "tmpfs", "-o", f"size={size},mode=755", "none", str(folder))
    disk = SmallDisk(folder, is_mounted)
    try:
        yield disk
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        if is_mounted:
            subprocess.run(["umount", "-l", folder], check=True, timeout=30)


def mount(*words: str) -> bool:
    """Whether this user may do that."""
    try:
        done = subprocess.run(["mount", *words], capture_output=True, timeout=30, check=False)
    except OSError:
        return False
    return done.returncode == 0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """An empty disk of SIZE."""
    with small_disk(tmp_path / "disk") as found:
        yield found


@contextmanager
def read_only_disk(disk: SmallDisk) -> Iterator[str]:
    """Nothing can be written to it inside; yields what the system says then."""
    if disk.is_mounted and mount("-o", "remount,ro", str(disk.folder)):
        try:
            yield os.strerror(errno.EROFS)
        finally:
            assert mount("-o", "remount,rw", str(disk.folder))
    else:
        with anothers_folder(disk.folder) as reason:
            yield reason


@contextmanager
def anothers_folder(folder: Path) -> Iterator[str]:
    """Inside, the folder may be read and not written to; root, whom no mode stops, is somebody else meanwhile."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    folder.chmod(0o555)
    user = os.geteuid()
    try:
        if user == 0:
            os.seteuid(NOBODY)
        yield os.strerror(errno.EACCES)
    finally:
        os.seteuid(user)
        folder.chmod(mode)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """An empty folder that every user of this host can reach, which those of pytest are not."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        yield Path(folder)
