"""What Linux tells of a process in /proc."""

from pathlib import Path

STATE, PARENT, SESSION, USER_TICKS, SYSTEM_TICKS, STARTED_TICKS = 0, 1, 3, 11, 12, 19


def fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the state on, numbered as above. Raises OSError where there is no such process.

    pid (name) state …: the name before them may hold anything, a parenthesis too.
    """
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
