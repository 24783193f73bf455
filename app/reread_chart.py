"""The re-read distances of some Runs on one axis, against what L2 holds."""

import numpy as np
import plotly.graph_objects as go

from app.reread import Reread
from app.style import Theme, kernel_colour, template

MIB = 2**20
MOST_POINTS = 500  # of one line


def reread_chart(shown: list[tuple[str, str, Reread]], l2_bytes: int | None, theme: Theme) -> go.Figure:
    """A rising line for each (name, kernel, re-reads), none of them empty; the first Run's stands out."""
    furthest = max(*(float(one.distance[-1]) for _, _, one in shown), l2_bytes or 0) / MIB
    traces = []
    for index, (_, kernel, one) in reversed(list(enumerate(shown))):
        colour, width = (theme.muted, 1.5) if index else (kernel_colour(kernel, theme), 3.0)
        traces.append(_line(one, furthest, colour, width))
    axis = {"fixedrange": True, "ticks": "", "zeroline": False}
    layout = {
        "template": template(theme),
        "height": 340,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"t": 26},
        "xaxis": axis
        | {"title": {"text": "re-read distance, MiB of distinct K and V"}, "range": [0, furthest * 1.05], "nticks": 8},
        "yaxis": axis | {"title": {"text": "re-reads within it"}, "range": [0, 102], "ticksuffix": "%", "nticks": 6},
    }
    chart = go.Figure(traces, layout)
    if l2_bytes is not None:
        _limit(chart, l2_bytes, "L2", theme.ink)
        _limit(chart, l2_bytes // 2, "half of L2", theme.ink)
    _name_lines(chart, shown, furthest, theme)
    return chart


def _line(one: Reread, furthest: float, colour: str, width: float) -> go.Scatter:
    """From 0 to all: at each distance the share of re-reads that come within it."""
    kept = np.unique(np.linspace(0, len(one.distance) - 1, MOST_POINTS).astype(np.int64))
    x = np.concatenate([[0], one.distance[kept] / MIB, [furthest * 1.05]])
    return go.Scatter(
        x=x.astype(np.float32),
        y=np.concatenate([[0], one.share[kept] * 100, [100]]).astype(np.float32),
        mode="lines",
        line={"color": colour, "width": width, "shape": "hv"},
        hovertemplate="%{y:.0f}% within %{x:.3g} MiB<extra></extra>",
    )


def _name_lines(chart: go.Figure, shown: list[tuple[str, str, Reread]], furthest: float, theme: Theme) -> None:
    """Each line's name on its free side, the nearest line's highest, so that names of close lines stand apart."""
    order = sorted(range(len(shown)), key=lambda index: shown[index][2].median or 0)
    heights = np.linspace(0.7, 0.3, len(order)) if len(order) > 1 else [0.5]
    for index, height in zip(order, heights, strict=True):
        name, kernel, one = shown[index]
        x = float(one.distance[np.searchsorted(one.share, height)]) / MIB
        is_far = x > 0.6 * furthest
        anchors = ("right", "bottom") if is_far else ("left", "top")
        chart.add_annotation(
            text=name, x=x, y=height * 100, showarrow=False, xanchor=anchors[0], yanchor=anchors[1],
            xshift=-6 if is_far else 6, bgcolor=theme.card, opacity=0.9,
            font={"size": 12, "color": theme.muted if index else kernel_colour(kernel, theme)},
        )  # fmt: skip


def _limit(chart: go.Figure, size: int, words: str, colour: str) -> None:
    """A dashed line at so many bytes, with its name above the panel."""
    x = size / MIB
    line = {"color": colour, "width": 1, "dash": "dash"}
    chart.add_shape(type="line", x0=x, x1=x, yref="y domain", y0=0, y1=1, line=line)
    chart.add_annotation(
        text=words, x=x, yref="y domain", y=1, yanchor="bottom", showarrow=False, font={"size": 11, "color": colour}
    )
