"""No process is left behind: one that ends with its parent, and a program that ends with all that it started."""

import ctypes
import multiprocessing
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from profiler.proc_stat import PARENT, SESSION, fields

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER, PR_GET_CHILD_SUBREAPER = 1, 36, 37
PARENT_POLL_SECONDS = 0.5
END_SECONDS, END_POLL_SECONDS = 5.0, 0.01

_guard = threading.Lock()


def end_with_parent() -> None:
    """From now on this process ends when its parent does, whatever hangs in it: nothing may be left on the GPU.

    Its parent starts it from a thread that lives at least as long.
    """
    started_by = multiprocessing.parent_process()
    parent = os.getppid() if started_by is None else started_by.pid
    # No thread of Python's runs while a library that hangs holds the GIL; the kernel's signal needs none. But it comes
    # when the THREAD that started this process ends, though the parent may live on. So spawn.py starts workers from a
    # thread that never ends, the thread of the doctor's loop ends its probes before itself, and GpuFeed's thread reads
    # gpu_sample until that ends.
    is_watched = _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    # It may have ended before.
    if os.getppid() != parent:
        os._exit(1)
    if not is_watched:
        threading.Thread(target=_outlive_nobody, args=(parent,), daemon=True).start()


def _outlive_nobody(parent: int | None) -> None:
    while os.getppid() == parent:
        time.sleep(PARENT_POLL_SECONDS)
    os._exit(1)


def _prctl(option: int, argument: Any) -> bool:
    """Ask Linux; False where it did not do it, or this is no Linux."""
    with suppress(OSError, AttributeError):
        return bool(ctypes.CDLL(None).prctl(option, argument, 0, 0, 0) == 0)
    return False


@contextmanager
def family(words: Sequence[str], **options: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """Start a program in a session of its own; when the block ends, so has it and all that it started.

    Also what has left its session, or lost its parent. One family at a time. Raises OSError where it does not start.
    """
    with _guard, _adopting():
        others = {pid for pid, (parent, _) in _processes().items() if parent == os.getpid()}
        process = subprocess.Popen(words, start_new_session=True, **options)
        try:
            yield process
        finally:
            _end(process, others)


@contextmanager
def _adopting() -> Iterator[None]:
    """Inside, a descendant whose parent ends becomes this process's child, and not init's."""
    before = ctypes.c_int()
    _prctl(PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        _prctl(PR_SET_CHILD_SUBREAPER, before.value)


def _end(process: "subprocess.Popen[bytes]", others: set[int]) -> None:
    if process.poll() is None:
        process.kill()
    end = time.monotonic() + END_SECONDS
    # Again and again: whoever is killed may have started one more, and leaves its own children to us.
    while (left := _relatives(process.pid, others)) and time.monotonic() < end:
        for pid in left:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
            with suppress(OSError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(END_POLL_SECONDS)
    with suppress(subprocess.TimeoutExpired):
        process.wait(END_SECONDS)


def _relatives(leader: int, others: set[int]) -> set[int]:
    """The leader's session, what this process has adopted, and all their children; without the leader itself.

    A child of ours that is in another session and not one of `others`, which were here before, has been adopted.
    """
    processes, me, session = _processes(), os.getpid(), os.getsid(0)
    adopted = {pid for pid, (parent, its) in processes.items() if parent == me and its != session} - others
    found, is_growing = {leader} | adopted, True
    while is_growing:
        more = {pid for pid, (parent, its) in processes.items() if its == leader or parent in found}
        is_growing = not more <= found
        found |= more
    return found - {leader}


def _processes() -> dict[int, tuple[int, int]]:
    """Parent and session of every process, from Linux's /proc."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            told = fields(int(folder.name))
            found[int(folder.name)] = int(told[PARENT]), int(told[SESSION])
    return found
