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
from profiler.store import printable_name, runs_folder

MOST_FAULTS = 20
Where = Annotated[
    str | None,
    typer.Option(help="Only Runs for which this DuckDB expression holds, such as \"kernel = 'flash' and heads > 8\"."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on the last line of stdout.")]


def list_saved(
    as_json: AsJson = False,
    most: Annotated[int, typer.Option(min=1, help="Newest Runs to list.")] = 50,
    where: Where = None,
) -> None:
    """Kernels, and the Runs that are saved, newest first."""
    with catalogue([runs_folder()]) as saved:
        chosen, faults = saved.newest(saved.runs if where is None else saved.where(where), most)
    print_faults((*saved.faults, *faults))
    if as_json:
        print(json.dumps({"kernels": list(all_kernels()), "runs": [_line(run) for run in chosen]}))
        return
    console = Console()
    console.print("Kernels: " + ", ".join(all_kernels()))
    console.print(_table(chosen, runs_folder()))


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


def _table(runs: Sequence[Stored], folder: Path) -> Table:
    """One row for each Run, with the name of its file."""
    table = Table(caption=Text(f"in {folder}"))
    for title in ("file", "kernel", "problem", "device"):
        table.add_column(title, overflow="fold")
    for run in runs:
        tile = run.workload.tile
        order = "" if tile is None or tile.order == LINEAR else f", {tile.order}"
        cells = (
            printable_name(run.path),
            run.workload.kernel + order,
            run.workload.problem.label,
            run.text("device_name"),
        )
        table.add_row(*(Text(cell) for cell in cells))
    return table
