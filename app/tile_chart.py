"""Draws one moment of a tiled launch: the score matrix as tiles, with Q, K, V and O along its edges."""

import numpy as np
import plotly.graph_objects as go

from app.style import DARK, LIGHT, TENSOR, Theme, template
from app.tile_cells import Cells
from app.tile_moment import Moment

MOST_LABELLED = 8  # cells along a side that still have room for the tile's indices
MOST_CLICKABLE = 64
REACH = 20  # pixels beyond a target at which it is still found
STRIP, GAP = 0.035, 0.018  # thickness of the edge strips and the space beside them, as shares of the matrix

Span = tuple[float, float]
Shape = dict[str, object]


def tile_map(moment: Moment, cells: Cells, theme: Theme, height: int = 540) -> go.Figure:
    """The score matrix of one (batch, head): tiles like the background first, then away from it; grey where skipped.

    The chosen program's Q tile is framed in Q's colour, the KV tile at hand in K's, the tile at hand is filled in P's.
    Clicks select a cell's first tile where there are at most 64 × 64 cells.
    """
    rows, columns = cells.visited.shape
    traces = [_order(moment, cells, theme), _partial(cells, theme)]
    if max(rows, columns) <= MOST_CLICKABLE:
        traces.append(_click_targets(cells))
    if _is_labelled(cells):
        traces.append(_labels(moment, cells, theme))
    ground = _box((-0.5, columns - 0.5), (-0.5, rows - 0.5), theme.grid, 0.45) | {"layer": "below"}
    margin_x, margin_y = (2 * (STRIP + GAP) + 0.02) * columns, (2 * (STRIP + GAP) + 0.02) * rows
    down, along = _ticks(cells.q_start, cells.q_step, rows), _ticks(cells.kv_start, cells.kv_step, columns)
    longest = f"{cells.q_start + (rows - 1) * cells.q_step:,}"
    axis = {"showgrid": False, "zeroline": False, "fixedrange": True, "ticks": "", "tickangle": 0, "automargin": False}
    # All at once: each add_shape would have plotly check again what is there already.
    layout = {
        "template": template(theme),
        "height": height,
        "showlegend": False,
        "hoverdistance": round(REACH + _target_size(cells) / 2),
        "shapes": [ground, *_current(moment, cells, theme), *_edge_strips(moment, cells)],
        "annotations": _edge_names(cells, theme),
        # Fixed: to fit margins to labels, Plotly draws everything a second time.
        "margin": {"l": 21 + 6 * len(longest), "b": 37},
        "xaxis": axis
        | along
        | {
            "range": [-0.5 - margin_x, columns - 0.5 + margin_x],
            "title": {"text": _axis_name("KV tile", cells.kv_step)},
        },
        "yaxis": axis
        | down
        | {"range": [rows - 0.5 + 0.01 * rows, -0.5 - margin_y], "title": {"text": _axis_name("Q tile", cells.q_step)}},
    }
    return go.Figure(traces, layout)


def _is_labelled(cells: Cells) -> bool:
    return cells.is_exact and max(cells.visited.shape) <= MOST_LABELLED


def _axis_name(name: str, step: int) -> str:
    return name if step == 1 else f"{name} ({step} a cell)"


def _ticks(start: int, step: int, count: int) -> dict[str, object]:
    """Ticks at cells, labelled with the number of the cell's first tile; long numbers stand farther apart."""
    most = 8 if start + count * step < 10_000 else 4
    cells = list(range(0, count, max(1, -(-count // most))))
    return {"tickmode": "array", "tickvals": cells, "ticktext": [f"{start + cell * step:,}" for cell in cells]}


def scale_in_words(theme: Theme) -> str:
    """From the first tile's colour to the last's: each scale leads away from the background."""
    return "Dark to pale" if theme is DARK else "Pale to strong"


def _order(moment: Moment, cells: Cells, theme: Theme) -> go.Heatmap:
    scale = ["#28525C", "#2BA39B", "#A6E5DF"] if theme is DARK else ["#D3E7EA", "#6FB1AE", "#0B7A75"]
    rows, columns = cells.visited.shape
    return go.Heatmap(
        z=cells.order.astype(np.float32),
        zmin=0,
        zmax=max(1, _longest(moment) - 1),
        colorscale=scale,
        showscale=False,
        xgap=_gap(columns),
        ygap=_gap(rows),
        hovertemplate="KV tile %{x}, Q tile %{y}: step %{z:.0f}<extra></extra>" if cells.is_exact else None,
        hoverinfo=None if cells.is_exact else "skip",
        hoverongaps=False,
    )


def _labels(moment: Moment, cells: Cells, theme: Theme) -> go.Scatter:
    """Q and KV index of each visited tile; the others say that they are skipped."""
    row, column = np.indices(cells.visited.shape).reshape(2, -1)
    shown = (cells.visited > 0).ravel()
    # The scale runs towards the ink in the light theme and away from it in the dark one.
    strong = np.nan_to_num(cells.order.ravel()) > 0.5 * (_longest(moment) - 1)
    light, dark = ("#FFFFFF", DARK.paper) if theme is DARK else (LIGHT.ink, "#FFFFFF")
    colours = np.where(shown, np.where(strong, dark, light), theme.muted)
    return go.Scatter(
        x=column,
        y=row,
        mode="text",
        text=[
            f"{i + cells.q_start}, {j + cells.kv_start}" if visited else "skip"
            for i, j, visited in zip(row.tolist(), column.tolist(), shown.tolist(), strict=True)
        ],
        textfont={"size": 12, "color": colours.tolist()},
        hoverinfo="skip",
    )


def _longest(moment: Moment) -> int:
    """KV tiles that the busiest program visits."""
    return int((moment.grid.last - moment.grid.first).max())


def _gap(cells: int) -> float:
    return 2 if cells <= 32 else 1 if cells <= 64 else 0


def _partial(cells: Cells, theme: Theme) -> go.Scatter:
    """A stroke across every tile in which the mask hides some scores; beside its label where it has one."""
    row, column = np.nonzero(cells.partial)
    size, aside = float(np.clip(260 / max(cells.visited.shape), 4, 16)), 0.36 * _is_labelled(cells)
    return go.Scatter(
        x=column + aside,
        y=row - aside,
        mode="markers",
        marker={"symbol": "line-ne", "size": size, "line": {"color": theme.card, "width": 1.5}},
        hoverinfo="skip",
    )


def _click_targets(cells: Cells) -> go.Scatter:
    """Points on all visited tiles: a heat map alone cannot be clicked in Streamlit.

    All but one are left undrawn, which they need not be to be found: as nodes of their own they would be slow.
    """
    row, column = np.nonzero(cells.visited > 0)
    tiles = np.stack([row * cells.q_step + cells.q_start, column * cells.kv_step + cells.kv_start], axis=1)
    return go.Scatter(
        x=column,
        y=row,
        mode="markers",
        marker={"size": 6, "color": "rgba(0,0,0,0)", "maxdisplayed": 1},
        customdata=tiles,
        hovertemplate="Q tile %{customdata[0]}, KV tile %{customdata[1]}<extra></extra>",
    )


def _target_size(cells: Cells) -> float:
    """Pixels across a cell's middle within which a click is surely meant for it."""
    return float(np.clip(380 / max(cells.visited.shape), 5, 60))


def _box(x: Span, y: Span, fill: str, opacity: float = 1.0, line: dict[str, object] | None = None) -> Shape:
    (x0, x1), (y0, y1) = x, y
    edge = {"width": 0} if line is None else line
    return {"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "fillcolor": fill, "opacity": opacity, "line": edge}


def _at_hand(moment: Moment, cells: Cells) -> tuple[Span, Span | None]:
    """What the chosen Q tile and the KV tile at hand span along their axes, in cells."""
    kv_tile = moment.kv_tile
    row, column = cells.cell_of(moment.q_tile, 0 if kv_tile is None else kv_tile)
    return (row - 0.5, row + 0.5), None if kv_tile is None else (column - 0.5, column + 0.5)


def _current(moment: Moment, cells: Cells, theme: Theme) -> list[Shape]:
    """Frames around the KV tile at hand and the chosen Q tile, and the tile where they meet."""
    rows, columns = cells.visited.shape
    row, column = _at_hand(moment, cells)
    q_frame = _box((-0.5, columns - 0.5), row, "rgba(0,0,0,0)", line={"color": TENSOR["q"], "width": 2})
    if column is None:
        return [q_frame]
    kv_frame = _box(column, (-0.5, rows - 0.5), "rgba(0,0,0,0)", line={"color": TENSOR["k"], "width": 2})
    tile = _box(column, row, TENSOR["p"], line={"color": theme.card, "width": 1})
    name = f"{moment.q_tile}, {moment.kv_tile}" if _is_labelled(cells) else ""
    return [kv_frame, q_frame, tile | {"label": {"text": name, "font": {"color": "#FFFFFF"}}}]


def _edge_strips(moment: Moment, cells: Cells) -> list[Shape]:
    """Q left, K and V above, O right: pale as they lie in HBM, strong where a tile is on chip or, for O, written."""
    rows, columns = cells.visited.shape
    row, column = _at_hand(moment, cells)
    written = row[0] + (moment.step + 1 >= moment.steps)
    strong = {"q": row, "k": column, "v": column, "o": (-0.5, written) if written > -0.5 else None}
    shapes = []
    for tensor, (edge, is_upright) in _strips(cells).items():
        for span, opacity in (((-0.5, (rows if is_upright else columns) - 0.5), 0.22), (strong[tensor], 1.0)):
            if span is not None:
                x, y = (edge, span) if is_upright else (span, edge)
                shapes.append(_box(x, y, TENSOR[tensor], opacity))
    return shapes


def _edge_names(cells: Cells, theme: Theme) -> list[dict[str, object]]:
    """The tensors' letters, at the lower or the left end of their strips."""
    names = []
    for tensor, (edge, is_upright) in _strips(cells).items():
        middle = sum(edge) / 2
        place = (
            {"x": middle, "y": cells.visited.shape[0] - 0.5, "yanchor": "top"}
            if is_upright
            else {"x": -0.5, "y": middle, "xanchor": "right"}
        )
        font = {"color": theme.ink, "size": 12}
        names.append(place | {"text": f"<b>{tensor.upper()}</b>", "showarrow": False, "font": font})
    return names


def _strips(cells: Cells) -> dict[str, tuple[Span, bool]]:
    """Where each tensor's strip lies across its length, and whether it stands upright."""
    rows, columns = cells.visited.shape
    found = {}
    for tensor, slot, is_upright in (("q", -1, True), ("o", 1, True), ("k", -2, False), ("v", -1, False)):
        size = columns if is_upright else rows
        thick = size * STRIP
        edge = -0.5 + slot * size * (STRIP + GAP) if slot < 0 else size - 0.5 + size * GAP
        found[tensor] = ((edge, edge + thick), is_upright)
    return found
