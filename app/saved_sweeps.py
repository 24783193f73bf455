"""Sweeps that are kept beside the Runs: what each was to measure, and how far it has come."""

import os
from dataclasses import dataclass
from pathlib import Path

from app.history import Entry, read_folder
from app.selection import MAX_COMPARED
from profiler.codec import NotARun
from profiler.grid import AXES
from profiler.plausible import printable
from profiler.store import StoreError, printable_name
from profiler.sweep import FAILED, RUNS, all_sweeps, read_plan

MOST_SWEEPS = 20


@dataclass(frozen=True)
class SavedSweep:
    """A sweep's folder, and how many of its planned cells have a Run, or a note that they failed."""

    folder: Path
    created: str
    kernels: tuple[str, ...]
    planned: int
    done: int
    failed: int

    @property
    def name(self) -> str:
        """The folder's name, as it can be shown."""
        return printable(self.folder.name)


def read_sweeps(root: Path) -> tuple[list[SavedSweep], list[str]]:
    """The newest sweeps of a folder, and a sentence for each whose plan cannot be read."""
    sweeps: list[SavedSweep] = []
    faults: list[str] = []
    for folder in all_sweeps(root)[:MOST_SWEEPS]:
        try:
            plan = read_plan(folder)
        except (NotARun, StoreError) as fault:
            faults.append(f"{printable_name(folder)}: {fault}")
            continue
        # A grid that names no kernel has the usual one.
        kernels = tuple(map(printable, plan.axes.get("kernel", (str(AXES["kernel"].default),))))
        counted = (_files(folder / part) for part in (RUNS, FAILED))
        sweeps.append(SavedSweep(folder, printable(plan.created), kernels, plan.cells, *counted))
    return sweeps, faults


def newest_entries(sweep: SavedSweep) -> tuple[Entry, ...]:
    """A sweep's newest Runs, as many as every page compares."""
    return read_folder(sweep.folder / RUNS, MAX_COMPARED).entries


def _files(folder: Path) -> int:
    try:
        with os.scandir(folder) as entries:
            return sum(entry.name.endswith(".json") for entry in entries)
    except OSError:
        return 0
