"""`export` on the command line: saved Runs as one Parquet or CSV file, from a folder, a sweep or single files."""

from pathlib import Path
from typing import Annotated

import typer

from kernels.problem import Refused
from profiler.catalogue import catalogue, count
from profiler.export import FORMATS, PARQUET, RUNS, TABLES, export
from profiler.list_command import Where, divided, print_faults
from profiler.output import require_place
from profiler.store import StoreError, shown_path

Table = Annotated[str, typer.Option(help="runs: a row for each Run; measurements: one for each Measurement.")]


def export_runs(
    places: Annotated[list[Path] | None, typer.Argument(help="Folder of Runs, sweep, or Run files.")] = None,
    format: Annotated[str, typer.Option(help="parquet or csv.")] = PARQUET,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
    where: Where = None,
    table: Table = RUNS,
) -> None:
    """Write saved Runs as one table, to be read by anything that reads Parquet or CSV."""
    _require_known("format", format, FORMATS)
    _require_known("table", table, TABLES)
    target = Path(f"{table}.{format}") if out is None else out
    require_place(target)
    folders, files = divided(places)
    if is_read(target, folders, files):
        raise Refused(f"{shown_path(target)} is one of the files that are exported; name another.")
    with catalogue(folders, files) as saved:
        print_faults(saved.faults)
        if count(saved.runs) == 0:
            raise StoreError(
                f"There is no Run in {', '.join(map(shown_path, [*folders, *files]))}; nothing was written."
            )
        chosen = saved.runs if where is None else saved.where(where)
        rows = count(chosen)
        if rows == 0:
            raise Refused("The filter takes none of the Runs; nothing was written.")
        lost = export(saved, chosen, table, format, target)
    print_faults(lost)
    print(f"{rows:,} Run{'' if rows == 1 else 's'} written to {shown_path(target)}")
    raise typer.Exit(1 if lost else 0)


def _require_known(option: str, given: str, known: tuple[str, ...]) -> None:
    if given not in known:
        raise Refused(f"{option} is {given[:40]!r}; choose {' or '.join(known)}.")


def is_read(target: Path, folders: list[Path], files: list[Path]) -> bool:
    """Whether the target is among what is read."""
    resolved = target.resolve()
    inside = resolved.suffix == ".json" and resolved.parent in [folder.resolve() for folder in folders]
    return inside or resolved in [file.resolve() for file in files]
