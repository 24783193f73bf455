"""The lock that a host's measurements share: by processes of two users, of which some die while they hold it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler import gpu_lock
from profiler.gpu_lock import lock_named
from profiler.store import StoreError
from tests.small_disk import NOBODY, SmallDisk, anothers_folder, disk, open_folder, read_only_disk

__all__ = ["disk", "open_folder"]
ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
# As another user where a number is given; the modules are loaded before, for that user may not read them.
TAKE = """
import filelock, os, sys, time
from pathlib import Path
from profiler import gpu_lock
gpu_lock.FOLDER = Path(sys.argv[1])
os.umask(0o077)
if int(sys.argv[2]):
    os.setuid(int(sys.argv[2]))
lock = gpu_lock.lock_named("GPU-1")
lock.acquire()
print(time.monotonic(), flush=True)
sys.stdin.readline()
lock.release()
"""


Take = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(open_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this process and those started by `take` look for locks; as /tmp, every user may make it."""
    open_folder.chmod(0o1777)
    monkeypatch.setattr(gpu_lock, "FOLDER", open_folder / "locks")
    return open_folder / "locks"


@pytest.fixture
def take(folder: Path) -> Iterator[Take]:
    """Start a process that takes the lock, as another user if this one is root; it tells when it has it."""
    started = []

    def take(is_another: bool = False) -> "subprocess.Popen[str]":
        user = NOBODY if is_another and os.geteuid() == 0 else 0
        words = [sys.executable, "-c", TAKE, str(folder), str(user)]
        started.append(subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield take
    for process in started:
        process.kill()
        process.communicate()


def taken_at(process: "subprocess.Popen[str]") -> float:
    assert process.stdout is not None
    return float(process.stdout.readline())


def test_users_take_turns_whoever_made_the_files(take: Take, folder: Path) -> None:
    """The first one's umask keeps others from everything that it makes, but not from these."""
    first = take()
    taken_at(first)
    second = take(is_another=True)  # whom modes stop, as they do not stop root
    # It waits: the lock cannot be had here either.
    with pytest.raises(TimeoutError):
        lock_named("GPU-1").acquire(timeout=0.2)
    assert first.stdin is not None
    released = time.monotonic()
    first.stdin.write("done\n")
    first.stdin.flush()
    assert taken_at(second) >= released
    assert [path.name for path in folder.iterdir()] == ["GPU-1.lock"]


@pytest.mark.parametrize("is_another", [False, True], ids=["of this user", "of another"])
def test_nobody_waits_behind_a_process_that_died(take: Take, is_another: bool) -> None:
    dying = take(is_another)
    taken_at(dying)
    waiting = take()
    dying.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    assert taken_at(waiting) - killed < PATIENCE / 4  # it starts meanwhile, on a busy machine


def test_a_file_that_was_left_is_no_lock(folder: Path) -> None:
    folder.mkdir(0o777)
    (folder / "GPU-1.lock").write_text("4242")
    with lock_named("GPU-1"):
        pass


def refused() -> str:
    with pytest.raises(StoreError) as fault:
        lock_named("GPU-1").acquire(timeout=0.5)
    return str(fault.value)


CANNOT = "The GPU cannot be kept from others while it measures: "


def test_what_another_user_keeps_for_itself_is_named(folder: Path) -> None:
    folder.mkdir(0o755)
    (folder / "other").touch()
    with anothers_folder(folder):
        assert refused() == (
            f"{CANNOT}{folder}/GPU-1.lock: Permission denied; {owner()} must let everybody read and write there, or "
            "remove it."
        )
    folder.chmod(0o777)
    (folder / "GPU-1.lock").touch()
    (folder / "GPU-1.lock").chmod(0o400)
    with anothers_folder(folder):
        assert refused().startswith(f"{CANNOT}{folder}/GPU-1.lock: Permission denied; {owner()} must let everybody")


def owner() -> str:
    """Whose the folder is, as somebody else or, where this is not root, its owner is told."""
    return "its owner (user id 0)" if os.getuid() == 0 else "you, its owner,"


@pytest.mark.parametrize("is_link", [False, True], ids=["a file", "a link"])
def test_what_stands_in_the_way_is_named(folder: Path, is_link: bool) -> None:
    folder.symlink_to("/var") if is_link else folder.touch()
    assert refused().startswith(f"{CANNOT}{folder}: ")
    assert refused().endswith("must let everybody read and write there, or remove it.")


def test_a_disk_that_takes_no_lock_is_a_sentence(disk: SmallDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full one does: a lock has no content."""
    monkeypatch.setattr(gpu_lock, "FOLDER", disk.folder / "locks")
    disk.fill()
    with lock_named("GPU-1"):
        pass
    disk.free()
    with read_only_disk(disk) as reason:
        monkeypatch.setattr(gpu_lock, "FOLDER", disk.folder / "others")
        assert reason in refused()


def test_two_that_make_the_folder_at_once_make_one(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one is quicker, between the look and the making."""
    folder.mkdir()
    (folder / "GPU-1.lock").touch()
    gpu_lock._make_folder()
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    with lock_named("GPU-1"):
        pass
