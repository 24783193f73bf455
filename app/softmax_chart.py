"""Draws the online softmax: m, l, alpha and |acc| along one row, over all traced rows, and the accumulator itself."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from app.softmax_state import Floats, RowState, pooled
from app.style import DARK, STATE, Theme, shade, template

MOST_MARKERS = 160
MOST_BARS = 400
MOST_NAMED = 6  # states whose beginnings have room for a label
MAP_ROWS, MAP_COLUMNS = 256, 512
FEW_ROWS = 6
PANELS = (
    ("m", "m  running maximum"),
    ("l", "l  running sum"),
    ("alpha", "α  rescale factor"),
    ("acc_norm", "|acc|  length of the accumulator's row"),
)
COLOUR = {"m": STATE["m"], "l": STATE["l"], "alpha": STATE["alpha"], "acc_norm": STATE["acc"]}


def row_panels(state: RowState, kv_tile: int | None, theme: Theme, height: int = 740) -> go.Figure:
    """Four panels over the same KV tiles: points from the kernel on a thin line of exact values; α as bars."""
    figure = make_subplots(
        rows=4, cols=1, shared_xaxes=True, vertical_spacing=0.075, row_heights=[1, 1, 0.8, 1],
        subplot_titles=[title for _, title in PANELS],
    )  # fmt: skip
    figure.update_layout(template=template(theme), height=height, showlegend=False, margin_t=24)
    figure.update_annotations(x=0, xanchor="left", font={"size": 12, "color": theme.ink})
    for place, (name, _) in enumerate(PANELS, start=1):
        if name == "alpha":
            figure.add_trace(_alpha_bars(state, theme), row=place, col=1)
        else:
            for trace in _line_and_points(state, name, theme):
                figure.add_trace(trace, row=place, col=1)
        figure.update_yaxes(range=_span(getattr(state, name), name), nticks=4, row=place, col=1)
    visited = state.visited
    if len(visited):
        ends = [visited.min() - 0.7, visited.max() + 0.7]
        figure.update_xaxes(range=ends, dtick=1 if len(visited) <= 16 else None)
    _mark_restarts(figure, state, theme)
    if kv_tile is not None and kv_tile in visited:
        figure.add_vline(kv_tile, line={"color": theme.muted, "width": 1, "dash": "dot"})
    figure.update_xaxes(fixedrange=True, tickformat=",d")
    figure.update_yaxes(fixedrange=True)
    figure.update_xaxes(title_text="KV tile", row=4, col=1)
    return figure


def _span(values: Floats, name: str) -> list[float] | None:
    if name == "alpha":
        return [0, 1.08]
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None
    low, high = float(finite.min()), float(finite.max())
    if name != "m":
        low = 0.0
    pad = 0.12 * (high - low) or 0.5
    return [low - (pad if name == "m" else 0.02 * high), high + pad]


def _line_and_points(state: RowState, name: str, theme: Theme) -> tuple[go.Scatter, go.Scatter]:
    colour, shape = shade(COLOUR[name], theme), "hv" if name == "m" else "linear"
    exact = go.Scatter(
        x=_in_order(state, np.arange(len(state.m))),
        y=_in_order(state, getattr(state, f"exact_{name}")),
        mode="lines",
        line={"color": STATE["exact"], "width": 1, "shape": shape},
        hovertemplate="exact %{y:.7g}<extra></extra>",
    )
    few = len(state.visited) <= MOST_MARKERS
    kernel = go.Scatter(
        x=_in_order(state, np.arange(len(state.m))),
        y=_in_order(state, getattr(state, name)),
        mode="markers" if few else "lines",
        marker={"color": colour, "size": 6 if len(state.visited) <= 64 else 4},
        line={"color": colour, "width": 1.5, "shape": shape},
        hovertemplate="KV tile %{x}: kernel %{y:.7g}<extra></extra>",
    )
    return (exact, kernel) if few else (kernel, exact)


def _in_order(state: RowState, values: NDArray[np.generic]) -> Floats:
    """Values by KV tile as the states meet the tiles, so that lines go where the program goes; a gap between states."""
    parts = [np.append(np.where(np.isfinite(values[order]), values[order], np.nan), np.nan) for order in state.states]
    return np.concatenate([np.zeros(0), *parts])


def _mark_restarts(figure: go.Figure, state: RowState, theme: Theme) -> None:
    """A line through all panels at the edge of each later state's first tile; a few are named."""
    edges = [int(tile) + (0.5 if state.is_backward else -0.5) for tile in state.restarts]
    is_named = len(state.states) <= MOST_NAMED
    line = {"color": theme.muted, "width": 1.5 if is_named else 0.75}
    whole = {"type": "line", "y0": 0, "y1": 1, "yref": "paper", "line": line}
    lines = [whole | {"x0": edge, "x1": edge} for edge in edges]
    names = [
        {
            "x": edge, "y": 1, "yref": "paper", "text": f"state {number}", "showarrow": False, "yanchor": "top",
            "font": {"size": 11, "color": theme.muted}, "xanchor": "right" if state.is_backward else "left",
            "xshift": -3 if state.is_backward else 3,
        }
        for number, edge in enumerate(edges, start=2)
        if is_named
    ]  # fmt: skip
    # All at once: each add_vline would have plotly check again what is there already.
    figure.update_layout(shapes=lines, annotations=[*figure.layout.annotations, *names])


def _alpha_bars(state: RowState, theme: Theme) -> go.Bar:
    """One bar a tile, or the smallest of a stretch of tiles; strong where α < 1, none where nothing was summed yet."""
    smallest, _, width = pooled(state.rescale[None, :], 1, MOST_BARS, largest=False)
    alpha = smallest[0]
    rescales = np.nan_to_num(alpha, nan=1.0) < 1
    return go.Bar(
        x=np.arange(len(alpha)) * width + (width - 1) / 2,
        y=alpha,
        width=0.8 * width,
        marker={"color": np.where(rescales, STATE["alpha"], theme.grid).tolist(), "line_width": 0},
        hovertemplate="KV tile %{x}: α %{y:.4g}<extra></extra>",
    )


def over_rows(values: Floats, name: str, row_start: int, marks: tuple[int, int | None], theme: Theme) -> go.Figure:
    """A heat map rows × KV tiles of alpha or m, each cell the smallest alpha or largest m of its block.

    marks: the chosen row and KV tile, framed.
    """
    finite = np.where(np.isfinite(values), values, np.nan)
    cells, height, width = pooled(finite, MAP_ROWS, MAP_COLUMNS, largest=name == "m")
    strong, symbol = shade(STATE[name], theme), {"alpha": "α"}.get(name, name)
    scale = [[0, strong], [1, theme.grid]] if name == "alpha" else [[0, theme.grid], [1, strong]]
    figure = go.Figure(layout={"template": template(theme), "height": 310})
    figure.add_trace(
        go.Heatmap(
            z=cells.astype(np.float32),
            x0=(width - 1) / 2,
            dx=width,
            y0=row_start + (height - 1) / 2,
            dy=height,
            zmin=0 if name == "alpha" else None,
            zmax=1 if name == "alpha" else None,
            colorscale=scale,
            colorbar={"thickness": 8, "outlinewidth": 0, "tickfont": {"color": theme.muted}, "nticks": 5},
            hovertemplate=f"row %{{y:.0f}}, KV tile %{{x:.0f}}: {symbol} %{{z:.4g}}<extra></extra>",
            hoverongaps=False,
        )
    )
    row, kv_tile = marks
    figure.add_hline(row, line={"color": theme.ink, "width": 1, "dash": "dot"})
    if kv_tile is not None:
        figure.add_vline(kv_tile, line={"color": theme.ink, "width": 1, "dash": "dot"})
    ends = [-0.5, values.shape[1] - 0.5]
    figure.update_xaxes(
        title_text="KV tile", range=ends, showgrid=False, zeroline=False, fixedrange=True, tickformat=",d"
    )
    _count_rows(figure, row_start, len(values))
    return figure


def accumulator(acc: NDArray[np.float64], first_row: int, row: int, theme: Theme) -> go.Figure:
    """The accumulator [rows, head_dim] of one Q tile as a heat map, zero in the middle of the scale."""
    finite = np.abs(acc[np.isfinite(acc)])
    largest = float(finite.max()) if len(finite) else 1.0
    low, high = ("#E69F00", "#56B4E9") if theme is DARK else ("#B45F06", "#0072B2")
    figure = go.Figure(layout={"template": template(theme), "height": 310})
    figure.add_trace(
        go.Heatmap(
            z=np.where(np.isfinite(acc), acc, np.nan).astype(np.float32),
            y0=first_row,
            zmin=-largest,
            zmax=largest,
            colorscale=[[0, low], [0.5, theme.card], [1, high]],
            colorbar={"thickness": 8, "outlinewidth": 0, "tickfont": {"color": theme.muted}, "nticks": 5},
            hovertemplate="row %{y}, column %{x}: %{z:.4g}<extra></extra>",
            hoverongaps=False,
        )
    )
    if first_row <= row < first_row + len(acc):
        figure.add_hline(row, line={"color": theme.ink, "width": 1, "dash": "dot"})
    figure.update_xaxes(title_text="column of head_dim", showgrid=False, zeroline=False, fixedrange=True)
    _count_rows(figure, first_row, len(acc))
    return figure


def _count_rows(figure: go.Figure, first: int, count: int) -> None:
    """The axis along rows, the first on top; of few rows each has a tick: Plotly's own would tell one several times."""
    ends, step = [first + count - 0.5, first - 0.5], 1 if count <= FEW_ROWS else None
    figure.update_yaxes(
        title_text="row", range=ends, dtick=step, showgrid=False, zeroline=False, fixedrange=True, tickformat=",d"
    )
