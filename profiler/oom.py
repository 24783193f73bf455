"""Whether the kernel's OOM killer struck where a process runs: what its control group (cgroup) has counted."""

from functools import cache
from pathlib import Path
from typing import NamedTuple


class Hierarchy(NamedTuple):
    """A mounted tree of control groups that account for memory; `root` is the group at its top."""

    root: str
    place: Path
    file: str
    is_unified: bool


class OomKills:
    """How often the OOM killer has struck in the control group in which a process is now."""

    def __init__(self, pid: int) -> None:
        self.file = file_that_counts(_text(f"/proc/{pid}/cgroup"), _mounted())
        self._before = count_in(self.file)

    def have_risen(self) -> bool:
        """Whether it has struck since; False where nobody counts."""
        now = count_in(self.file)
        return now is not None and self._before is not None and now > self._before


def count_in(file: Path | None) -> int | None:
    """The number behind `oom_kill` in memory.events (cgroup v2) or memory.oom_control (v1); None without one."""
    try:
        lines = file.read_text(encoding="utf-8").splitlines() if file else []
        return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
    except (OSError, ValueError, IndexError):
        return None


def file_that_counts(groups: str, mounted: tuple[Hierarchy, ...]) -> Path | None:
    """The file with the count for a process, from its /proc/PID/cgroup.

    None where its group has none, as at the top of cgroup v2, or is not to be seen from here.
    """
    for hierarchy in mounted:
        for line in groups.splitlines():
            _, controllers, group = line.split(":", 2)
            if (controllers == "") if hierarchy.is_unified else ("memory" in controllers.split(",")):
                # A container sees its own group at the top, whatever that is called outside.
                folder = hierarchy.place / group.removeprefix(hierarchy.root).strip("/")
                # Version 2 accounts for a group without a file of its own in the next one above that has one.
                above = (one for one in (folder, *folder.parents) if one.is_relative_to(hierarchy.place))
                if folder.is_dir() and (file := next(filter(Path.is_file, (a / hierarchy.file for a in above)), None)):
                    return file
    return None


def hierarchies(mounts: str) -> tuple[Hierarchy, ...]:
    """Those in /proc/self/mountinfo. Version 1 first: where both are mounted, that one accounts for memory."""
    found = []
    for line in mounts.splitlines():
        # id parent device root place options … - type source options of the file system
        before, _, after = line.partition(" - ")
        (_, _, _, root, place, *_), (kind, _, options) = before.split(), after.split(maxsplit=2)
        if kind == "cgroup2":
            found.append(Hierarchy(root, Path(place), "memory.events", True))
        elif kind == "cgroup" and "memory" in options.split(","):
            found.append(Hierarchy(root, Path(place), "memory.oom_control", False))
    return tuple(sorted(found, key=lambda one: one.is_unified))


@cache
def _mounted() -> tuple[Hierarchy, ...]:
    return hierarchies(_text("/proc/self/mountinfo"))


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
