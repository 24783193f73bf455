"""Horizontal bars with their numbers at the ends: solid where measured, hatched where derived, a dash where missing."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from app.style import Theme, template, traffic

BAR_PIXELS, GAP_PIXELS, AXIS_PIXELS = 24, 14, 48
PHONE_PIXELS, LETTER_PIXELS = 240, 6.8  # of a chart's plot on a phone, and of a letter at a bar's end


@dataclass(frozen=True)
class Bar:
    """One bar. `lead` of `value` is drawn paler, as what was there before; `reason` says why value is None."""

    name: str
    value: float | None
    text: str
    colour: str
    is_measured: bool
    reason: str = ""
    lead: float = 0.0
    spread: tuple[float, float] | None = None


@dataclass(frozen=True)
class Group:
    """Bars under one label on the axis."""

    label: str
    bars: tuple[Bar, ...]


@dataclass(frozen=True)
class Axis:
    """The value axis: a title with the unit, the ticks' unit, and whether it is logarithmic (then of bytes)."""

    title: str
    factor: float = 1.0
    is_log: bool = False


def bars(groups: Sequence[Group], axis: Axis, theme: Theme) -> go.Figure:
    """A chart of the groups, the first on top; values are divided by axis.factor."""
    places, ticks, height = _places(groups)
    flat = [bar for group in groups for bar in group.bars]
    placed = list(zip(places, flat, strict=True))
    drawn = [(y, bar, value) for y, bar in placed if (value := _drawable(bar, axis)) is not None]
    low, high = _range([value for _, _, value in drawn], axis.is_log)
    texts = [f"{bar.name} {bar.text}".strip() for _, bar, _ in drawn]
    figure = go.Figure()
    for y, bar, value in drawn:
        _draw(figure, y, bar, value, axis.factor, theme)
    # Numbers stand clear of the whiskers; the trace also draws the axes where there is no bar at all.
    ends: list[float | None] = [max(value, bar.spread[1] / axis.factor if bar.spread else 0) for _, bar, value in drawn]
    figure.add_scatter(
        x=ends or [None],
        y=[y for y, _, _ in drawn] or None,
        text=[f"  {escape(text)}" for text in texts],
        mode="text",
        textposition="middle right",
        textfont={"color": theme.ink},
        cliponaxis=False,
        hoverinfo="skip",
    )
    for y, bar in placed:
        if _drawable(bar, axis) is None:
            # At the edge of the paper, since rounding would put a point at the axis' very end off the axis.
            figure.add_annotation(
                x=0, xref="x domain", y=y, xanchor="left", xshift=6, showarrow=False, font={"color": theme.muted},
                text=f"{escape(bar.name)} {escape(bar.text)}".strip(), hovertext=escape(bar.reason) or None,
            )  # fmt: skip
    figure.update_layout(
        template=template(theme),
        height=height + AXIS_PIXELS,
        barmode="stack",
        showlegend=False,
        margin={"l": 8, "r": _right_margin(ends, texts, (low, high), axis.is_log), "t": 4, "b": 8},
    )
    x_axis = {"title": axis.title, "range": [low, high], "fixedrange": True}
    if axis.is_log:
        decades = [10.0**exponent for exponent in range(math.ceil(low), math.floor(high) + 1)]
        x_axis |= {
            "type": "log",
            "tickvals": decades,
            "ticktext": [traffic(decade).replace(".00", "").replace(".0", "") for decade in decades],
        }
    figure.update_xaxes(**x_axis)
    figure.update_yaxes(
        tickvals=list(ticks),
        ticktext=[escape(group.label) for group in groups],
        range=[height, 0],
        showgrid=False,
        zeroline=False,
        fixedrange=True,
        tickfont={"color": theme.ink},
    )
    return figure


def _draw(figure: go.Figure, y: float, bar: Bar, value: float, factor: float, theme: Theme) -> None:
    lead = min(bar.lead / factor, value)
    marker: dict[str, object] = {"color": bar.colour, "line": {"width": 1, "color": bar.colour}}
    if not bar.is_measured:
        marker["pattern"] = {"shape": "/", "fillmode": "replace", "size": 6, "solidity": 0.35, "bgcolor": theme.card}
    common = {
        "y": [y],
        "orientation": "h",
        "width": BAR_PIXELS - 4,
        "hovertext": escape(f"{bar.name} {bar.text}".strip()),
    }
    if lead > 0:
        figure.add_bar(x=[lead], marker=marker, opacity=0.4, hoverinfo="text", **common)
    error = None
    if bar.spread is not None:
        below, above = (abs(end / factor - value) for end in bar.spread)
        error = {"array": [above], "arrayminus": [below], "color": theme.ink, "thickness": 1, "width": 3}
    figure.add_bar(
        x=[value - lead],
        marker=marker,
        error_x=error,
        hoverinfo="text",
        **common,
    )


def _places(groups: Sequence[Group]) -> tuple[list[float], list[float], float]:
    """The middle of every bar and of every group, in pixels from the top, and the height of all."""
    places: list[float] = []
    ticks: list[float] = []
    top = GAP_PIXELS / 2
    for group in groups:
        ticks.append(top + len(group.bars) * BAR_PIXELS / 2)
        places += [top + (index + 0.5) * BAR_PIXELS for index in range(len(group.bars))]
        top += len(group.bars) * BAR_PIXELS + GAP_PIXELS
    return places, ticks, top - GAP_PIXELS / 2


def _right_margin(
    ends: Sequence[float | None], texts: Sequence[str], between: tuple[float, float], is_log: bool
) -> float:
    """Pixels beside the plot for what a phone has no room for between a bar's end and the axis'."""
    low, high = between
    missing = [0.0]
    for end, text in zip(ends, texts, strict=True):
        if end is not None and (end > 0 or not is_log):
            share = ((math.log10(end) if is_log else end) - low) / (high - low)
            missing.append((len(text) + 2) * LETTER_PIXELS - (1 - share) * PHONE_PIXELS)
    return 8 + max(missing)


def _drawable(bar: Bar, axis: Axis) -> float | None:
    """The bar's length in the axis' unit; None where there is none, such as 0 on a logarithmic axis."""
    return None if bar.value is None or (axis.is_log and bar.value <= 0) else bar.value / axis.factor


def _range(values: Sequence[float], is_log: bool) -> tuple[float, float]:
    """Ends of the axis (exponents if it is logarithmic), with room for the numbers at the bar ends."""
    if not values:
        return (0.0, 1.0)
    if not is_log:
        low, high = min(0.0, *values), max(0.0, *values)
        return low, high + 0.55 * ((high - low) or 1.0)
    low = math.floor(math.log10(min(values)) - 0.1)
    return low, low + 1.5 * (math.log10(max(values)) - low)
