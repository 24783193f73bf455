"""The scores of a whole small head, as the running kernel computed them, each printed in its cell."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from app.softmax_state import unpacked
from app.style import Theme, ink_on
from app.tile_cells import Cells
from app.tile_moment import Moment
from app.tile_shades import order_shade
from profiler.codec import NotARun
from profiler.run import Run

MOST_ROWS = 32  # along a side that still leave room for a number


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Scaled scores [seq_len_q, seq_len_kv] of one (batch, head); −inf where masked, NaN where no tile was visited."""

    batch: int
    head: int
    values: NDArray[np.float64]
    decimals: int


def head_scores(run: Run | None, is_narrow: bool = False) -> HeadScores | None:
    """All scores of the head that a Run traced; None where it kept only a part, or where they are too many to print."""
    trace = None if run is None else run.softmax
    if run is None or trace is None or trace.scores is None or trace.score_start:
        return None
    problem = run.workload.problem
    shape = (problem.seq_len_q, problem.seq_len_kv)
    if trace.scores.shape != shape or max(shape) > MOST_ROWS:
        return None
    try:
        decimals = 1 if is_narrow or max(shape) > 16 else 2
        return HeadScores(trace.batch, trace.head, unpacked(trace.scores), decimals)
    except NotARun:
        return None


def score_traces(scores: HeadScores, moment: Moment, cells: Cells, theme: Theme) -> list[go.Scatter]:
    """The borders of the scores within their tiles, and every score with one or two decimals."""
    rows, keys = scores.values.shape
    return [_borders(rows, keys, theme), _numbers(scores, moment, cells, theme)]


def _borders(rows: int, keys: int, theme: Theme) -> go.Scatter:
    x = [part for key in range(1, keys) for part in (key, key, None)] + [0, keys, None] * (rows - 1)
    y = [0, rows, None] * (keys - 1) + [part for row in range(1, rows) for part in (row, row, None)]
    line = {"color": theme.card, "width": 0.5}
    return go.Scatter(x=x, y=y, mode="lines", line=line, opacity=0.6, hoverinfo="skip")


def _numbers(scores: HeadScores, moment: Moment, cells: Cells, theme: Theme) -> go.Scatter:
    count = max(scores.values.shape)
    longest = max(1, int(moment.walk.steps.max()) - 1)
    here = (moment.q_tile, moment.kv_tile)
    x, y, words, colours, full = [], [], [], [], []
    for (row, key), score in np.ndenumerate(scores.values):
        tile = row // cells.grid.BLOCK_M, key // cells.grid.BLOCK_N
        cell = cells.cell_of(*tile)
        skipped, ahead = np.isnan(cells.order[cell]), cells.head_order[cell] > moment.head_step
        shade = ink_on(order_shade(cells.order[cell] / longest, theme))
        x.append(key + 0.5)
        y.append(row + 0.5)
        words.append("" if np.isnan(score) else _spelled(float(score), scores.decimals))
        colours.append("#FFFFFF" if tile == here else theme.muted if skipped else theme.ink if ahead else shade)
        full.append("not computed" if np.isnan(score) else f"{score:.6g}".replace("-", "−").replace("inf", "∞"))
    return go.Scatter(
        x=x,
        y=y,
        mode="text",
        text=words,
        textfont={"size": 10 if count <= 16 else 8, "color": colours},
        hovertext=[f"row {int(b)}, key {int(a)}: {score}" for a, b, score in zip(x, y, full, strict=True)],
        hoverinfo="text",
    )


def _spelled(score: float, decimals: int) -> str:
    # Adding 0 makes −0.0 a 0.0.
    return "−∞" if np.isneginf(score) else f"{round(score, decimals) + 0.0:.{decimals}f}".replace("-", "−")
