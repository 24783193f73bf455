"""The raw samples of Runs, folded away: one list a Run for its passes, one for all series taken at the same times."""

from collections.abc import Iterator, Sequence
from html import escape
from itertools import zip_longest

from app.report_parts import box, folded
from profiler.run import Run

Column = tuple[str, Sequence[float]]


def raw_samples(named: Sequence[tuple[str, Run]]) -> str:
    """The folded lists of Runs with their names; a sentence where there are none."""
    parts = [part for name, run in named for part in _lists(name, run)]
    return box("".join(parts)) if parts else '<p class="bs-empty">These Runs hold no raw samples.</p>'


def _lists(name: str, run: Run) -> Iterator[str]:
    if run.samples:
        columns = [(_head(run, quantity), values) for quantity, values in run.samples.items()]
        yield folded(f"{name}, each pass", ", ".join(run.samples), _columns(columns))
    by_time: dict[Sequence[float], list[Column]] = {}
    for series in run.series:
        head = f"{series.name}, {series.unit} ({series.source})"
        by_time.setdefault(series.seconds, []).append((head, series.values))
    for seconds, sampled in by_time.items():
        about = f"{len(seconds)} samples of {', '.join(head.partition(',')[0] for head, _ in sampled)}"
        yield folded(f"{name}, over time", about, _columns([("time, s", seconds), *sampled]))


def _head(run: Run, quantity: str) -> str:
    found = run.find(quantity)
    return f"{quantity}, {found.unit} ({found.source})" if found else quantity


def _columns(columns: Sequence[Column]) -> str:
    """Columns of text, right-aligned below their heads; a spreadsheet takes them as they are."""
    texts = [[head, *(f"{value:.12g}" for value in values)] for head, values in columns]
    widths = [max(map(len, column)) for column in texts]
    rows = zip_longest(*texts, fillvalue="")
    text = "\n".join(
        "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
    return f'<pre tabindex="0">{escape(text)}</pre>'
