"""Whether the kernel's OOM killer struck where a process runs: what its control group (cgroup) has counted."""

from functools import cache
from pathlib import Path
from typing import NamedTuple

MOUNTS = Path("/proc/self/mountinfo")


class Hierarchy(NamedTuple):
    """A mounted tree of control groups that account for memory; `root` is the group at its top."""

    root: str
    place: Path
    file: str
    is_unified: bool


class OomKills:
    """How often the OOM killer has struck in the control group in which a process is now."""

    def __init__(self, pid: int) -> None:
        self._file = _file_of(pid)
        self._before = count_in(self._file)

    def have_risen(self) -> bool:
        """Whether it has struck since; False where nobody counts."""
        now = count_in(self._file)
        return now is not None and self._before is not None and now > self._before


def count_in(file: Path | None) -> int | None:
    """The number behind `oom_kill` in memory.events (cgroup v2) or memory.oom_control (v1); None without one."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
    except (OSError, ValueError, IndexError):
        return None


def _file_of(pid: int) -> Path | None:
    """The file that counts for a process; None where its group's has none, as at the top of cgroup v2."""
    try:
        groups = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    for hierarchy in _hierarchies():
        for line in groups:
            _, controllers, group = line.split(":", 2)
            if (controllers == "") if hierarchy.is_unified else ("memory" in controllers.split(",")):
                # A container sees its own group at the top, whatever that is called outside.
                folder = hierarchy.place / group.removeprefix(hierarchy.root).strip("/")
                # Version 2 accounts for a group without a file of its own in the next one above that has one.
                above = (one for one in (folder, *folder.parents) if one.is_relative_to(hierarchy.place))
                if folder.is_dir() and (file := next(filter(Path.is_file, (a / hierarchy.file for a in above)), None)):
                    return file
    return None


@cache
def _hierarchies() -> tuple[Hierarchy, ...]:
    """Version 1 first: where both are mounted, it is the one that accounts for memory."""
    found = []
    try:
        lines = MOUNTS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return ()
    for line in lines:
        # id parent device root place options … - type source options of the file system
        before, _, after = line.partition(" - ")
        (_, _, _, root, place, *_), (kind, *_, options) = before.split(), after.split()
        if kind == "cgroup2":
            found.append(Hierarchy(root, Path(place), "memory.events", True))
        elif kind == "cgroup" and "memory" in options.split(","):
            found.append(Hierarchy(root, Path(place), "memory.oom_control", False))
    return tuple(sorted(found, key=lambda one: one.is_unified))
