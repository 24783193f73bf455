"""A limit on what a process may allocate, so that the kernel's OOM killer really strikes: a control group for it."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from profiler.oom import OomKills

GONE_SECONDS = 10.0  # until the system has forgotten a killed process


class NoLimit(RuntimeError):
    """No control group can be made here; the message says why."""


@contextmanager
def limited(pid: int, size: int) -> Iterator[None]:
    """In the block, what the process allocates from now on may take `size` bytes. Raises NoLimit.

    The group is made below the one where the process is, or beside it, and removed at the end, when the process must be
    gone.
    """
    group = _group(pid, size)
    try:
        yield
    finally:
        end = time.monotonic() + GONE_SECONDS
        while group.exists():
            try:
                group.rmdir()
            except OSError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.02)


def _group(pid: int, size: int) -> Path:
    """A new group with the process in it."""
    counted = OomKills(pid).file
    if os.geteuid() != 0:
        raise NoLimit("only root may make a control group")
    if counted is None:
        raise NoLimit("the control group of the worker's process has no memory controller")
    is_first_version = counted.name == "memory.oom_control"
    why: OSError | None = None
    # In version 2 a group with processes of its own can have none below it that account for memory.
    for above in (counted.parent, counted.parent.parent):
        group = above / f"bytescope-{os.getpid()}"
        try:
            group.mkdir()
        except OSError as error:
            why = why or error
            continue
        try:
            (group / ("memory.limit_in_bytes" if is_first_version else "memory.max")).write_text(str(size))
            with suppress(OSError):  # where there is no swap, nothing says how much of it may be used
                if is_first_version:
                    (group / "memory.memsw.limit_in_bytes").write_text(str(size))
                else:
                    (group / "memory.swap.max").write_text("0")
            (group / "cgroup.procs").write_text(str(pid))
            return group
        except OSError as error:
            why = why or error
            group.rmdir()
    raise NoLimit(f"no control group with a limit can be made here ({why and why.strerror})")
