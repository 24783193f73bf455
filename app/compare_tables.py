"""Tables of two compared Runs: what differs around them, and every Measurement with ratio and verdict."""

from collections.abc import Sequence

from app.launch_chart import launch_title
from app.picture import Table
from app.report_tables import spelled
from app.traffic_tables import flag
from profiler.compare import Compared
from profiler.compare_limits import Check
from profiler.compare_row import MISSING, Row
from profiler.compare_table import ratio
from profiler.run import Measurement, Run

DIFFERENCES = "What differs"
EVERY = "Every measurement of both"
ALONE = "Of one Run only"
LIMITS = "Limits"
MOST_ROWS = 400  # of a table; the exports hold all


def differences(compared: Compared) -> Table:
    """Problem, kernel, tile, method, device and versions, as far as they are not the same."""
    caption = "Problem, kernel, tile, how it was measured, device and versions; what is not listed is the same."
    rows = tuple((one.what, one.before, one.after) for one in compared.differences[:MOST_ROWS])
    return Table(DIFFERENCES, caption, ("", *compared.names), rows or (("nothing", "–", "–"),))


def every_measurement(compared: Compared) -> Table:
    """A row for every quantity that both Runs tell, those of the whole Run first."""
    told = sorted((row for row in compared.rows if row.verdict != MISSING), key=lambda row: row.launch is not None)
    caption = (
        f"Ratio: {compared.names[1]} / {compared.names[0]}. Beyond the spread: the ranges from the 20th to the 80th "
        "percentile of the repeats do not overlap. Ranges, and the reason of a dash, are on hover."
    )
    return _table(compared, told, EVERY, caption)


def of_one_run(compared: Compared) -> Table | None:
    """A row for every quantity that a Run lacks, with the reason; None where neither lacks any."""
    lost = [row for row in compared.rows if row.verdict == MISSING]
    return _table(compared, lost, ALONE, "What a Run does not hold; the reason is on hover.") if lost else None


def _table(compared: Compared, shown: Sequence[Row], title: str, caption: str) -> Table:
    columns = ("measurement", "launch", *compared.names, "ratio", "change")
    if len(shown) > MOST_ROWS:
        caption, shown = f"{caption} The first {MOST_ROWS} of {len(shown):,}; the exports hold all.", shown[:MOST_ROWS]
    rows = tuple(map(_row, shown))
    reasons = tuple(_reasons(compared, row) for row in shown)
    sources = tuple(("", "", *map(_source, (row.before, row.after)), "", "") for row in shown)
    return Table(title, caption, columns, rows, reasons, sources)


def _row(row: Row) -> tuple[str, ...]:
    values = (spelled(row.name, row.unit, None if side is None else side.value) for side in (row.before, row.after))
    return (row.name, launch_title(row.launch) if row.launch else "whole", *values, ratio(row.ratio), row.verdict)


def _reasons(compared: Compared, row: Row) -> tuple[str, ...]:
    sides = ((compared.before, row.before), (compared.after, row.after))
    about = [_about(run, side) for run, side in sides]
    without_ratio = row.reason if row.ratio is None else ""
    return ("", "", *about, without_ratio, row.reason)


def _about(run: Run, side: Measurement | None) -> str:
    """Why a value is missing or cannot be true, and between what its repeats lay."""
    if side is None:
        return "This Run does not hold it."
    if side.value is None or side.spread is None:
        return flag(run, side) or (side.note if side.value is None else "")
    low, high = (spelled(side.name, side.unit, end) for end in side.spread)
    return flag(run, side) or (f"{low} to {high}" if low != high else "")


def _source(side: Measurement | None) -> str:
    return "" if side is None or side.value is None else side.source


def limits(checks: Sequence[Check]) -> Table | None:
    """How each limit that was set ended; None where none was."""
    if not checks:
        return None
    rows = tuple((one.name, f"{one.limit:g}×", "passed" if one.passed else "failed", one.sentence) for one in checks)
    return Table(LIMITS, "How many times worse the second Run may be.", ("measurement", "limit", "ended", "why"), rows)
