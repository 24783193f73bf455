"""The four kinds of bytes of several Runs as bars on one logarithmic axis."""

from app.answer import bytes_in_words
from app.bars import Axis, Bar, Group, bars
from app.four_kinds import FOUR_KINDS
from app.peak_check import possible_hbm
from app.picture import Picture
from app.selection import Comparison
from app.style import LIBRARY, Theme, kernel_colour, traffic


def kinds_chart(title: str, caption: str, comparison: Comparison, theme: Theme, one_unit: str = "") -> Picture:
    """A group of bars for each kind, a bar for each Run; HBM bytes above the possible are dashes.

    The numbers of kind `one_unit` share the unit of its largest, as in the sentence above them.
    """
    named = list(zip(comparison.names, comparison.runs, strict=True))
    groups, sources = [], []
    for kind, read in (FOUR_KINDS | {"HBM": possible_hbm}).items():
        # Compulsory bytes depend on the problem alone, and all Runs here share one.
        shown = [("", comparison.runs[0])] if kind == "compulsory" else named
        found = [read(run) for _, run in shown]
        largest = max((part.value or 0.0 for part in found), default=0.0)
        row = []
        for (name, run), part in zip(shown, found, strict=True):
            colour = kernel_colour(run.workload.kernel, theme) if name else LIBRARY
            is_alike = kind == one_unit and part.value is not None
            text = bytes_in_words(part.value or 0.0, largest) if is_alike else traffic(part.value)
            row.append(Bar(name, part.value, text, colour, part.is_measured, part.reason))
            if part.value is not None:
                sources.append(part.source)
        groups.append(Group(kind, tuple(row)))
    chart = bars(groups, Axis("bytes, log axis", is_log=True), theme)
    return Picture(title, caption, chart, tuple(dict.fromkeys(sources)))
