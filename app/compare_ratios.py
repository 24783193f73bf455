"""Ratios of two Runs as bars from 1 on a logarithmic axis: to the left what became less, to the right what grew."""

import math
from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from app.compare_words import FIGURES, doubt, judged
from app.picture import Picture
from app.stack_chart import HATCH
from app.style import LIBRARY, Theme, shade, template
from app.traffic_tables import QUANTITIES
from profiler.compare import Compared
from profiler.compare_row import ONCE, SAME, Row
from profiler.compare_table import ratio
from profiler.run import MEASURED

TITLE = "Ratios"
BAR_PIXELS, AXIS_PIXELS = 26, 56
COLOUR = {"better": "#0B7A75", "worse": "#D55E00", "": LIBRARY}
MOST_BARS = 16
TITLES = {"l2_hit_percent": "L2 hits", "requested_bytes": "requested, both", "gpu_time_seconds": "time"}
NUMBER_SHARE = 0.36  # of a phone's axis, which a number may take
LEAST_DECADES = 0.1  # on either side of 1, so that a change of a percent is not drawn as a large one


def ratios(compared: Compared, theme: Theme) -> Picture | None:
    """The ratios of quantities in which one Run can be better, and that changed, of their most trusted sources.

    What did not change is drawn where nothing did; None where there is no ratio at all.
    """
    names = dict.fromkeys((*FIGURES, *(row.name for row in compared.rows if row.launch is None)))
    rows = [row for name in names if (row := compared.find(name)) is not None and row.better and row.ratio is not None]
    rows = [row for row in rows if not doubt(compared, row)]
    found = [row for row in rows if row.verdict != SAME][:MOST_BARS] or rows[:MOST_BARS]
    if not found:
        return None
    one, other = compared.names
    caption = (
        f"{other} divided by {one}, log axis. Green: better, orange: worse, grey: within the spread. "
        "Pale: measured once. Hatched: closed form or schedule."
    )
    sources = tuple(dict.fromkeys(source for row in found for source in row.sources))
    return Picture(TITLE, caption, _chart(found, f"{other} / {one}", theme), sources)


def name_in_words(name: str) -> str:
    """A Measurement's name for an axis."""
    words = name.removesuffix("_bytes").removesuffix("_seconds").replace("_", " ")
    return (QUANTITIES | TITLES).get(name, words)


def _chart(rows: Sequence[Row], title: str, theme: Theme) -> go.Figure:
    places = list(range(len(rows)))
    sizes = [row.ratio or 1.0 for row in rows]
    figure = go.Figure()
    for place, row, size in zip(places, rows, sizes, strict=True):
        colour = shade(COLOUR[judged(row)], theme)
        marker: dict[str, object] = {"color": colour, "line": {"width": 1, "color": colour}}
        if not all(source in MEASURED for source in row.sources):
            marker["pattern"] = HATCH | {"bgcolor": theme.card}
        figure.add_bar(
            x=[size - 1], base=[1], y=[place], orientation="h", width=0.62, marker=marker,
            opacity=0.45 if row.verdict == ONCE else 1.0, hoverinfo="text",
            hovertext=escape(f"{row.name}: {ratio(size)}, {row.verdict}"),
        )  # fmt: skip
    figure.add_scatter(
        x=[1.0] * len(rows), y=places, text=[f" {ratio(size)} " for size in sizes], mode="text", hoverinfo="skip",
        # Across the line at 1 from its bar, where nothing is drawn: beyond a long bar stand the names.
        textposition=["middle right" if size < 1 else "middle left" for size in sizes],
        textfont={"color": theme.ink}, cliponaxis=False,
    )  # fmt: skip
    figure.add_vline(x=1, line={"width": 1, "color": theme.muted})
    figure.update_layout(
        template=template(theme), height=len(rows) * BAR_PIXELS + AXIS_PIXELS, showlegend=False, barmode="overlay",
        margin={"l": 8, "r": 8, "t": 4, "b": 8},
    )  # fmt: skip
    low, high = _range(sizes)
    figure.update_xaxes(
        type="log", range=[low, high], title=f"{escape(title)}, log axis", fixedrange=True, **_ticks(low, high)
    )
    figure.update_yaxes(
        tickvals=places, ticktext=[escape(name_in_words(row.name)) for row in rows], range=[len(rows) - 0.5, -0.5],
        showgrid=False, zeroline=False, fixedrange=True, tickfont={"color": theme.ink},
    )  # fmt: skip
    return figure


def _range(sizes: Sequence[float]) -> tuple[float, float]:
    """Exponents of the axis' ends; where a bar goes to one side of 1, there is room for its number on the other."""
    decades = [math.log10(size) for size in sizes]
    low, high = min(-LEAST_DECADES, *decades), max(LEAST_DECADES, *decades)
    if min(decades) < 0:
        high = max(high, -low * NUMBER_SHARE / (1 - NUMBER_SHARE))
    if max(decades) >= 0:
        low = min(low, -high * NUMBER_SHARE / (1 - NUMBER_SHARE))
    margin = 0.02 * (high - low)
    return low - margin, high + margin


def _ticks(low: float, high: float) -> dict[str, list[object]]:
    """Decades where there are several, else a few ratios around 1."""
    if high - low >= 1.2:
        exponents = range(math.ceil(low), math.floor(high) + 1)
        return {"tickvals": [10.0**e for e in exponents], "ticktext": [f"{10.0**e:g}×" for e in exponents]}
    values = (0.8, 0.9, 1.0, 1.1, 1.25) if high - low < 0.4 else (0.25, 0.5, 0.7, 1.0, 1.5, 2.0, 4.0)
    near = [value for value in values if low <= math.log10(value) <= high]
    return {"tickvals": list(near), "ticktext": [f"{value:g}×" for value in near]}
