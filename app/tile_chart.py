"""Draws one moment of a tiled launch: the score matrix as tiles, with Q, K, V and O along its edges."""

import numpy as np
import plotly.graph_objects as go

from app.style import DARK, LIGHT, TENSOR, Theme, template
from app.tile_cells import Cells
from app.tile_moment import Moment

MOST_LABELLED = 8  # cells along a side that still have room for the tile's indices
MOST_CLICKABLE = 64
STRIP, GAP = 0.035, 0.018  # thickness of the edge strips and the space beside them, as shares of the matrix


def tile_map(moment: Moment, cells: Cells, theme: Theme, height: int = 540) -> go.Figure:
    """The score matrix of one (batch, head): pale tiles first, strong tiles last, grey where the mask skips.

    The chosen program's Q tile is framed in Q's colour, the KV tile at hand in K's, the tile at hand is filled in P's.
    Clicks select a cell's first tile where there are at most 64 × 64 cells.
    """
    rows, columns = cells.visited.shape
    figure = go.Figure(layout={"template": template(theme), "height": height, "showlegend": False})
    figure.add_shape(
        type="rect", x0=-0.5, x1=columns - 0.5, y0=-0.5, y1=rows - 0.5, line_width=0, layer="below",
        fillcolor=theme.grid, opacity=0.45,
    )  # fmt: skip
    figure.add_trace(_order(moment, cells, theme))
    figure.add_trace(_partial(cells, theme))
    if max(rows, columns) <= MOST_CLICKABLE:
        figure.add_trace(_click_targets(cells))
    _mark_current(figure, moment, cells, theme)
    if _is_labelled(cells):
        figure.add_trace(_labels(moment, cells, theme))
    _edge_strips(figure, moment, cells, theme)
    margin_x, margin_y = (2 * (STRIP + GAP) + 0.02) * columns, (2 * (STRIP + GAP) + 0.02) * rows
    axis = {"showgrid": False, "zeroline": False, "fixedrange": True, "ticks": ""}
    figure.update_xaxes(
        **axis, range=[-0.5 - margin_x, columns - 0.5 + margin_x], title_text=_axis_name("KV tile", cells.kv_step),
        **_ticks(cells.kv_start, cells.kv_step, columns),
    )  # fmt: skip
    figure.update_yaxes(
        **axis, range=[rows - 0.5 + 0.01 * rows, -0.5 - margin_y], title_text=_axis_name("Q tile", cells.q_step),
        **_ticks(cells.q_start, cells.q_step, rows),
    )  # fmt: skip
    return figure


def _is_labelled(cells: Cells) -> bool:
    return cells.is_exact and max(cells.visited.shape) <= MOST_LABELLED


def _axis_name(name: str, step: int) -> str:
    return name if step == 1 else f"{name} ({step} a cell)"


def _ticks(start: int, step: int, count: int, most: int = 8) -> dict[str, object]:
    """Ticks at cells, labelled with the number of the cell's first tile."""
    stride = max(1, -(-count // most))
    cells = list(range(0, count, stride))
    return {"tickmode": "array", "tickvals": cells, "ticktext": [f"{start + cell * step:,}" for cell in cells]}


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
    """Invisible points on all visited tiles: a heat map alone cannot be clicked in Streamlit."""
    row, column = np.nonzero(cells.visited > 0)
    size = float(np.clip(380 / max(cells.visited.shape), 5, 60))
    tiles = np.stack([row * cells.q_step + cells.q_start, column * cells.kv_step + cells.kv_start], axis=1)
    return go.Scatter(
        x=column,
        y=row,
        mode="markers",
        marker={"symbol": "square", "size": size, "color": "rgba(0,0,0,0)"},
        customdata=tiles.tolist(),  # Streamlit hands an array's rows back as dicts
        hovertemplate="Q tile %{customdata[0]}, KV tile %{customdata[1]}<extra></extra>",
    )


def _mark_current(figure: go.Figure, moment: Moment, cells: Cells, theme: Theme) -> None:
    rows, columns = cells.visited.shape
    kv_tile = moment.kv_tile
    row, column = cells.cell_of(moment.q_tile, 0 if kv_tile is None else kv_tile)
    frame = {"type": "rect", "fillcolor": "rgba(0,0,0,0)"}
    if kv_tile is not None:
        figure.add_shape(
            frame, x0=column - 0.5, x1=column + 0.5, y0=-0.5, y1=rows - 0.5, line={"color": TENSOR["k"], "width": 2}
        )
    figure.add_shape(
        frame, x0=-0.5, x1=columns - 0.5, y0=row - 0.5, y1=row + 0.5, line={"color": TENSOR["q"], "width": 2}
    )
    if kv_tile is None:
        return
    figure.add_shape(
        type="rect", x0=column - 0.5, x1=column + 0.5, y0=row - 0.5, y1=row + 0.5, fillcolor=TENSOR["p"],
        line={"color": theme.card, "width": 1},
        label={"text": f"{moment.q_tile}, {kv_tile}" if _is_labelled(cells) else "", "font_color": "#FFFFFF"},
    )  # fmt: skip


def _edge_strips(figure: go.Figure, moment: Moment, cells: Cells, theme: Theme) -> None:
    """Q left, K and V above, O right: pale as they lie in HBM, strong where a tile is on chip or, for O, written."""
    rows, columns = cells.visited.shape
    kv_tile = moment.kv_tile
    row, column = cells.cell_of(moment.q_tile, 0 if kv_tile is None else kv_tile)
    written = row + (moment.step + 1 >= moment.steps)
    here = (row - 0.5, row + 0.5)
    there = None if kv_tile is None else (column - 0.5, column + 0.5)
    for tensor, slot, upright, strong in (
        ("q", -1, True, here),
        ("o", 1, True, (-0.5, written - 0.5) if written > 0 else None),
        ("k", -2, False, there),
        ("v", -1, False, there),
    ):
        across = (columns if upright else rows) * (STRIP + GAP)
        thick = (columns if upright else rows) * STRIP
        edge = -0.5 + slot * across if slot < 0 else columns - 0.5 + across - thick
        length = (-0.5, (rows if upright else columns) - 0.5)
        for span, opacity in ((length, 0.22), (strong, 1.0)):
            if span is None:
                continue
            side, along = (edge, edge + thick), span
            (x0, x1), (y0, y1) = (side, along) if upright else (along, side)
            figure.add_shape(
                type="rect", x0=x0, x1=x1, y0=y0, y1=y1, fillcolor=TENSOR[tensor], opacity=opacity, line_width=0
            )
        label = {"x": edge + thick / 2, "y": rows - 0.5} if upright else {"x": -0.5, "y": edge + thick / 2}
        anchor = {"yanchor": "top"} if upright else {"xanchor": "right"}
        figure.add_annotation(
            label | anchor, text=f"<b>{tensor.upper()}</b>", showarrow=False, font={"color": theme.ink, "size": 12}
        )
