"""Draws one moment of a walk: the score matrix as tiles, Q, K, V and O along its edges, and below how often K was read.

Axes count Q rows and KV positions, so that kernels with other tiles lie on the same ones.
"""

import numpy as np
import plotly.graph_objects as go

from app.packed_rows import rows_title
from app.style import Theme, ink_on, template
from app.tile_cells import Cells
from app.tile_frames import at_hand, edge_names, edge_strips, frames, ground, margins, running_ticks
from app.tile_moment import Moment
from app.tile_scores import HeadScores, score_traces
from app.tile_shades import code_scale, order_shade, shade_codes
from kernels.problem import Int64Array

MOST_LABELLED = 8  # cells along a side that still have room for a number
MOST_CLICKABLE = 64
REACH = 20  # pixels beyond a target at which it is still found
STRIP_DOMAIN, MATRIX_DOMAIN = (0.0, 0.13), (0.17, 1.0)


def tile_map(
    moment: Moment,
    cells: Cells,
    theme: Theme,
    height: int = 540,
    most_reads: int | None = None,
    scores: HeadScores | None = None,
    running: Int64Array | None = None,
) -> go.Figure:
    """The score matrix of one (batch, head): tiles like the background first, then away from it; grey where skipped.

    What the head has not come to yet is washed out. The chosen program's Q tile is framed in Q's colour, the KV tile
    at hand in K's, the tile at hand is filled in P's. `most_reads` is the top of the axis of K's reads, None for no
    such axis. `running` are KV tiles of programs that run at the same time, ticked on K and V. Clicks select a cell's
    first tile where there are at most 64 × 64 cells.
    """
    traces: list[object] = [_order(moment, cells, theme), at_hand(moment, cells), _partial(cells, theme)]
    if scores is not None:
        traces += score_traces(scores, moment, cells, theme)
    elif _is_labelled(cells):
        traces.append(_labels(moment, cells, theme))
    if max(cells.visited.shape) <= MOST_CLICKABLE:
        traces.append(_click_targets(cells))
    if most_reads is not None:
        traces.append(_reads(moment, cells))
    if running is not None:
        traces.append(running_ticks(running, cells, theme))
    return go.Figure(traces, _layout(moment, cells, theme, height, most_reads))


def _layout(moment: Moment, cells: Cells, theme: Theme, height: int, most_reads: int | None) -> dict[str, object]:
    rows, keys = cells.rows, cells.keys
    margin_y, margin_x = margins(cells)
    longest = f"{int(rows[-1]):,}"
    axis = {"showgrid": False, "zeroline": False, "fixedrange": True, "ticks": "", "tickangle": 0, "automargin": False}
    # All at once: each add_shape would have plotly check again what is there already.
    layout: dict[str, object] = {
        "template": template(theme),
        "height": height,
        "showlegend": False,
        "hoverdistance": round(REACH + _target_size(cells) / 2),
        "shapes": [ground(cells, theme), *frames(moment, cells), *edge_strips(moment, cells)],
        "annotations": edge_names(cells, theme),
        # Fixed: to fit margins to labels, Plotly draws everything a second time.
        "margin": {"l": 30 + 6 * len(longest), "b": 37},
        "xaxis": axis
        | _ticks(int(keys[0]), int(keys[-1]), cells.grid.BLOCK_N)
        | {"range": [keys[0] - margin_x, keys[-1] + margin_x], "title": {"text": "KV position"}},
        "yaxis": axis
        | _ticks(int(rows[0]), int(rows[-1]), cells.grid.BLOCK_M)
        | {"range": [rows[-1] + 0.01 * (rows[-1] - rows[0]), rows[0] - margin_y]}
        | {"title": {"text": rows_title(cells.grid)}},
    }
    if most_reads is not None:
        layout["yaxis"] = layout["yaxis"] | {"domain": MATRIX_DOMAIN}  # type: ignore[operator]
        layout["xaxis"] = layout["xaxis"] | {"anchor": "y2"}  # type: ignore[operator]
        layout["yaxis2"] = axis | {
            "domain": STRIP_DOMAIN,
            "range": [0, 1.05 * most_reads],
            "tickvals": [0, most_reads],
            "tickformat": ",d",
            "title": {"text": "K reads"},
            "showgrid": True,
        }
    return layout


def _ticks(first: int, last: int, block: int) -> dict[str, object]:
    """Ticks at edges of tiles, a power of two of them apart; within tiles where there are not even four of them."""
    most = 8 if last < 1_000 else 5
    step = block if 4 * block <= last - first else 1
    while (last - first) / step > most:
        step *= 2
    start = -(-first // step) * step
    values = list(range(start, last, step))
    return {"tickmode": "array", "tickvals": values, "ticktext": [f"{value:,}" for value in values]}


def _order(moment: Moment, cells: Cells, theme: Theme) -> go.Heatmap:
    rows, columns = cells.visited.shape
    return go.Heatmap(
        x=cells.keys,
        y=cells.rows,
        z=shade_codes(cells.order / _longest(moment), _is_ahead(moment, cells)),
        zmin=0,
        zmax=255,
        colorscale=code_scale(theme),
        showscale=False,
        xgap=_gap(columns),
        ygap=_gap(rows),
        hoverinfo="skip",
    )


def _longest(moment: Moment) -> int:
    """The last step of the longest program."""
    return max(1, int(moment.walk.steps.max()) - 1)


def _is_ahead(moment: Moment, cells: Cells) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    return np.asarray(cells.head_order > moment.head_step)


def _is_labelled(cells: Cells) -> bool:
    return cells.is_exact and max(cells.visited.shape) <= MOST_LABELLED


def _labels(moment: Moment, cells: Cells, theme: Theme) -> go.Scatter:
    """The step of the head at which each tile is visited first, counted from 1; others say that they are skipped."""
    x, y = (part.ravel() for part in np.meshgrid(_middles(cells.keys), _middles(cells.rows)))
    ahead, here = _is_ahead(moment, cells).ravel(), _cell_at_hand(moment, cells)
    colours, words = [], []
    for index, (step, order) in enumerate(zip(cells.head_order.ravel(), cells.order.ravel(), strict=True)):
        words.append("skip" if np.isnan(step) else f"{int(step) + 1}")
        strong = "#FFFFFF" if index == here else ink_on(order_shade(order / _longest(moment), theme))
        colours.append(theme.muted if np.isnan(step) else theme.ink if ahead[index] and index != here else strong)
    font = {"size": 12, "color": colours}
    return go.Scatter(x=x, y=y, mode="text", text=words, textfont=font, hoverinfo="skip")


def _cell_at_hand(moment: Moment, cells: Cells) -> int | None:
    """The index of the cell at hand, row by row."""
    if moment.kv_tile is None:
        return None
    row, column = cells.cell_of(moment.q_tile, moment.kv_tile)
    return row * int(cells.visited.shape[1]) + column


def _middles(edges: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return (edges[:-1] + edges[1:]) / 2


def _gap(cells: int) -> float:
    return 2 if cells <= 32 else 1 if cells <= 64 else 0


def _partial(cells: Cells, theme: Theme) -> go.Scatter:
    """A stroke across every tile in which the mask hides some scores; beside its label where it has one."""
    row, column = np.nonzero(cells.partial)
    size, aside = float(np.clip(260 / max(cells.visited.shape), 4, 16)), 0.36 * _is_labelled(cells)
    x, y = _middles(cells.keys)[column], _middles(cells.rows)[row]
    return go.Scatter(
        x=x + aside * np.diff(cells.keys)[column],
        y=y - aside * np.diff(cells.rows)[row],
        mode="markers",
        marker={"symbol": "line-ne", "size": size, "line": {"color": theme.card, "width": 1.5}},
        hoverinfo="skip",
    )


def _click_targets(cells: Cells) -> go.Scatter:
    """Points on all visited tiles: a heat map alone cannot be clicked in Streamlit.

    All but one are left undrawn, which they need not be to be found: as nodes of their own they would be slow.
    """
    row, column = np.nonzero(cells.visited > 0)
    tiles = np.stack([cells.q_tiles[row], cells.kv_tiles[column], cells.order[row, column].astype(np.int64)], axis=1)
    return go.Scatter(
        x=_middles(cells.keys)[column],
        y=_middles(cells.rows)[row],
        mode="markers",
        marker={"size": 6, "color": "rgba(0,0,0,0)", "maxdisplayed": 1},
        customdata=tiles,
        hovertemplate="Q tile %{customdata[0]}, KV tile %{customdata[1]}: step %{customdata[2]} of its program"
        "<extra></extra>",
    )


def _target_size(cells: Cells) -> float:
    """Pixels across a cell's middle within which a click is surely meant for it."""
    return float(np.clip(380 / max(cells.visited.shape), 5, 60))


def _reads(moment: Moment, cells: Cells) -> go.Scatter:
    """How often K of each cell was read so far, the mean over its tiles, as an area of steps."""
    reads = moment.kv_reads[0]
    first, last = int(cells.kv_tiles[0]), int(cells.kv_tiles[-1])
    mean = np.add.reduceat(reads[first:last], cells.kv_tiles[:-1] - first) / np.diff(cells.kv_tiles)
    return go.Scatter(
        x=cells.keys,
        y=np.append(mean, mean[-1]).astype(np.float32),
        yaxis="y2",
        mode="lines",
        line={"shape": "hv", "width": 1, "color": "#E69F00"},
        fill="tozeroy",
        hovertemplate="from KV position %{x:,d}: K read %{y:.4~g} times<extra></extra>",
    )
