"""The four kinds of bytes of several Runs as bars on one logarithmic axis."""

import plotly.graph_objects as go

from app.bars import Axis, Bar, Group, bars
from app.four_kinds import FOUR_KINDS
from app.peak_check import possible_hbm
from app.selection import Comparison
from app.style import LIBRARY, Theme, kernel_colour, traffic


def kinds_chart(comparison: Comparison, theme: Theme) -> go.Figure:
    """A group of bars for each kind, a bar for each Run; HBM bytes above the possible are dashes."""
    named = list(zip(comparison.names, comparison.runs, strict=True))
    groups = []
    for kind, read in (FOUR_KINDS | {"HBM": possible_hbm}).items():
        row = []
        # Compulsory bytes depend on the problem alone, and all Runs here share one.
        for name, run in [("", comparison.runs[0])] if kind == "compulsory" else named:
            found = read(run)
            colour = kernel_colour(run.workload.kernel) if name else LIBRARY
            row.append(Bar(name, found.value, traffic(found.value), colour, found.is_measured, found.reason))
        groups.append(Group(kind, tuple(row)))
    return bars(groups, Axis("bytes, log axis", is_log=True), theme)
