"""Runs as files: one JSON document for each Run, written atomically, listed newest first."""

import errno
import os
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO

from profiler.codec import NotARun
from profiler.plausible import printable
from profiler.run import Measurement, Run
from profiler.run_document import MAX_FILE_BYTES, from_json, to_json

ROOM_BYTES = 2**20  # of a usual Run
ABANDONED_SECONDS = 3_600.0
MOST_SHOWN = 400  # characters of a path


class StoreError(OSError):
    """A Run that could not be written or read; the message is a sentence with the reason."""


class RunRefused(StoreError):
    """A Run that no file may hold, whatever the disk."""


@dataclass(frozen=True)
class Listing:
    """What a folder holds: files of Runs, newest first, and a sentence for every file that is not one."""

    runs: tuple[Run, ...]
    faults: tuple[str, ...]


def runs_folder() -> Path:
    """Where Runs are kept: $BYTESCOPE_RUNS, else the user's data folder."""
    chosen = os.environ.get("BYTESCOPE_RUNS")
    if chosen:
        return Path(chosen).expanduser()
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(data) / "bytescope" / "runs"


def save(run: Run, folder: Path | None = None) -> Path:
    """Write one Run, of which `readable` is what can be opened again, and return its path.

    A reader never sees half a file; raises StoreError.
    """
    folder = folder or runs_folder()
    path = folder / f"{run.id}.json"
    text = to_json([readable(run)])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as fault:
        raise StoreError(f"The Run could not be saved in {folder}: {fault.strerror or fault}.") from fault
    return path


def is_kept(run_id: str, folder: Path) -> bool:
    """Whether a folder holds the Run of that id, whole."""
    try:
        return any(run.id == run_id for run in load(folder / f"{run_id}.json"))
    except (NotARun, StoreError):
        return False


def remove_half_written(run_id: str, folder: Path) -> None:
    """Remove what a process left that was killed while it wrote the Run of that id."""
    with suppress(OSError):
        for part in folder.glob(f"{_half_written(run_id)}*.part"):
            part.unlink()


def _half_written(name: str) -> str:
    """How the name of a file begins that is to become one of this name."""
    return f".{name[-40:]}."


def readable(run: Run) -> Run:
    """The Run itself where its file could be opened again; else, with the reason, the part of it that could be.

    That part lacks what single launches had, and the allocator's history. Raises StoreError where what the whole Run
    measured cannot be opened either.
    """
    fault = _why_unreadable(run)
    if fault is None:
        return run
    reason = printable(f"left out of the Run, since its file could not be opened: {fault}")
    lost = {(m.name, m.unit, m.source) for m in run.measurements if m.launch is not None}
    reasons = tuple(Measurement(name, None, unit, source, reason) for name, unit, source in sorted(lost))
    whole = tuple(m for m in run.measurements if m.launch is None)
    less = replace(run, measurements=(*whole, *reasons), kernels=(), spans=(), memory=None)
    if _why_unreadable(less) is not None:
        raise RunRefused(f"The Run of {run.workload.kernel} is not saved: {fault} Please report this line.")
    return less


def _why_unreadable(run: Run) -> str | None:
    try:
        from_json(to_json([run]))
    except ValueError as fault:
        return str(fault)
    return None


def require_writable(folder: Path) -> None:
    """Raise StoreError where a Run could not be written into `folder`, which is made if it is missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # A full disk still takes an empty file.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(bytes(ROOM_BYTES))
    except OSError as fault:
        raise StoreError(f"Nothing could be written to {folder}: {fault.strerror or fault}.") from fault
    _remove_abandoned(folder)


def _remove_abandoned(folder: Path) -> None:
    """Remove what was half written by processes that were killed; no file takes ABANDONED_SECONDS to write."""
    for part in folder.glob(".*.part"):
        with suppress(OSError):
            if time.time() - part.stat().st_mtime > ABANDONED_SECONDS:
                part.unlink()


def write_atomically(path: Path, text: str, durable: bool = True) -> None:
    """`replaced` with a text."""
    with replaced(path, durable) as file:
        file.write(text.encode())


@contextmanager
def replaced(path: Path, durable: bool = True) -> Iterator[IO[bytes]]:
    """A file beside the target to write to: flushed to the disk if `durable`, then renamed over the target.

    Nothing is renamed over what is no ordinary file, nor where the block raises.
    """
    require_ordinary(path)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=_half_written(path.stem), suffix=".part")
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def require_ordinary(path: Path) -> None:
    """Raise OSError where something stands at `path` that is no ordinary file: it is not to be replaced."""
    if path.exists() and not path.is_file():
        raise OSError(errno.EEXIST, "what stands there is no ordinary file")


def printable_name(path: Path) -> str:
    """A file's name as text that can be shown: bytes that are not UTF-8, and control characters, are replaced."""
    return printable(path.name or str(path)) or repr(path.name)


def shown_path(path: Path | str) -> str:
    """A path in a sentence: as it is where it can be printed and does not end in blanks, else as Python spells it.

    Of one that is longer than a sentence its ends.
    """
    text = str(path)
    if len(text) > MOST_SHOWN:
        text = f"{text[: MOST_SHOWN // 2]}…{text[-MOST_SHOWN // 2 :]}"
    return text if text.isprintable() and text and text.strip() == text else repr(text)


def require_text_name(path: Path) -> None:
    """Raise StoreError for a file whose name is not UTF-8; no page or report could show it."""
    try:
        path.name.encode()
    except UnicodeEncodeError:
        raise StoreError("It cannot be read: its name is not UTF-8; rename it.") from None


def load(path: Path) -> tuple[Run, ...]:
    """The Runs of one file. Raises NotARun or StoreError, each a sentence."""
    return from_json(_content(path))


def load_named(path: Path) -> tuple[Run, ...]:
    """As `load`, for one of several files that were named together: every sentence says which one it is about."""
    content = _content(path)
    try:
        return from_json(content)
    except NotARun as fault:
        raise NotARun(f"{printable_name(path)}: {fault}") from fault


def _content(path: Path) -> bytes:
    """A Run file's bytes, as `read_ordinary`."""
    return read_ordinary(path, MAX_FILE_BYTES, "Run files")


def read_ordinary(path: Path, most: int, kind: str) -> bytes:
    """A file's bytes; what is no ordinary file might never end.

    Raises NotARun or StoreError, each a sentence that names the file.
    """
    try:
        found = path.stat()
        if not stat.S_ISREG(found.st_mode):
            raise NotARun(f"{printable_name(path)} is not a file.")
        if found.st_size > most:
            raise NotARun(
                f"{printable_name(path)} is {found.st_size / 2**20:.0f} MiB; {kind} stay under {most >> 20} MiB."
            )
        return path.read_bytes()
    except OSError as fault:
        raise StoreError(f"{printable_name(path)} could not be read: {fault.strerror or fault}.") from fault


def list_runs(folder: Path | None = None, most: int | None = None) -> Listing:
    """The Runs of a folder, newest file first, at most `most`; a broken file is named, not fatal."""
    folder = folder or runs_folder()
    files = sorted(folder.glob("*.json"), key=_modified, reverse=True) if folder.is_dir() else []
    runs: list[Run] = []
    faults: list[str] = []
    for path in files[:most]:
        try:
            require_text_name(path)
            runs.extend(load(path))
        except (NotARun, StoreError) as fault:
            faults.append(f"{printable_name(path)}: {fault}")
    return Listing(tuple(runs), tuple(faults))


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
