"""Run files of a folder as a list to choose from; a file is read again only after it has changed."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from app.four_kinds import hbm
from profiler.codec import NotARun
from profiler.run import Run
from profiler.store import StoreError, load, printable_name, require_text_name
from profiler.workload import Workload

MOST_FILES = 200


@dataclass(frozen=True)
class Entry:
    """What the list shows of one Run; the Run itself stays in its file."""

    path: Path
    run_id: str
    request: str
    created: str
    workload: Workload
    device: str
    driver: str | None
    versions: str
    recorded: str
    hbm_bytes: float | None
    gpu_time_seconds: float | None
    relative_error: float | None
    sources: tuple[str, str, str]  # of these three numbers, empty where there is none

    @classmethod
    def of(cls, run: Run, path: Path) -> "Entry":
        """The entry of a Run in a file."""
        bytes_moved = hbm(run)
        found = [run.find(name) for name in ("gpu_time_seconds", "relative_error")]
        time, error = ("" if part is None or part.value is None else part.source for part in found)
        return cls(
            path,
            run.id,
            run.request,
            run.created,
            run.workload,
            run.device.name,
            run.device.driver,
            ", ".join(f"{name} {run.environment[name]}" for name in ("torch", "triton") if name in run.environment),
            run.recorded,
            bytes_moved.value,
            run.value("gpu_time_seconds"),
            run.value("relative_error"),
            ("" if bytes_moved.value is None else bytes_moved.source, time, error),
        )


@dataclass(frozen=True)
class Folder:
    """Entries, newest file first, and a sentence for every file that is not one of Runs."""

    entries: tuple[Entry, ...] = ()
    faults: tuple[str, ...] = ()


def read_folder(folder: Path, most: int = MOST_FILES) -> Folder:
    """The newest `most` Run files of a folder."""
    entries: list[Entry] = []
    faults: list[str] = []
    for path, modified, size in _files(folder)[:most]:
        found = _read(path, modified, size)
        if isinstance(found, str):
            faults.append(found)
        else:
            entries += found
    return Folder(tuple(entries), tuple(faults))


def newest_request(folder: Path) -> tuple[Run, ...]:
    """The Runs asked for together last; broken files are passed over."""
    request = ""
    runs: list[Run] = []
    for path, modified, size in _files(folder):
        found = _read(path, modified, size)
        if isinstance(found, str):
            continue
        if runs and found[0].request != request:
            break
        request = found[0].request
        runs += [run for run in load_entries(found)[0] if run.request == request]
    return tuple(sorted(runs, key=lambda run: run.created))


def load_entries(entries: Sequence[Entry]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The Runs of entries, and a sentence for each file that cannot be read any more."""
    runs: list[Run] = []
    faults: list[str] = []
    wanted = {entry.run_id for entry in entries}
    for path in dict.fromkeys(entry.path for entry in entries):
        try:
            runs += [run for run in load(path) if run.id in wanted]
        except (NotARun, StoreError) as fault:
            faults.append(f"{printable_name(path)}: {fault}")
    return tuple(dict.fromkeys(runs)), tuple(faults)


def _files(folder: Path) -> list[tuple[Path, int, int]]:
    """(path, time of change in ns, size) of every JSON file, newest first."""
    found = []
    for path in folder.glob("*.json") if folder.is_dir() else ():
        try:
            facts = path.stat()
        except OSError:
            continue
        found.append((path, facts.st_mtime_ns, facts.st_size))
    return sorted(found, key=lambda item: (item[1], item[0].name), reverse=True)


@lru_cache(maxsize=1024)
def _read(path: Path, modified: int, size: int) -> tuple[Entry, ...] | str:
    """The entries of a file, or what is wrong with it; time and size are there to notice a change."""
    try:
        require_text_name(path)
        return tuple(Entry.of(run, path) for run in load(path))
    except (NotARun, StoreError) as fault:
        return f"{printable_name(path)}: {fault}"
