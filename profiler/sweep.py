"""A sweep is a folder: its plan, a Run file for each cell that is done, a note for each that failed."""

import hashlib
import json
import re
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from kernels.problem import Refused
from kernels.shown import shown
from profiler.catalogue import catalogue
from profiler.codec import NotARun, decode, encode
from profiler.grid import MAX_CELLS, Cell, Grid, read_axes
from profiler.plausible import CREATED, printable
from profiler.run_document import MAX_FILE_BYTES
from profiler.store import (
    StoreError,
    printable_name,
    read_ordinary,
    require_writable,
    runs_folder,
    shown_path,
    write_atomically,
)
from profiler.strict_json import loads

FORMAT_VERSION = 1
PLAN_ID = re.compile(r"[A-Za-z0-9-]{1,60}")
PLAN, RUNS, FAILED, LOCK = "sweep.json", "runs", "failed", ".lock"


@dataclass(frozen=True)
class Plan:
    """What a sweep is to measure. `axes` holds the words for each value of each axis that its grid names."""

    format_version: int
    id: str
    created: str
    axes: dict[str, tuple[str, ...]]
    where: str
    trace: bool
    cells: int  # how many
    digest: str  # of their ids

    def __post_init__(self) -> None:
        if not PLAN_ID.fullmatch(self.id) or not CREATED.fullmatch(self.created):
            raise NotARun(f"its id {self.id[:40]!r} or its time {self.created[:40]!r} is none that a sweep has.")
        if not 1 <= self.cells <= MAX_CELLS:
            raise NotARun(f"it is of {self.cells} cells; a sweep has 1 to {MAX_CELLS:,}.")

    def grid(self) -> Grid:
        """The grid. Raises Refused."""
        return Grid(read_axes(self.axes), self.where, self.trace)


@dataclass(frozen=True)
class Failure:
    """A cell that has no Run, with the reason."""

    cell: str
    values: dict[str, str]
    reason: str
    created: str


@dataclass(frozen=True)
class Sweep:
    """A sweep's folder and its cells. What is done is asked of the folder each time."""

    folder: Path
    plan: Plan
    cells: tuple[Cell, ...] = field(repr=False)

    @cached_property
    def by_id(self) -> Mapping[str, Cell]:
        """Every cell by its id."""
        return {cell.id: cell for cell in self.cells}

    @property
    def runs(self) -> Path:
        """Where the Run files are."""
        return self.folder / RUNS

    def run_id(self, cell: Cell) -> str:
        """The id of the cell's Run, which its file is named after."""
        return f"{self.plan.id}-{cell.id}"

    def done(self) -> frozenset[str]:
        """Ids of cells that have a Run."""
        prefix = f"{self.plan.id}-"
        found = {path.stem.removeprefix(prefix) for path in self.runs.glob(f"{prefix}*.json")}
        return frozenset(found & self.by_id.keys())

    def broken(self) -> dict[str, str]:
        """Cells whose Run file cannot be read any more, by id, each with a sentence; every file is read for it."""
        paths = {self.runs / f"{self.plan.id}-{cell}.json": cell for cell in self.done()}
        with catalogue([], list(paths)) as read:
            good = {path for (path,) in read.runs.project("path").fetchall()}
            faults = {fault.partition(": ")[0]: fault for fault in read.faults}
        unread = {path: cell for path, cell in paths.items() if str(path) not in good}
        return {cell: faults.get(path.name, f"{path.name} cannot be read.") for path, cell in unread.items()}

    def failed(self) -> dict[str, Failure]:
        """Cells that failed and have no Run, by id; a note that cannot be read does not count, so its cell is asked."""
        found = {}
        for failure in failures(self.folder):
            if failure.cell in self.by_id:
                found[failure.cell] = failure
        done = self.done()
        return {cell: failure for cell, failure in found.items() if cell not in done}

    def left(self, again: bool = False) -> tuple[Cell, ...]:
        """Cells that have neither a Run nor, unless they are to be tried `again`, a failure."""
        over = self.done() | (set() if again else self.failed().keys())
        return tuple(cell for cell in self.cells if cell.id not in over)

    def note_failure(self, cell: Cell, reason: str) -> None:
        """Keep why a cell has no Run. Raises StoreError."""
        failure = Failure(cell.id, cell.words, printable(reason), _now())
        _write(self.folder / FAILED / f"{cell.id}.json", encode(failure))

    def forget_failure(self, cell: Cell) -> None:
        """It has a Run now."""
        with suppress(OSError):  # beside a Run a note does not count
            (self.folder / FAILED / f"{cell.id}.json").unlink(missing_ok=True)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other processes from running the same sweep; the system lets go if this one dies. Raises Refused."""
        lock = FileLock(self.folder / LOCK, timeout=0, thread_local=False)
        try:
            lock.acquire()
        except Timeout:
            raise Refused(f"Another process is running the sweep in {self.folder}; wait for it, or stop it.") from None
        except OSError as fault:
            raise StoreError(f"{shown_path(self.folder)} cannot be used: {fault.strerror or fault}.") from fault
        try:
            yield
        finally:
            lock.release()


def create(grid: Grid, folder: Path | None = None) -> Sweep:
    """A new sweep in `folder`, by default one of its own beside the Runs. Raises Refused, StoreError."""
    cells = grid.cells()
    if grid.where.strip() and list(grid.rows()) != list(grid.rows()):
        raise Refused(f"The condition {grid.where[:80]!r} keeps other cells each time; give one that does not change.")
    if all(cell.workload is None for cell in cells):
        raise Refused(f"No cell of the grid can run. {cells[0].refused}")
    plan_id = f"{datetime.now(UTC):%Y%m%dT%H%M%S}-sweep-{uuid.uuid4().hex[:8]}"
    folder = folder or sweeps_folder() / plan_id
    how = (grid.words, grid.where, grid.trace, len(cells), _digest(cells))
    sweep = Sweep(folder, Plan(FORMAT_VERSION, plan_id, _now(), *how), cells)
    for part in (RUNS, FAILED):
        require_writable(folder / part)
    with sweep.held():
        # Another process may have been quicker.
        if is_sweep(folder):
            raise Refused(f"{shown_path(folder)} holds another sweep; choose another folder.")
        _write(folder / PLAN, encode(sweep.plan))
    return sweep


def open_sweep(folder: Path) -> Sweep:
    """A sweep that was begun. Raises Refused, StoreError or NotARun where the folder holds none, or another's cells."""
    plan = read_plan(folder)
    cells = plan.grid().cells()
    if _digest(cells) != plan.digest:
        raise Refused(
            f"The grid of {shown_path(folder)} no longer gives the cells that it was begun with: its plan was edited, "
            "or another version of Bytescope began it; choose another folder. Its Runs can be opened and exported."
        )
    return Sweep(folder, plan, cells)


def is_sweep(folder: Path) -> bool:
    """Whether the folder holds a sweep's plan."""
    return (folder / PLAN).is_file()


def read_plan(folder: Path) -> Plan:
    """The plan alone; its cells are not worked out. Raises StoreError or NotARun."""
    document = _read(folder / PLAN)
    version = document.get("format_version") if isinstance(document, dict) else None
    if version != FORMAT_VERSION:
        raise NotARun(f"{printable_name(folder / PLAN)} has format_version {shown(version)}; this Bytescope reads 1.")
    plan: Plan = decode(Plan, document, PLAN)
    return plan


def failures(folder: Path) -> list[Failure]:
    """The failed cells of a sweep's folder; files that are none are passed over."""
    found = []
    for path in sorted((folder / FAILED).glob("*.json")):
        try:
            failure: Failure = decode(Failure, _read(path), path.name)
            words = {printable(name): printable(word) for name, word in failure.values.items()}
            found.append(replace(failure, values=words, reason=printable(failure.reason)))
        except (NotARun, StoreError):
            continue
    return found


def sweeps_folder() -> Path:
    """Where sweeps are kept that name no folder."""
    return runs_folder() / "sweeps"


def all_sweeps(root: Path | None = None) -> list[Path]:
    """The folders of sweeps below `root`, the newest first by their ids."""
    root = root or sweeps_folder()
    found = [folder for folder in root.iterdir() if is_sweep(folder)] if root.is_dir() else []
    return sorted(found, key=lambda folder: folder.name, reverse=True)


def _read(path: Path) -> Any:
    content = read_ordinary(path, MAX_FILE_BYTES, "a sweep's files")
    return loads(content, f"{printable_name(path)} cannot be used")


def _write(path: Path, document: Any) -> None:
    try:
        write_atomically(path, json.dumps(document, ensure_ascii=False))
    except OSError as fault:
        raise StoreError(f"{path} could not be written: {fault.strerror or fault}.") from fault


def _digest(cells: tuple[Cell, ...]) -> str:
    return hashlib.sha256(" ".join(cell.id for cell in cells).encode()).hexdigest()[:16]


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
