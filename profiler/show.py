"""Runs as tables for a terminal."""

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from profiler.run import Measurement, Run


def runs_table(runs: Sequence[Run]) -> Table:
    """One row for each quantity of a whole Run, one column for each Run; launches are left to the JSON."""
    table = Table("quantity", "source", title=Text(runs[0].workload.problem.label))
    for run in runs:
        table.add_column(Text(run.workload.kernel), justify="right")
    keys = dict.fromkeys((m.name, m.source, m.unit) for run in runs for m in run.measurements if m.launch is None)
    for name, source, unit in keys:
        cells = [spell(run.find(name, source=source)) for run in runs]
        table.add_row(Text(f"{name} ({unit})"), source, *(Text(cell) for cell in cells))
    for reason in dict.fromkeys(m.note for run in runs for m in run.measurements if m.value is None):
        table.caption = f"{table.caption or '–:'} {reason}."
    return table


def stored_table(runs: Sequence[Run], folder: Path) -> Table:
    """One row for each Run."""
    table = Table("id", "created", "kernel", "problem", "device", caption=str(folder))
    for run in runs:
        workload = run.workload
        cells = (run.id, run.created, workload.kernel, workload.problem.label, run.device.name)
        table.add_row(*(Text(cell) for cell in cells))
    return table


def spell(measurement: Measurement | None) -> str:
    """A value with four significant digits; a dash where there is none."""
    return "–" if measurement is None or measurement.value is None else f"{measurement.value:,.4g}"
