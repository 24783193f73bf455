"""Time against the bytes between L2 and the SMs, a point for each tile, and the tiles that none beats in both."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log10

import plotly.graph_objects as go

from app.block_board import Cell
from app.block_map import hover_label
from app.block_quantities import L2_SM, MANY, QUANTITIES, TIME, Unit
from app.style import KERNEL, Theme, shade, template

BEFORE, BEHIND = 0.12, 0.04  # of a log axis left free at its ends


@dataclass(frozen=True)
class Point:
    """A tile that was timed and counted: seconds, and bytes L2↔SM."""

    cell: Cell
    seconds: float
    moved: float


def points(cells: Sequence[Cell]) -> list[Point]:
    """The cells that have both numbers."""
    pairs = [(cell, cell.value(TIME), cell.value(L2_SM)) for cell in cells]
    return [Point(cell, time, moved) for cell, time, moved in pairs if time is not None and moved is not None]


def pareto(found: Sequence[Point]) -> list[Point]:
    """The points that no other beats in time without moving more bytes, by bytes."""
    front: list[Point] = []
    for point in sorted(found, key=lambda one: (one.moved, one.seconds)):
        if not front or point.seconds < front[-1].seconds:
            front.append(point)
    return front


def scatter(found: Sequence[Point], theme: Theme, chosen: Cell | None = None) -> go.Figure:
    """The points with the front as a line; its tiles are named, and `chosen` is ringed."""
    front = pareto(found)
    colour, muted = shade(KERNEL["flash"], theme), theme.muted
    by_bytes = QUANTITIES[L2_SM].unit([one.moved for one in found])
    time_unit = QUANTITIES[TIME].unit([one.seconds for one in found])
    beaten = [one for one in found if one not in front]
    chart = go.Figure(
        [
            _trace(beaten, by_bytes, time_unit, {"color": muted, "size": 8, "opacity": 0.75}, names=False),
            _trace(front, by_bytes, time_unit, {"color": colour, "size": 10}, names=True, line=colour),
        ]
    )
    for one in found:
        if chosen is not None and one.cell.tile == chosen.tile:
            ring = {"size": 17, "color": "rgba(0,0,0,0)", "line": {"color": theme.ink, "width": 2}}
            chart.add_trace(_trace([one], by_bytes, time_unit, ring, names=False))
    chart.update_layout(
        template=template(theme), height=340, showlegend=False, hovermode="closest", dragmode=False,
        xaxis=_axis("L2↔SM", [one.moved / by_bytes[0] for one in found], by_bytes[1]),
        yaxis=_axis("time", [one.seconds / time_unit[0] for one in found], time_unit[1]), margin={"t": 12, "r": 40},
        hoverlabel=hover_label(theme),
    )  # fmt: skip
    return chart


def _axis(title: str, values: Sequence[float], unit: str) -> dict[str, object]:
    """From 0; where the largest is many times the smallest, on a log scale, with room for names below and before."""
    axis: dict[str, object] = {"fixedrange": True, "zeroline": False}
    least, most = min(values, default=0.0), max(values, default=0.0)
    if not 0 < MANY * least < most:
        return axis | {"title": {"text": f"{title}, {unit}"}, "rangemode": "tozero"}
    ends = [log10(least) - BEFORE * log10(most / least), log10(most) + BEHIND * log10(most / least)]
    return axis | {"title": {"text": f"{title}, {unit}, log scale"}, "type": "log", "range": ends, "dtick": "D2"}


def _trace(
    shown: Sequence[Point],
    by_bytes: Unit,
    by_time: Unit,
    marker: dict[str, object],
    names: bool,
    line: str = "",
) -> go.Scatter:
    mode = "markers" + ("+text" if names else "") + ("+lines" if line else "")
    return go.Scatter(
        x=[one.moved / by_bytes[0] for one in shown], y=[one.seconds / by_time[0] for one in shown], mode=mode,
        marker=marker, line={"color": line or None, "width": 1.5, "dash": "dot"}, text=[_name(one) for one in shown],
        # Towards where there is nothing: no tile lies beyond the front.
        textposition="bottom left", cliponaxis=False, hovertext=[_hover(one) for one in shown], hoverinfo="text",
    )  # fmt: skip


def _name(one: Point) -> str:
    return f"{one.cell.name}, {one.cell.tile.num_warps} warps"


def _hover(one: Point) -> str:
    tile = one.cell.tile
    return (
        f"<b>{one.cell.name}</b>, {tile.num_warps} warps, {tile.num_stages} stages<br>"
        f"{QUANTITIES[TIME].spell(one.seconds)}, {QUANTITIES[L2_SM].spell(one.moved)} L2↔SM"
    )
