"""Heat maps over BLOCK_M × BLOCK_N: a stronger colour is better, and a tile that a GPU cannot run is crossed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.block_board import Board, Cell
from app.block_quantities import COMPILED_HERE, LESS, QUANTITIES, Quantity, Unit, in_unit
from app.lane_shades import ramp
from app.style import TENSOR, Theme, ink_on, template
from kernels.problem import TileConfig

CROSS, DASH, STAR = "✕", "–", "★"
FRAME = TENSOR["p"]  # seen on every shade
SHADES = 101
MANY_TIMES_ONE = 100.0
LOG_FROM = 3.0  # where the largest value is so many times the smallest, shades follow the logarithm


@dataclass(frozen=True)
class Panel:
    """One heat map: a board, one quantity of it, what stands above it, and the tile that is starred.

    With a `unit`, which the title names, the cells hold bare numbers.
    """

    board: Board
    key: str
    title: str
    best: TileConfig | None = None
    unit: Unit | None = None


@dataclass(frozen=True)
class Size:
    """How large maps are drawn: px of a row of cells and of what stands above and below a map, and of the numbers."""

    row: int = 58
    above: int = 34
    below: int = 48
    number: float = 12.5


LARGE, SMALL = Size(), Size(row=25, above=30, below=22, number=10.5)


def block_map(
    panels: Sequence[Panel], theme: Theme, chosen: TileConfig | None = None, per_row: int = 3, size: Size = LARGE
) -> go.Figure:
    """The panels side by side, those of one quantity on one scale; `chosen` is framed.

    A click on a cell gives its BLOCK_M and BLOCK_N as customdata.
    """
    cells = [cell for panel in panels for cell in panel.board.cells]
    rows = sorted({cell.tile.BLOCK_M for cell in cells}, reverse=True)
    columns = sorted({cell.tile.BLOCK_N for cell in cells})
    across = min(per_row, len(panels))
    down = -(-len(panels) // across)
    tall = size.row * max(3, len(rows))
    height = down * (size.above + tall) + size.below * (down if size is SMALL else 1)
    chart = make_subplots(
        rows=down,
        cols=across,
        shared_yaxes=True,
        horizontal_spacing=0.025 if across > 1 else 0,
        vertical_spacing=(size.above + size.below) / height if down > 1 else 0,
        subplot_titles=[panel.title for panel in panels],
    )
    for index, panel in enumerate(panels):
        at = {"row": index // across + 1, "col": index % across + 1}
        scale = Scale(
            [c.value(panel.key) for p in panels if p.key == panel.key for c in p.board.cells if not c.why_not]
        )
        for trace in _traces(panel, scale, rows, columns, theme, size):
            chart.add_trace(trace, **at)
        if chosen is not None and chosen in {cell.tile for cell in panel.board.cells}:
            x, y = columns.index(chosen.BLOCK_N), rows.index(chosen.BLOCK_M)
            ends = {"x0": x - 0.5, "x1": x + 0.5, "y0": y - 0.5, "y1": y + 0.5}
            chart.add_shape(type="rect", **ends, line={"color": FRAME, "width": 3}, **at)
    _lay_out(chart, rows, columns, size, theme)
    chart.update_layout(height=height, margin={"t": size.above, "b": size.below})
    return chart


def _lay_out(chart: go.Figure, rows: Sequence[int], columns: Sequence[int], size: Size, theme: Theme) -> None:
    """Axes with the blocks as their ticks, named where there is room."""
    axis = {"fixedrange": True, "showgrid": False, "zeroline": False, "ticks": "", "tickfont": {"size": size.number}}
    across = {"tickvals": list(range(len(columns))), "ticktext": [str(value) for value in columns]}
    down = {"tickvals": list(range(len(rows))), "ticktext": [str(value) for value in rows]}
    chart.update_xaxes(**axis, **across, range=[-0.5, len(columns) - 0.5])
    chart.update_yaxes(**axis, **down, range=[len(rows) - 0.5, -0.5])
    if size is LARGE:
        chart.update_xaxes(title_text="BLOCK_N, keys")
        chart.update_yaxes(title_text="BLOCK_M, queries", col=1)
    chart.update_layout(
        template=template(theme),
        showlegend=False,
        hovermode="closest",
        clickmode="event+select",
        dragmode=False,
        hoverlabel=hover_label(theme),
    )
    chart.update_annotations(font={"size": 13 if size is LARGE else 12, "color": theme.ink}, yshift=2)


def hover_label(theme: Theme) -> dict[str, object]:
    """A label in the page's own colours: those of the cells would make it hard to read."""
    return {"bgcolor": theme.card, "bordercolor": theme.muted, "font": {"color": theme.ink}}


class Scale:
    """Where a value stands between the smallest (0) and the largest (1) of those that are shown."""

    def __init__(self, values: Sequence[float | None]) -> None:
        found = [value for value in values if value is not None]
        self._low, self._high = (min(found), max(found)) if found else (0.0, 0.0)
        self._is_log = self._low > 0 and self._high / self._low >= LOG_FROM
        # A zero has no logarithm, yet 600 B beside 12 KB is not nothing.
        self._is_log_from_one = self._low == 0 and self._high >= MANY_TIMES_ONE

    def place(self, value: float) -> float:
        """0 to 1; one half where all values are the same."""
        if self._high == self._low:
            return 0.5
        if self._is_log_from_one:
            return math.log1p(value) / math.log1p(self._high)
        if self._is_log:
            return math.log(value / self._low) / math.log(self._high / self._low)
        return (value - self._low) / (self._high - self._low)


def shade(place: float, quantity: Quantity, theme: Theme) -> str:
    """The colour of a place on a Scale: the better the further from the background, the larger where none is better."""
    return _ramp(theme)[round((1 - place if quantity.better == LESS else place) * (SHADES - 1))]


@cache
def _ramp(theme: Theme) -> list[str]:
    return ramp(theme, SHADES)


def _traces(
    panel: Panel, scale: Scale, rows: Sequence[int], columns: Sequence[int], theme: Theme, size: Size
) -> tuple[go.Heatmap, go.Scatter]:
    """Coloured squares, and on top of them the numbers, which can be clicked."""
    quantity, cells = QUANTITIES[panel.key], panel.board.cells
    drawn = [_drawn(cell, panel, scale, theme) for cell in cells]
    x, y = [columns.index(c.tile.BLOCK_N) for c in cells], [rows.index(c.tile.BLOCK_M) for c in cells]
    last = max(1, len(cells) - 1)
    steps = [(index / last, colour) for index, (_, colour, _) in enumerate(drawn)]
    heat = go.Heatmap(
        x=x, y=y, z=list(range(len(cells))), zmin=0, zmax=last, showscale=False, xgap=2, ygap=2, hoverinfo="skip",
        colorscale=steps if len(steps) > 1 else [*steps, (1.0, steps[0][1])],
    )  # fmt: skip
    points = go.Scatter(
        x=x, y=y, mode="markers+text", text=[text for text, _, _ in drawn], hoverinfo="text", cliponaxis=False,
        textfont={"color": [ink for _, _, ink in drawn], "size": size.number},
        customdata=[(cell.tile.BLOCK_M, cell.tile.BLOCK_N) for cell in cells],
        hovertext=[hover(cell, quantity, panel.board.title) for cell in cells],
        marker={"symbol": "square", "size": size.row - 4, "opacity": 0},
        selected={"marker": {"opacity": 0}}, unselected={"marker": {"opacity": 0}},
    )  # fmt: skip
    return heat, points


def _drawn(cell: Cell, panel: Panel, scale: Scale, theme: Theme) -> tuple[str, str, str]:
    """A cell's text, its colour and the colour of its text."""
    value, quantity = cell.value(panel.key), QUANTITIES[panel.key]
    if value is None or (cell.why_not and panel.key in COMPILED_HERE):
        return CROSS if cell.why_not else DASH, theme.grid if cell.why_not else theme.card, theme.muted
    text = quantity.spell(value) if panel.unit is None else in_unit(value, panel.unit)
    if cell.why_not:
        return text, theme.grid, theme.muted
    colour = shade(scale.place(value), quantity, theme)
    star = "" if panel.unit else f"{STAR}<br>"
    return f"<b>{star}{text}</b>" if cell.tile == panel.best else text, colour, ink_on(colour)


def hover(cell: Cell, quantity: Quantity, title: str) -> str:
    """What a cell says under the mouse: its number or the reason for none, and what holds its CTAs back."""
    number = cell.numbers[quantity.key]
    if cell.why_not:
        return f"<b>{cell.name}</b> on {_escaped(title)}<br>{folded(cell.why_not)}"
    said = quantity.spell(number.value) if number.value is not None else number.reason
    lines = [f"<b>{cell.name}</b> on {_escaped(title)}", f"{quantity.title}: {folded(said)}"]
    if cell.limits:
        lines.append(f"CTAs per SM are limited by {' and '.join(cell.limits)}")
    return "<br>".join(lines)


def folded(text: str, width: int = 60) -> str:
    """Text for a hover label, on lines that are not much longer than `width`."""
    lines = [""]
    for word in _escaped(text).split():
        if len(lines[-1]) + len(word) > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "<br>".join(lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")
