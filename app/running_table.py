"""The GPU while a Run was measured: power, clocks, temperature and memory in use, as NVML gave them."""

from collections.abc import Callable

from app.picture import Table
from app.selection import Comparison
from app.style import capacity, significant
from profiler.run import Measurement

# Name of the Measurement, the column's name with how its samples were summed up, and how a value is spelled.
READINGS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("power_watts", "power, mean", lambda value: f"{significant(value)} W"),
    ("sm_clock_hertz", "SM clock, median", lambda value: f"{significant(value / 1e9)} GHz"),
    ("memory_clock_hertz", "memory clock, median", lambda value: f"{significant(value / 1e9)} GHz"),
    ("temperature_celsius", "temperature, highest", lambda value: f"{value:.0f} °C"),
    ("nvml_memory_used_bytes", "memory in use, highest", capacity),
)


def while_it_ran(found: Comparison) -> Table | None:
    """A row for each Run; None where no Run has a reading."""
    if all(run.value(name) is None for run in found.runs for name, _, _ in READINGS):
        return None
    rows, reasons = [], []
    for title, run in zip(found.names, found.runs, strict=True):
        parts = [run.find(name) for name, _, _ in READINGS]
        rows.append(
            (title, *(_spelled(part, spell) for part, (_, _, spell) in zip(parts, READINGS, strict=True)), "nvml")
        )
        reasons.append(("", *("This Run does not hold it." if part is None else part.note for part in parts), ""))
    columns = ("run", *(column for _, column, _ in READINGS), "source")
    caption = "Of the whole GPU, all processes included, over all passes; how many samples is on hover."
    return Table("While it ran", caption, columns, tuple(rows), tuple(reasons))


def _spelled(part: Measurement | None, spell: Callable[[float], str]) -> str:
    return "–" if part is None or part.value is None else spell(part.value)
