"""What Runs found for tiles: those that are open, those in the folder of Runs and in its sweeps."""

import json
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from app.block_board import Measured, Subject
from app.four_kinds import hbm, l2_sm, requested
from app.recorded import EXAMPLES
from kernels.problem import Refused, TileConfig
from profiler.catalogue import SOURCE, catalogue, quoted
from profiler.codec import NotARun, decode
from profiler.grid import Grid, read_axes
from profiler.run import Run
from profiler.store import runs_folder
from profiler.sweep import FAILED, RUNS, all_sweeps, failures
from profiler.workload import Workload

NAMES = ("gpu_time_seconds", "l2_sm_bytes", "hbm_bytes", "requested_bytes", "relative_error")
RECORDED = EXAMPLES / "sweeps"


def of_runs(runs: Sequence[Run]) -> tuple[Measured, ...]:
    """What some Runs found, those of tiled kernels."""
    return tuple(_of_run(run) for run in runs if run.workload.tile is not None)


def _of_run(run: Run) -> Measured:
    told = {"l2_sm_bytes": l2_sm(run), "hbm_bytes": hbm(run), "requested_bytes": requested(run)}
    found = {name: (bytes.value, bytes.source) for name, bytes in told.items() if bytes.value is not None}
    for name in ("gpu_time_seconds", "relative_error"):
        measurement = run.find(name)
        if measurement is not None and measurement.value is not None:
            found[name] = (measurement.value, measurement.source)
    return Measured(run.workload, run.device.name, run.created, run.id, found, bool(run.recorded))


def stored() -> tuple[Measured, ...]:
    """What all saved Runs of tiled kernels found, those of sweeps and recorded ones with them.

    Files are read again once they change.
    """
    return _stored(saved_folders())


def saved_folders() -> tuple[tuple[Path, int], ...]:
    """The folders that hold saved Runs, and when each changed last, in ns; recorded sweeps and all sweeps with them."""
    folders = (RECORDED, runs_folder(), *(folder / RUNS for folder in all_sweeps()))
    return tuple((folder, _changed(folder)) for folder in folders)


def _changed(folder: Path) -> int:
    """When a file last came into the folder or went, in ns."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


@lru_cache(maxsize=2)
def _stored(folders: tuple[tuple[Path, int], ...]) -> tuple[Measured, ...]:
    with catalogue([folder for folder, _ in folders]) as opened:
        known = [name for name in NAMES if name in opened.columns]
        numbers = [column for name in known for column in (quoted(name), quoted(name + SOURCE))]
        columns = ", ".join(["workload", "device_name", "created", "id", "recorded", *numbers])
        rows = opened.where("BLOCK_M IS NOT NULL").project(columns).fetchall()
    return tuple(one for row in rows if (one := _of_row(row, known)) is not None)


def _of_row(row: Sequence[Any], known: Sequence[str]) -> Measured | None:
    """A row as Measured; None where its Workload is none, which opening its file would say."""
    workload, device, created, run_id, recorded, *numbers = row
    try:
        found = workload_of(workload)
    except (NotARun, Refused, ValueError):
        return None
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    values = {name: pair for name, pair in zip(known, pairs, strict=True) if pair[0] is not None}
    return Measured(found, device, created, run_id, values, bool(recorded))


@lru_cache(maxsize=20_000)
def workload_of(text: str) -> Workload:
    """The Workload of a catalogue's row. Raises NotARun, Refused or ValueError."""
    workload: Workload = decode(Workload, json.loads(text), "workload")
    return workload


def of_subject(found: Sequence[Measured], subject: Subject) -> tuple[Measured, ...]:
    """Those of one kernel, problem and order."""
    return tuple(
        one
        for one in found
        if one.workload.kernel == subject.kernel
        and one.workload.problem == subject.problem
        and one.workload.tile is not None
        and one.workload.tile.order == subject.order
    )


def failures_of(subject: Subject) -> dict[TileConfig, str]:
    """Why tiles of a subject have no Run, as the sweeps of the folder of Runs have noted it."""
    folders = tuple((folder, _changed(folder / FAILED)) for folder in all_sweeps())
    return {tile: reason for one, tile, reason in _failures(folders) if one == subject}


@lru_cache(maxsize=2)
def _failures(folders: tuple[tuple[Path, int], ...]) -> tuple[tuple[Subject, TileConfig, str], ...]:
    found = []
    for folder, _ in folders:
        for failure in failures(folder):
            try:
                words = {name: (word,) for name, word in failure.values.items()}
                (cell,) = Grid(read_axes(words)).cells()
            except (Refused, ValueError):
                continue  # a note that somebody has edited
            if cell.workload is not None and (tile := cell.workload.tile) is not None:
                found.append((Subject(cell.workload.kernel, cell.workload.problem, tile.order), tile, failure.reason))
    return tuple(found)
