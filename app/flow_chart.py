"""Draws how bytes flow between HBM, L2 and the SMs: the width of a band is its bytes, on one scale for all Runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from app.style import DIRECTION, SOURCE_BADGE, Theme, template, traffic

ROW_PIXELS = 176
WIDEST = 0.40  # share of a row's height that the widest flow takes
HAIRLINE = 0.006
HBM, L2, SM = (0.0, 16.0), (42.0, 58.0), (84.0, 100.0)  # left and right edge, in hundredths of the width


@dataclass(frozen=True)
class Band:
    """Bytes that flow one way ("read" towards the SMs, "write" away from them) or, not told apart, "both"."""

    direction: str
    value: float | None
    source: str
    reason: str = ""


@dataclass(frozen=True)
class Flow:
    """One Run's flows: between HBM and L2, and between L2 and the SMs."""

    name: str
    hbm: tuple[Band, ...]
    l2: tuple[Band, ...]
    nodes: tuple[str, str, str] = ("HBM", "L2", "SMs")


def flows(rows: Sequence[Flow], theme: Theme) -> go.Figure:
    """One row for each Run; a band that was not measured is a dashed line with its reason on hover."""
    widest = max((_width(side) for row in rows for side in (row.hbm, row.l2)), default=0.0)
    scale = WIDEST / widest if widest else 0.0
    figure = go.Figure(layout={"template": template(theme), "height": ROW_PIXELS * len(rows) + 8, "showlegend": False})
    for index, row in enumerate(rows):
        middle = index + 0.56
        for (left, right), label in zip((HBM, L2, SM), row.nodes, strict=True):
            figure.add_shape(
                type="rect", x0=left, x1=right, y0=middle - 0.34, y1=middle + 0.34, fillcolor=theme.grid,
                line_width=0, layer="below", label={"text": label, "font": {"size": 12}},
            )  # fmt: skip
        figure.add_annotation(
            x=0, y=index + 0.13, xanchor="left", text=f"<b>{escape(row.name)}</b>", showarrow=False, font={"size": 13}
        )
        for side, (start, stop) in ((row.hbm, (HBM[1], L2[0])), (row.l2, (L2[1], SM[0]))):
            _side(figure, side, (start + 0.8, stop - 0.8), middle, scale, theme)
    # A figure without traces would draw no axes, and shapes need them.
    figure.add_scatter(x=[50], y=[0.5], mode="markers", marker={"opacity": 0}, hoverinfo="skip")
    figure.update_layout(margin={"l": 4, "r": 4, "t": 0, "b": 0})
    figure.update_xaxes(visible=False, range=[-0.5, 100.5], fixedrange=True)
    figure.update_yaxes(visible=False, range=[len(rows) + 0.02, 0], fixedrange=True)
    return figure


def _width(side: Sequence[Band]) -> float:
    return sum(band.value or 0.0 for band in side)


def _side(
    figure: go.Figure, side: Sequence[Band], ends: tuple[float, float], middle: float, scale: float, theme: Theme
) -> None:
    heights = [max(HAIRLINE, (band.value or 0.0) * scale) for band in side]
    gap = 0.03 * (len(side) - 1)
    top = middle - (sum(heights) + gap) / 2
    for index, (band, height) in enumerate(zip(side, heights, strict=True)):
        colour = DIRECTION.get(band.direction, theme.muted)
        if band.value is None:
            figure.add_shape(
                type="line", x0=ends[0], x1=ends[1], y0=top + height / 2, y1=top + height / 2,
                line={"color": theme.muted, "width": 1.5, "dash": "dot"},
            )  # fmt: skip
        else:
            figure.add_shape(
                type="path", path=_arrow(band.direction, ends, top, height), fillcolor=colour, line_width=0
            )
        above = index == 0
        figure.add_annotation(
            x=(ends[0] + ends[1]) / 2, y=top - 0.015 if above else top + height + 0.015, showarrow=False,
            yanchor="bottom" if above else "top", text=_label(band, theme), hovertext=escape(band.reason) or None,
            font={"size": 12, "color": theme.ink if band.value is not None else theme.muted},
        )  # fmt: skip
        top += height + 0.03


def _label(band: Band, theme: Theme) -> str:
    verb = "" if band.direction == "both" else f" {band.direction}"
    below = SOURCE_BADGE.get(band.source, "") if band.value is not None else "not measured"
    return f'{traffic(band.value)}{verb}<br><span style="color:{theme.muted};font-size:11px">{below}</span>'


def _arrow(direction: str, ends: tuple[float, float], top: float, height: float) -> str:
    """An SVG path: a bar with a head where the bytes go to, at both ends for "both"."""
    left, right = ends
    head = 3.0
    middle, bottom, flare = top + height / 2, top + height, max(0.012, 0.12 * height)
    points: list[tuple[float, float]] = []
    if direction == "read":
        points = [(left, top), (right - head, top)]
    else:
        points = [(left, middle), (left + head, top - flare), (left + head, top)]
        points += [(right, top)] if direction == "write" else [(right - head, top)]
    if direction != "write":
        points += [(right - head, top - flare), (right, middle), (right - head, bottom + flare), (right - head, bottom)]
    else:
        points += [(right, bottom)]
    points += [(left, bottom)] if direction == "read" else [(left + head, bottom), (left + head, bottom + flare)]
    return "M " + " L ".join(f"{x:.3f},{y:.4f}" for x, y in points) + " Z"
