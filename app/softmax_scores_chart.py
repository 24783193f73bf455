"""Draws a row's scores along its keys with the running maximum over them, and below what each tile weighs."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.softmax_state import Floats, RowState
from app.style import STATE, TENSOR, Theme, shade, template

MOST_POINTS = 4096
MOST_TILES = 400
TITLES = ("s  scaled scores, and m", "share of the softmax by KV tile, %")


def score_panels(
    scores: Floats,
    probabilities: Floats,
    state: RowState,
    block: int,
    movers: list[int],
    kv_tile: int | None,
    theme: Theme,
) -> go.Figure:
    """Two panels over the same keys. scores [seq_len_kv] are NaN where hidden; `movers` are keys that moved m."""
    figure = make_subplots(
        rows=2, cols=1, shared_xaxes=True, vertical_spacing=0.13, row_heights=[2.6, 1], subplot_titles=TITLES
    )
    figure.update_layout(template=template(theme), height=470, showlegend=False, margin_t=24, bargap=0)
    figure.update_annotations(x=0, xanchor="left", font={"size": 12, "color": theme.ink})
    low, high, mean, width = _by_tile(scores, block)
    middle = np.arange(len(low)) * width + (width - 1) / 2
    figure.add_bar(
        x=middle, y=high - low, base=low, width=width, customdata=np.stack([low, mean, high], axis=1),
        marker={"color": TENSOR["s"], "opacity": 0.28, "line_width": 0},
        hovertemplate="keys around %{x:,.0f}: %{customdata[0]:.4g} to %{customdata[2]:.4g}, mean %{customdata[1]:.4g}"
        "<extra></extra>", row=1, col=1,
    )  # fmt: skip
    ends = np.stack([middle - width / 2, middle + width / 2, np.full_like(middle, np.nan)], axis=1).ravel()
    means = {"color": TENSOR["s"], "width": 1.5}
    figure.add_scatter(x=ends, y=np.repeat(mean, 3), mode="lines", line=means, hoverinfo="skip", row=1, col=1)
    keys = np.flatnonzero(np.isfinite(scores))
    if len(keys) <= MOST_POINTS:
        size = 7 if len(keys) <= 64 else 4 if len(keys) <= 512 else 2.5
        figure.add_scatter(
            x=keys, y=scores[keys], mode="markers", marker={"color": TENSOR["s"], "size": size},
            hovertemplate="key %{x:,.0f}: s %{y:.6g}<extra></extra>", row=1, col=1,
        )  # fmt: skip
    x, y = running_maximum(state, block)
    colour = shade(STATE["m"], theme)
    figure.add_scatter(
        x=x, y=y, mode="lines", line={"color": colour, "width": 2, "shape": "hv"},
        hovertemplate="m %{y:.6g}<extra></extra>", row=1, col=1,
    )  # fmt: skip
    ring = {"color": colour, "size": 11, "symbol": "circle-open", "line_width": 2}
    figure.add_scatter(
        x=movers, y=scores[movers], mode="markers", marker=ring,
        hovertemplate="key %{x:,.0f} moved m to %{y:.6g}<extra></extra>", row=1, col=1,
    )  # fmt: skip
    share = 100 * np.add.reduceat(probabilities, np.arange(0, len(probabilities), width))
    figure.add_bar(
        x=middle, y=share, width=0.9 * width, marker={"color": TENSOR["p"], "line_width": 0},
        hovertemplate="keys around %{x:,.0f}: %{y:.4g}%<extra></extra>", row=2, col=1,
    )  # fmt: skip
    if kv_tile is not None and kv_tile in state.visited:
        figure.add_vline((kv_tile + 0.5) * block - 0.5, line={"color": theme.muted, "width": 1, "dash": "dot"})
    seen = [state.visited.min() * block, min((state.visited.max() + 1) * block, len(scores))]
    pad = 0.01 * (seen[1] - seen[0])
    dtick = 1 if seen[1] - seen[0] <= 16 else None
    figure.update_xaxes(range=[seen[0] - 0.5 - pad, seen[1] - 0.5 + pad], fixedrange=True, tickformat=",d", dtick=dtick)
    figure.update_yaxes(fixedrange=True, nticks=5)
    figure.update_yaxes(rangemode="tozero", nticks=3, row=2, col=1)
    figure.update_xaxes(title_text="key", row=2, col=1)
    return figure


def _by_tile(scores: Floats, block: int) -> tuple[Floats, Floats, Floats, int]:
    """Smallest, largest and mean score of each tile, NaN where all are hidden, and the keys of a tile.

    Of several tiles together where there are more than MOST_TILES.
    """
    tiles = -(-len(scores) // block)
    width = block * -(-tiles // MOST_TILES)
    starts = np.arange(0, len(scores), width)
    count = np.add.reduceat(np.isfinite(scores).astype(np.float64), starts)
    total = np.add.reduceat(np.nan_to_num(scores, nan=0.0), starts)
    mean = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
    return np.fmin.reduceat(scores, starts), np.fmax.reduceat(scores, starts), mean, width


def running_maximum(state: RowState, block: int) -> tuple[Floats, Floats]:
    """Corners of m over the keys as the states go through them, to be joined first along the keys, then upwards.

    A tile begins where its state enters it: at its last key where the state goes backwards. A gap follows each state.
    """
    xs: list[Floats] = [np.zeros(0)]
    ys: list[Floats] = [np.zeros(0)]
    for order in state.states:
        m = state.m[order]
        m = np.where(np.isfinite(m), m, np.nan)
        backward = len(order) > 1 and order[0] > order[-1]
        enters, leaves = (order + int(backward)) * block - 0.5, (order[-1:] + int(not backward)) * block - 0.5
        corner = np.append(True, m[1:] != m[:-1])
        xs.append(np.concatenate([enters[corner], leaves, [np.nan]]))
        ys.append(np.concatenate([m[corner], m[-1:], [np.nan]]))
    return np.concatenate(xs), np.concatenate(ys)
