"""What was being measured when the server was killed: a note for each Job and sweep, which goes once that is over."""

import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Protocol

from profiler.plausible import printable
from profiler.proc_stat import STARTED_TICKS, fields
from profiler.store import read_ordinary, runs_folder, write_atomically

FOLDER = "unfinished"
MOST_BYTES = 2**20
KEPT_SECONDS = 7 * 86_400.0  # of a note that nobody comes back for


class Waited(Protocol):
    """A Job or a SweepJob."""

    def wait(self) -> Any:
        """Block until it is over."""


@dataclass(frozen=True)
class Note:
    """What was asked for, by whom, and which process was to do it.

    `form` is what the form held, `browser` is empty where the note is for whoever comes.
    """

    what: str
    kernels: tuple[str, ...] = ()
    browser: str = ""
    form: Mapping[str, object] = field(default_factory=dict)
    begun: float = 0.0  # seconds since 1970
    process: str = ""


def keep_until_over(note: Note, task: Waited) -> None:
    """Write the note, and take it away when the task is over; a disk that does not take it costs the note alone."""
    path = runs_folder() / FOLDER / f"{uuid.uuid4().hex}.json"
    document = asdict(note) | {"begun": time.time(), "process": _process(os.getpid())}
    with suppress(OSError, TypeError, ValueError):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, json.dumps(document), durable=False)
        threading.Thread(target=_forget, args=(path, task), name="unfinished", daemon=True).start()


def take(browser: str) -> list[Note]:
    """The notes of processes that are gone, for this browser, oldest first; each is told once."""
    found = []
    for path in (runs_folder() / FOLDER).glob("*.json"):
        note = _read(path)
        if note is None or time.time() - note.begun > KEPT_SECONDS:
            _remove(path)
        elif note.browser in ("", browser) and _is_gone(note.process) and _remove(path):
            found.append(note)
    return sorted(found, key=lambda note: note.begun)


def sentence(note: Note, finished: Sequence[str]) -> str:
    """What became of it; `finished` are the kernels whose Runs are there. Empty where nothing is missing."""
    missing = [name for name in note.kernels if name not in finished]
    if note.kernels and not missing:
        return ""
    there = [name for name in note.kernels if name in finished]
    kept = f" {' and '.join(there)} was finished and is shown." if there else ""
    again = "Press Run to measure again." if note.kernels else "Go on with it on the Runs page; nothing is repeated."
    return f"The server was ended while it measured {printable(note.what)}.{kept} {again}"


def _forget(path: Path, task: Waited) -> None:
    task.wait()
    _remove(path)


def _remove(path: Path) -> bool:
    """False where somebody else was quicker."""
    try:
        path.unlink()
    except OSError:
        return False
    return True


def _read(path: Path) -> Note | None:
    """None for what is no note."""
    try:
        document = json.loads(read_ordinary(path, MOST_BYTES, "notes"))
        note = Note(**document | {"kernels": tuple(map(str, document["kernels"]))})
    except (OSError, ValueError, TypeError, KeyError, RecursionError):  # NotARun is a ValueError
        return None
    is_sound = isinstance(note.form, dict) and isinstance(note.begun, int | float) and isinstance(note.what, str)
    return note if is_sound and isinstance(note.browser, str) and isinstance(note.process, str) else None


def _is_gone(process: str) -> bool:
    """Whether a process of this host has ended; of another host nobody here knows."""
    host, _, rest = process.partition(" ")
    pid = rest.partition(" ")[0]
    return host == socket.gethostname() and pid.isdecimal() and _process(int(pid)) != process


def _process(pid: int) -> str:
    """A process by host, id and, for ids come again, when it was started."""
    started = ""
    with suppress(OSError, IndexError):
        started = fields(pid)[STARTED_TICKS]
    return f"{socket.gethostname()} {pid} {started}"
