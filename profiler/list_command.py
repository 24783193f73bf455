"""`list` on the command line: kernels, and the Runs that are saved, newest first, all or those that a filter takes."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from kernels.base import all_kernels
from kernels.problem import LINEAR
from profiler.catalogue import Stored, catalogue
from profiler.codec import encode
from profiler.device import detect, limits
from profiler.run import Measurement
from profiler.show import spell
from profiler.store import StoreError, printable_name, runs_folder, shown_path
from profiler.sweep import RUNS, is_sweep

MOST_FAULTS = 20
Where = Annotated[
    str | None,
    typer.Option(help="Only Runs for which this DuckDB expression holds, such as \"kernel = 'flash' and heads > 8\"."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on the last line of stdout.")]


def list_saved(
    places: Annotated[list[Path] | None, typer.Argument(help="Folders of Runs, sweeps, or Run files.")] = None,
    as_json: AsJson = False,
    most: Annotated[int, typer.Option(min=1, help="Newest Runs to list.")] = 50,
    where: Where = None,
) -> None:
    """Kernels, and the Runs that are saved, newest first. Exit code 2 where nothing that is named holds a Run."""
    with catalogue(*divided(places)) as saved:
        chosen, faults = saved.newest(saved.runs if where is None else saved.where(where), most)
    print_faults((*saved.faults, *faults))
    if places and saved.faults and not chosen and where is None:
        raise typer.Exit(2)
    if as_json:
        print(json.dumps({"kernels": list(all_kernels()), "runs": [_line(run) for run in chosen]}))
        return
    console = Console()
    here = (None, *(limits(gpu) for gpu in detect()))
    absent = [kernel for kernel in all_kernels().values() if all(kernel.why_not_on(gpu) for gpu in here)]
    console.print("Kernels: " + ", ".join(name for name, kernel in all_kernels().items() if kernel not in absent))
    for kernel in absent:
        # The last device is the one that comes nearest: a GPU where there is one.
        console.print(f"Not here: {kernel.name}. {kernel.why_not_on(here[-1])}")
    console.print(_table(chosen, ", ".join(map(str, places or [runs_folder()]))))


def divided(places: list[Path] | None) -> tuple[list[Path], list[Path]]:
    """Folders, of a sweep that of its Runs, and files; the folder of Runs for none. Raises StoreError."""
    if not places:
        return [runs_folder()], []
    folders = [place for place in places if place.is_dir()]
    files = [place for place in places if place not in folders]
    for file in files:
        if not file.exists():
            raise StoreError(f"{shown_path(file)} does not exist.")
    return [folder / RUNS if is_sweep(folder) else folder for folder in folders], files


def files_of(place: Path) -> list[Path]:
    """The Run files of a folder or of a sweep, by name; the file itself where it is one. Raises StoreError."""
    if not place.is_dir():
        return [place]
    folder = place / RUNS if is_sweep(place) else place
    found = sorted(folder.glob("*.json"))
    if not found:
        raise StoreError(f"There is no Run in {shown_path(place)}.")
    return found


def print_faults(faults: Sequence[str]) -> None:
    """Name files that hold no Run, on stderr; of very many, the first."""
    for fault in faults[:MOST_FAULTS]:
        print(fault, file=sys.stderr)
    if len(faults) > MOST_FAULTS:
        print(f"{len(faults) - MOST_FAULTS:,} more files hold no Run that can be read.", file=sys.stderr)


def _line(run: Stored) -> dict[str, Any]:
    return {
        "id": run.text("id"),
        "created": run.text("created"),
        "device": run.text("device_name"),
        "workload": encode(run.workload),
    }


def _table(runs: Sequence[Stored], where: str) -> Table:
    """One row for each Run, with the name of its file."""
    table = Table(caption=Text(f"in {where}"))
    for title in ("file", "kernel", "problem", "tile", "time", "device"):
        table.add_column(title, overflow="fold")
    for run in runs:
        tile = run.workload.tile
        order = "" if tile is None or tile.order == LINEAR else f", {tile.order}"
        cut = (
            "–" if tile is None else f"{tile.BLOCK_M}×{tile.BLOCK_N}, {tile.num_warps} warps, {tile.num_stages} stages"
        )
        seconds, source = run.measured("gpu_time_seconds")
        cells = (
            printable_name(run.path),
            run.workload.kernel + order,
            run.workload.problem.label,
            cut,
            "–" if seconds is None else spell(Measurement("gpu_time_seconds", seconds, "s", source)),
            run.text("device_name"),
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table
