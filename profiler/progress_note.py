"""What a task's process tells its Job of how far it is, in a file that may be lost: it costs the progress alone."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiler.store import write_atomically


def write(file: Path, **fields: object) -> None:
    """Replace what the Job reads; a full disk costs the note, never the measurement."""
    with suppress(OSError):
        write_atomically(file, json.dumps(fields), durable=False)


def read(file: Path) -> dict[str, Any]:
    """What was told last; empty where there is no note, or somebody has cleared the folder for temporary files."""
    try:
        note = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return {}
    return note if isinstance(note, dict) else {}


def drop(file: Path) -> None:
    """Take the note of a task that is over away; a killed process may have left one."""
    with suppress(OSError):  # somebody may have put anything in its place
        file.unlink(missing_ok=True)
