"""Runs of a catalogue as one Parquet or CSV file: a row for each Run, or a row for each Measurement."""

import shutil
from pathlib import Path

import duckdb

from profiler.catalogue import NEWEST_FIRST, Catalogue, quoted, reason_of
from profiler.measured_rows import measurements
from profiler.store import StoreError, replaced, shown_path

FORMATS = PARQUET, CSV = "parquet", "csv"
TABLES = RUNS, MEASUREMENTS = "runs", "measurements"


def export(
    catalogue: Catalogue, runs: duckdb.DuckDBPyRelation, table: str, format: str, target: Path
) -> tuple[str, ...]:
    """Write Runs, newest first, to `target` in one step; a sentence for each file that was lost since it was listed.

    Raises StoreError where the target cannot be written, or the table is more than there is room for.
    """
    faults: tuple[str, ...] = ()
    written = catalogue.scratch / f"export.{format}"
    try:
        if table == MEASUREMENTS:
            rows, faults = measurements(catalogue, runs)
        else:
            rows = runs.order(NEWEST_FIRST).project(", ".join(map(quoted, catalogue.columns)))
        if format == PARQUET:
            rows.write_parquet(str(written), compression="zstd")
        else:
            _inert(rows).write_csv(str(written))
        with replaced(target) as copy, written.open("rb") as table_file:
            shutil.copyfileobj(table_file, copy)
    except (OSError, duckdb.Error) as fault:
        reason = getattr(fault, "strerror", None) or reason_of(fault)
        raise StoreError(f"{shown_path(target)} could not be written: {reason}.") from fault
    finally:
        written.unlink(missing_ok=True)
    return faults


def _inert(rows: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """The rows with an apostrophe before each text that a spreadsheet would run as a formula."""
    cells = [
        f"CASE WHEN regexp_matches({name}, '^[=+@\\t\\r-]') THEN concat('''', {name}) ELSE {name} END AS {name}"
        if str(kind) == "VARCHAR"
        else name
        for name, kind in zip(map(quoted, rows.columns), rows.types, strict=True)
    ]
    return rows.project(", ".join(cells))
