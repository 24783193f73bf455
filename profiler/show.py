"""Runs as tables for a terminal."""

import math
from collections.abc import Sequence

from rich.table import Column, Table
from rich.text import Text

from kernels.problem import LINEAR
from profiler.run import HELD, Measurement, Run

PREFIXES = {-3: "n", -2: "µ", -1: "m", 0: "", 1: "k", 2: "M", 3: "G", 4: "T", 5: "P"}
STEPS = {2.0**40: "TiB", 2.0**30: "GiB", 2.0**20: "MiB", 2.0**10: "KiB", 1.0: "B"}
PLAIN = ("1", "%", "°C")  # units that take no prefix


def runs_table(runs: Sequence[Run]) -> Table:
    """One row for each quantity of a whole Run, one column for each Run; launches are left to the JSON."""
    # A narrow terminal folds names and numbers; cut off, reads and writes could not be told apart.
    folded = (Column(name, overflow="fold") for name in ("quantity", "source"))
    table = Table(*folded, title=Text(runs[0].workload.problem.label))
    for run in runs:
        table.add_column(Text(_name(run)), justify="right", overflow="fold")
    if len(runs) == 2:
        table.add_column(Text("ratio"), justify="right")
        table.title = Text(f"{table.title}; ratio: {' / '.join(map(_name, runs))}")
    keys = dict.fromkeys((m.name, m.source) for run in runs for m in run.measurements if m.launch is None)
    missing: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}  # by source, reason and kernels
    for name, source in keys:
        found = [run.find(name, source=source) for run in runs]
        without = [(one.note, _name(run)) for run, one in zip(runs, found, strict=True) if one and one.value is None]
        for reason in dict.fromkeys(reason for reason, _ in without):
            kernels = tuple(kernel for why, kernel in without if why == reason)
            missing.setdefault((source, reason, kernels), []).append(name)
        if all(one is None or one.value is None for one in found):
            continue
        cells = [spell(one) for one in found]
        if len(runs) == 2:
            cells.append(_ratio(*found))
        table.add_row(Text(name), source, *(Text(cell) for cell in cells))
    if missing:
        table.caption = Text(
            "\n".join(
                _untold(names, source, kernels, len(runs), reason)
                for (source, reason, kernels), names in missing.items()
            )
        )
        table.caption_justify = "left"
    return table


def _untold(names: Sequence[str], source: str, kernels: Sequence[str], count: int, reason: str) -> str:
    """Quantities of these kernels, named where they are not all, and why they are missing."""
    of = f" of {', '.join(kernels)}" if len(kernels) < count else ""
    return f"–  {', '.join(names)} by {source}{of}: {reason}"


def _name(run: Run) -> str:
    """The kernel, and its order if that is another than the usual one."""
    tile, kernel = run.workload.tile, run.workload.kernel
    # Columns are narrow: of module:function the function.
    name = kernel.rpartition(":")[2]
    return name if tile is None or tile.order == LINEAR else f"{name}, {tile.order}"


def spell(measurement: Measurement | None, digits: int = 4) -> str:
    """A value with so many significant digits and its unit, such as 13.08 GB; a dash where there is none."""
    if measurement is None or measurement.value is None:
        return "–"
    if measurement.name in HELD:
        return _capacity(measurement.value, digits)
    # Rounded first: 999.6 MB with three digits is 1 GB.
    value, unit = float(f"{measurement.value:.{digits}g}"), measurement.unit
    if unit in PLAIN or value == 0:
        return f"{value:.{digits}g}{'' if unit == '1' else f' {unit}'}"
    step = min(max(math.floor(math.log10(abs(value)) / 3), min(PREFIXES)), max(PREFIXES))
    if unit == "B":
        step = max(step, 0)
    return f"{value / 1000.0**step:.{digits}g} {PREFIXES[step]}{unit}"


def _capacity(value: float, digits: int) -> str:
    """Memory that is held, in powers of 1024, such as 4.157 GiB."""
    factor = next((factor for factor in STEPS if float(f"{abs(value) / factor:.{digits}g}") >= 1), 1.0)
    return f"{value / factor:.{max(digits, 4)}g} {STEPS[factor]}"


def _ratio(one: Measurement | None, other: Measurement | None) -> str:
    if one is None or other is None or one.value is None or not other.value:
        return ""
    return f"{one.value / other.value:.3g}×"
