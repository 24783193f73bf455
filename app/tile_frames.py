"""What is drawn over and around the score matrix: where a program stands, and Q, K, V and O along the edges."""

import numpy as np
import plotly.graph_objects as go

from app.style import TENSOR, Theme
from app.tensor_names import tensor_title
from app.tile_cells import Cells
from app.tile_moment import Moment
from kernels.problem import Int64Array

STRIP, GAP = 0.035, 0.018  # thickness of the edge strips and the space beside them, as shares of the matrix

Span = tuple[float, float]
Shape = dict[str, object]


def margins(cells: Cells) -> tuple[float, float]:
    """Room for the strips above and below, in rows, and left and right, in keys."""
    share = 2 * (STRIP + GAP) + 0.02
    return share * _size(*_rows(cells)), share * _size(*_keys(cells))


def ground(cells: Cells, theme: Theme) -> Shape:
    """The matrix where nothing is visited."""
    return _box(_keys(cells), _rows(cells), theme.grid, 0.45) | {"layer": "below"}


def at_hand(moment: Moment, cells: Cells) -> go.Scatter:
    """The tile at hand, filled; a trace and not a shape, so that numbers can stand on it."""
    row, column = _cell(moment, cells)
    (x0, x1), (y0, y1) = column or (None, None), row
    return go.Scatter(
        x=[x0, x1, x1, x0, x0],
        y=[y0, y0, y1, y1, y0],
        mode="lines",
        line={"width": 1, "color": TENSOR["p"]},
        fill="toself",
        fillcolor=TENSOR["p"],
        hoverinfo="skip",
    )


def frames(moment: Moment, cells: Cells) -> list[Shape]:
    """Frames around the KV tile at hand and the chosen Q tile."""
    row, column = _cell(moment, cells)
    found = [] if column is None else [_frame(column, _rows(cells), TENSOR["k"])]
    return [*found, _frame(_keys(cells), row, TENSOR["q"])]


def edge_strips(moment: Moment, cells: Cells) -> list[Shape]:
    """Q left, K and V above, O right: pale as they lie in HBM, strong what is on chip or, of O, written now."""
    row, column = _cell(moment, cells)
    now = moment.kv_now | (moment.asked_now & {"o"}) | {"q"}
    shapes = []
    for tensor, (edge, is_upright) in _strips(cells).items():
        whole, part = (_rows(cells), row) if is_upright else (_keys(cells), column)
        for span, opacity in ((whole, 0.22), (part if tensor in now else None, 1.0)):
            if span is not None:
                x, y = (edge, span) if is_upright else (span, edge)
                # Ticks lie over them.
                shapes.append(_box(x, y, TENSOR[tensor], opacity) | {"layer": "below"})
    return shapes


def running_ticks(kv_tiles: Int64Array, cells: Cells, theme: Theme) -> go.Scatter:
    """A tick across K and V at each of these KV tiles, at its middle; of those within the cells."""
    block, keys = cells.grid.BLOCK_N, cells.keys
    middle = np.minimum((kv_tiles + 0.5) * block, cells.grid.problem.seq_len_kv)
    middle = middle[(keys[0] <= middle) & (middle <= keys[-1])]
    (top, _), (_, bottom) = (_strips(cells)[tensor][0] for tensor in ("k", "v"))
    gap = np.full(len(middle), np.nan)
    return go.Scatter(
        x=np.stack([middle, middle, gap], axis=1).ravel().astype(np.float32),
        y=np.tile([top, bottom, np.nan], len(middle)).astype(np.float32),
        mode="lines",
        line={"color": theme.ink, "width": 1},
        hoverinfo="skip",
    )


def edge_names(cells: Cells, theme: Theme) -> list[dict[str, object]]:
    """The tensors' letters, at the lower or the left end of their strips."""
    names = []
    for tensor, (edge, is_upright) in _strips(cells).items():
        middle = sum(edge) / 2
        place = (
            {"x": middle, "y": _rows(cells)[1], "yanchor": "top"}
            if is_upright
            else {"x": _keys(cells)[0], "y": middle, "xanchor": "right"}
        )
        font = {"color": theme.ink, "size": 12}
        names.append(place | {"text": f"<b>{tensor_title(tensor)}</b>", "showarrow": False, "font": font})
    return names


def _strips(cells: Cells) -> dict[str, tuple[Span, bool]]:
    """Where each tensor's strip lies across its length, and whether it stands upright."""
    found = {}
    for tensor, slot, is_upright in (("q", -1, True), ("o", 1, True), ("k", -2, False), ("v", -1, False)):
        first, last = _keys(cells) if is_upright else _rows(cells)
        size = last - first
        edge = first + slot * size * (STRIP + GAP) if slot < 0 else last + size * GAP
        found[tensor] = ((edge, edge + size * STRIP), is_upright)
    return found


def _cell(moment: Moment, cells: Cells) -> tuple[Span, Span | None]:
    """What the cell at hand spans in rows and in keys."""
    kv_tile = moment.kv_tile
    row, column = cells.cell_of(moment.q_tile, int(cells.kv_tiles[0]) if kv_tile is None else kv_tile)
    (y0, y1), (x0, x1) = cells.rows[row : row + 2].tolist(), cells.keys[column : column + 2].tolist()
    return (y0, y1), None if kv_tile is None else (x0, x1)


def _rows(cells: Cells) -> Span:
    return float(cells.rows[0]), float(cells.rows[-1])


def _keys(cells: Cells) -> Span:
    return float(cells.keys[0]), float(cells.keys[-1])


def _size(first: float, last: float) -> float:
    return last - first


def _frame(x: Span, y: Span, colour: str) -> Shape:
    return _box(x, y, "rgba(0,0,0,0)") | {"line": {"color": colour, "width": 2}}


def _box(x: Span, y: Span, fill: str, opacity: float = 1.0) -> Shape:
    (x0, x1), (y0, y1) = x, y
    size = {"x0": x0, "x1": x1, "y0": y0, "y1": y1}
    return {"type": "rect", "fillcolor": fill, "opacity": opacity, "line": {"width": 0}} | size
