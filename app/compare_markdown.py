"""Two compared Runs as Markdown for a pull request: what differs, what got worse first, the rest folded."""

from collections.abc import Sequence

from app.compare_words import headline, judged
from app.report_tables import spelled
from app.report_text import plain
from app.style import SOURCE_BADGE
from profiler.compare import Compared
from profiler.compare_limits import Check
from profiler.compare_row import MISSING, SAME, UNRELATED, Row
from profiler.compare_table import missing, ratio

# Rows of each table: a comment on GitHub holds 65,536 characters. The other formats hold all.
MOST_DIFFERENCES, MOST_TELLING, MOST_ROWS = 40, 40, 250
MARKS = {True: "✅", False: "❌"}


def markdown(compared: Compared, checks: Sequence[Check] = ()) -> str:
    """A heading with the answer, limits, differing circumstances, the telling rows worst first, all rows folded."""
    words = headline(compared)
    parts = [
        f"### {plain(words.sentence)}",
        "\n".join(f"* {MARKS[one.passed]} {plain(one.sentence)}" for one in checks),
    ]
    parts += [f"> {plain(sentence)}" for sentence in compared.warnings]
    telling = _telling(compared)
    changed = (
        _table(compared, telling, MOST_TELLING) if telling else "Nothing changed in which a Run can be better or worse."
    )
    parts += [_circumstances(compared), changed]
    everything = _table(compared, [row for row in compared.rows if row.verdict != MISSING], MOST_ROWS)
    lost = "\n".join(f"* {plain(sentence)}" for sentence in missing(compared.rows))
    title = f"All {len(compared.rows)} measurements compared"
    parts.append(f"<details><summary>{title}</summary>\n\n{everything}\n\n{lost}\n\n</details>")
    parts.append("Beyond the spread: the ranges from the 20th to the 80th percentile of the repeats do not overlap.")
    return "\n\n".join(filter(None, parts)) + "\n"


def _circumstances(compared: Compared) -> str:
    if not compared.differences:
        return "Problem, kernel, tile, method, device and versions are the same."
    lines = [_line(("differs", *compared.names)), "|---|---|---|"]
    shown = compared.differences[:MOST_DIFFERENCES]
    rows = [_line((one.what, one.before, one.after)) for one in shown]
    return "\n".join([*lines, *rows]) + _left_out(len(compared.differences) - len(shown))


def _telling(compared: Compared) -> list[Row]:
    """Of each quantity in which a Run can be better, and that changed, the most trusted row; the worst first."""
    names = dict.fromkeys(row.name for row in compared.rows if row.launch is None and row.better)
    found = [
        row
        for name in names
        if (row := compared.find(name)) is not None and row.is_told and row.verdict not in (SAME, UNRELATED)
    ]
    return sorted(found, key=lambda row: -(row.worsening or 0.0))


def _left_out(count: int) -> str:
    return f"\n\nand {count:,} more, which the other formats hold." if count > 0 else ""


def _table(compared: Compared, rows: Sequence[Row], most: int) -> str:
    lines = [_line(("", *compared.names, "ratio", "change")), "|---|---:|---:|---:|---|"]
    return "\n".join([*lines, *(_line(_cells(row)) for row in rows[:most])]) + _left_out(len(rows) - most)


def _cells(row: Row) -> tuple[str, ...]:
    values = []
    for side in (row.before, row.after):
        value = None if side is None else side.value
        badge = f" ({SOURCE_BADGE.get(side.source, side.source)})" if side is not None and value is not None else ""
        values.append(f"{spelled(row.name, row.unit, value)}{badge}")
    name = f"{row.name}, {row.launch}" if row.launch else row.name
    words = [row.verdict, judged(row), row.reason if row.ratio is None else ""]
    return (name, *values, ratio(row.ratio), ", ".join(filter(None, words)))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(plain, cells))} |"
