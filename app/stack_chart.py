"""Horizontal stacked bars: parts of a total in their colours, the total at the end, a line of words below."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from app.style import Theme, template, traffic

BAR_PIXELS, LINE_PIXELS, GAP_PIXELS, AXIS_PIXELS = 22, 17, 12, 52
HATCH = {"shape": "/", "fillmode": "replace", "size": 6, "solidity": 0.35}
NEAR = 0.3  # share of the longest bar that a number takes at most
ROOM = 1.28  # the axis ends that much after the longest bar, so that its total fits


@dataclass(frozen=True)
class Part:
    """One piece of a bar."""

    name: str
    value: float  # bytes
    colour: str


@dataclass(frozen=True)
class Stack:
    """One bar. `lines` are HTML below it; without parts it is a dash, and `reason` says why."""

    name: str
    parts: tuple[Part, ...]
    is_measured: bool = True
    lines: tuple[str, ...] = ()
    reason: str = ""
    mark: float | None = None  # bytes at which a tick stands, for comparison

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(part.value for part in self.parts)


def stacks(rows: Sequence[Stack], axis_title: str, theme: Theme) -> go.Figure:
    """A chart of the rows, the first on top, on a linear axis from 0."""
    longest = max((max(row.total, row.mark or 0) for row in rows), default=0.0)
    unit = traffic(longest).rpartition(" ")[2] or "B"
    factor = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}.get(unit, 1.0)
    figure = go.Figure()
    ticks, top = [], GAP_PIXELS / 2
    for row in rows:
        middle = top + BAR_PIXELS / 2
        ticks.append(middle)
        _draw(figure, row, middle, factor, longest, theme)
        top += BAR_PIXELS + len(row.lines) * LINE_PIXELS + GAP_PIXELS
    figure.update_layout(
        template=template(theme), height=top + AXIS_PIXELS, barmode="stack", showlegend=False,
        margin={"l": 8, "r": 8, "t": 4, "b": 8},
    )  # fmt: skip
    figure.update_xaxes(
        title_text=f"{axis_title}, {unit}",
        range=[0, ROOM * longest / factor or 1],
        fixedrange=True,
        zeroline=False,
        title_standoff=14,
    )
    figure.update_yaxes(
        tickvals=ticks, ticktext=[escape(row.name) for row in rows], range=[top, 0], showgrid=False, zeroline=False,
        fixedrange=True, ticksuffix=" ", tickfont={"color": theme.ink, "size": 13},
    )  # fmt: skip
    return figure


def _draw(figure: go.Figure, row: Stack, middle: float, factor: float, longest: float, theme: Theme) -> None:
    for part in row.parts:
        edge = theme.card if row.is_measured else part.colour
        marker: dict[str, object] = {"color": part.colour, "line": {"width": 1, "color": edge}}
        if not row.is_measured:
            marker["pattern"] = {**HATCH, "bgcolor": theme.card}
        figure.add_bar(
            x=[part.value / factor],
            y=[middle],
            width=BAR_PIXELS,
            orientation="h",
            marker=marker,
            hovertext=f"{escape(row.name)}: {part.name} {traffic(part.value)}",
            hoverinfo="text",
        )
    if row.mark is not None:
        at, half = row.mark / factor, BAR_PIXELS / 2 + 2
        figure.add_shape(
            type="line", x0=at, x1=at, y0=middle - half, y1=middle + half,
            line={"color": theme.ink, "width": 2, "dash": "dot"},
        )  # fmt: skip
    # Beyond a tick that would stand in the middle of the number.
    end = row.mark if row.mark is not None and 0 <= row.mark - row.total < NEAR * longest else row.total
    figure.add_annotation(
        x=end / factor, y=middle, xanchor="left", showarrow=False, xshift=4,
        text=f"<b>{traffic(row.total)}</b>" if row.parts else "– not known", hovertext=escape(row.reason) or None,
        font={"color": theme.ink if row.parts else theme.muted, "size": 12},
    )  # fmt: skip
    for index, line in enumerate(row.lines):
        figure.add_annotation(
            x=0, y=middle + BAR_PIXELS / 2 + (index + 0.55) * LINE_PIXELS, xanchor="left", showarrow=False, text=line,
            font={"color": theme.ink if index == 0 else theme.muted, "size": 12}, align="left",
        )  # fmt: skip
