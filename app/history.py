"""Saved Runs as a list to choose from: the newest of those that are wanted, and what there is to choose by."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from pathlib import Path
from typing import Any

from duckdb import ColumnExpression, ConstantExpression, DuckDBPyRelation, FunctionExpression

from app.four_kinds import hbm
from kernels.problem import AttentionProblem, Refused
from profiler.catalogue import Catalogue, Stored, catalogue, count
from profiler.codec import NotARun
from profiler.export import RUNS, export
from profiler.run import Run
from profiler.run_document import distinct
from profiler.run_files import RunFile, scan
from profiler.run_index import SETTLED_NANOSECONDS
from profiler.run_rows import COLUMNS
from profiler.store import StoreError, load, printable_name
from profiler.workload import Workload

MOST_RUNS = 200
MOST_CHOICES = 500
PROBLEM = tuple(field.name for field in fields(AttentionProblem))


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
            _versions(run.environment),
            run.recorded,
            bytes_moved.value,
            run.value("gpu_time_seconds"),
            run.value("relative_error"),
            ("" if bytes_moved.value is None else bytes_moved.source, time, error),
        )

    @classmethod
    def stored(cls, run: Stored) -> "Entry":
        """The entry of a Run in a catalogue, which has found the same numbers in its file."""
        moved, time, error = (run.measured(name) for name in ("hbm_bytes", "gpu_time_seconds", "relative_error"))
        return cls(
            run.path,
            run.text("id"),
            run.text("request"),
            run.text("created"),
            run.workload,
            run.text("device_name"),
            run.text("driver") or None,
            _versions(run.row),
            run.text("recorded"),
            moved[0],
            time[0],
            error[0],
            (moved[1], time[1], error[1]),
        )


def _versions(environment: dict[str, Any]) -> str:
    return ", ".join(f"{name} {environment[name]}" for name in ("torch", "triton") if environment.get(name))


@dataclass(frozen=True)
class Wanted:
    """Which Runs to list: those that have all that is given here, and every word of `text` somewhere in their facts."""

    kernel: str | None = None
    device: str | None = None
    problem: AttentionProblem | None = None
    text: str = ""


ALL = Wanted()


@dataclass(frozen=True)
class Folder:
    """The newest wanted entries, newest file first; how many Runs there are, and how many are wanted.

    `faults` is a sentence for every file that is not one of Runs; the others are what there is to choose by.
    """

    entries: tuple[Entry, ...] = ()
    faults: tuple[str, ...] = ()
    count: int = 0
    wanted: int = 0
    kernels: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    problems: tuple[AttentionProblem, ...] = ()


def read_folder(folder: Path, most: int = MOST_RUNS, wanted: Wanted = ALL) -> Folder:
    """The newest `most` wanted Runs of a folder."""
    files, _ = scan(folder)
    newest = max((file.changed for file in files), default=0)
    # A file that has just been written may change again and look the same.
    moment = time.time_ns() if newest > time.time_ns() - SETTLED_NANOSECONDS else 0
    return _read(folder, most, wanted, hash(frozenset(files)), moment)


@lru_cache(maxsize=32)
def _read(folder: Path, most: int, wanted: Wanted, files: int, moment: int) -> Folder:
    """read_folder; `files` and `moment` are there to notice a change."""
    with catalogue([folder]) as saved:
        chosen = choose(saved.runs, wanted)
        stored, faults = saved.newest(chosen, most)
        return Folder(
            tuple(map(Entry.stored, stored)),
            (*saved.faults, *faults),
            count(saved.runs),
            count(chosen),
            _choices(saved, "kernel"),
            _choices(saved, "device_name"),
            _problems(saved),
        )


def choose(runs: DuckDBPyRelation, wanted: Wanted) -> DuckDBPyRelation:
    """The wanted ones of the Runs of a catalogue."""
    given = {"kernel": wanted.kernel, "device_name": wanted.device}
    if wanted.problem is not None:
        given |= {name: getattr(wanted.problem, name) for name in PROBLEM}
    for name, value in given.items():
        if value is not None:
            runs = runs.filter(ColumnExpression(name) == ConstantExpression(value))
        elif name in PROBLEM:
            runs = runs.filter(ColumnExpression(name).isnull())
    for word in wanted.text.lower().split():
        runs = runs.filter(FunctionExpression("contains", _FACTS, ConstantExpression(word)))
    return runs


_TILE = FunctionExpression("concat", ColumnExpression("BLOCK_M"), ConstantExpression("×"), ColumnExpression("BLOCK_N"))
_TEXTS = [ColumnExpression(name) for name, kind in COLUMNS.items() if kind != "BOOLEAN"]
_FACTS = FunctionExpression("lower", FunctionExpression("concat_ws", ConstantExpression(" "), *_TEXTS, _TILE))


def _choices(saved: Catalogue, column: str) -> tuple[str, ...]:
    found = saved.runs.aggregate(column).order(column).limit(MOST_CHOICES).fetchall()
    return tuple(value for (value,) in found)


def _problems(saved: Catalogue) -> tuple[AttentionProblem, ...]:
    columns = ", ".join(f'"{name}"' for name in PROBLEM)
    problems = []
    for values in saved.runs.aggregate(columns).order(columns).limit(MOST_CHOICES).fetchall():
        try:
            problems.append(AttentionProblem(*values))
        except Refused:
            continue
    return tuple(problems)


def table_of(folder: Path, wanted: Wanted, format: str) -> bytes:
    """All wanted Runs of a folder as a Parquet or CSV file. Raises StoreError."""
    with catalogue([folder]) as saved:
        target = saved.scratch / f"runs.{format}"
        export(saved, choose(saved.runs, wanted), RUNS, format, target)
        return target.read_bytes()


def newest_request(folder: Path) -> tuple[Run, ...]:
    """The Runs asked for together last; broken files are passed over, and older requests are not read."""
    request = ""
    runs: list[Run] = []
    for file in newest_files(folder):
        try:
            found = load(folder / file.name)
            distinct([*runs, *found])
        except (NotARun, StoreError):
            continue
        if runs and found[0].request != request:
            break
        request = found[0].request
        runs += [run for run in found if run.request == request]
    return tuple(sorted(runs, key=lambda run: run.created))


def newest_files(folder: Path) -> list[RunFile]:
    """The files of a folder that may be Runs, the one that changed last first."""
    return sorted(scan(folder)[0], key=lambda file: (file.modified, file.name), reverse=True)


def load_entries(entries: Sequence[Entry]) -> tuple[tuple[Run, ...], tuple[str, ...]]:
    """The Runs of entries, and a sentence for each file that cannot be read any more."""
    runs: list[Run] = []
    faults: list[str] = []
    wanted = {entry.run_id for entry in entries}
    for path in dict.fromkeys(entry.path for entry in entries):
        try:
            runs = [*distinct([*runs, *(run for run in load(path) if run.id in wanted)])]
        except (NotARun, StoreError) as fault:
            faults.append(f"{printable_name(path)}: {fault}")
    return tuple(runs), tuple(faults)
