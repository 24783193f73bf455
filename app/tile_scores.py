"""The scores of a whole small head, as a running kernel computed them, each printed in its cell."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from app.softmax_state import unpacked
from app.style import TENSOR, Theme, ink_on, template
from app.subject import Subject
from app.tile_cells import Cells
from app.tile_moment import Moment
from app.tile_shades import order_shade
from profiler.codec import NotARun
from profiler.run import Run

MOST_ROWS = 32  # along a side that still leave room for a number


@dataclass(frozen=True, eq=False)
class HeadScores:
    """Scaled scores [seq_len_q, seq_len_kv] of one (batch, head); −inf where masked.

    `name` is that of the Run that recorded them.
    """

    name: str
    batch: int
    head: int
    values: NDArray[np.float64]
    decimals: int


def shared_scores(
    subject: Subject, found: Iterable[Subject], batch_head: tuple[int, int] | None, is_narrow: bool = False
) -> HeadScores | None:
    """The scores of a (batch, head), of any with None, as the subject's Run recorded them, else as another one did.

    Scores depend on problem, seed and device alone: a Run of another seed or device is passed over. A kernel that was
    not run has no seed, and takes those of the first Run in `found` that has any.
    """
    own = subject.run
    for one in (subject, *found):
        if one.run is None or one.problem != subject.problem or (own is not None and _draw(one.run) != _draw(own)):
            continue
        scores = _all_scores(one.name, one.run, is_narrow)
        if scores is not None and batch_head in (None, (scores.batch, scores.head)):
            return scores
    return None


def _draw(run: Run) -> tuple[int, str, str]:
    """What decides Q, K and V of a problem, and on what their products are made."""
    return run.workload.seed, run.workload.device, run.device.name


def _all_scores(name: str, run: Run, is_narrow: bool) -> HeadScores | None:
    """All scores of the head that a Run traced; None where it kept only a part, or where they are too many to print."""
    trace = run.softmax
    if trace is None or trace.scores is None or trace.score_start:
        return None
    problem = run.workload.problem
    shape = (problem.seq_len_q, problem.seq_len_kv)
    if trace.scores.shape != shape or max(shape) > MOST_ROWS:
        return None
    try:
        decimals = 1 if is_narrow or max(shape) > 16 else 2
        kept = unpacked(trace.scores)
    except NotARun:
        return None
    # A tile that was not visited is one of which the mask hides every score.
    return HeadScores(name, trace.batch, trace.head, np.where(np.isnan(kept), -np.inf, kept), decimals)


def score_matrix(scores: HeadScores, theme: Theme) -> go.Figure:
    """S of a head that is held as a whole, without tiles: every score in its cell, grey where masked."""
    rows, keys = scores.values.shape
    masked = np.isneginf(scores.values)
    tint = go.Heatmap(
        x=np.arange(keys + 1), y=np.arange(rows + 1), z=masked.astype(np.int8), zmin=0, zmax=1, showscale=False,
        colorscale=[[0, TENSOR["s"]], [1, theme.grid]], opacity=0.45, hoverinfo="skip",
    )  # fmt: skip
    colours = [theme.muted if hidden else theme.ink for hidden in masked.ravel()]
    axis = {"showgrid": False, "zeroline": False, "fixedrange": True, "ticks": "", "tickmode": "linear", "tick0": 0}
    layout = {
        "template": template(theme),
        "height": 540,
        "showlegend": False,
        "margin": {"t": 10},
        "xaxis": axis | {"range": [0, keys], "dtick": max(1, keys // 4), "title": {"text": "KV position"}},
        "yaxis": axis | {"range": [rows, 0], "dtick": max(1, rows // 4), "title": {"text": "Q row"}},
    }
    return go.Figure([tint, _borders(rows, keys, theme), _printed(scores, colours, np.zeros_like(masked))], layout)


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
    longest = max(1, int(moment.walk.steps.max()) - 1)
    here = (moment.q_tile, moment.kv_tile)
    colours, unvisited = [], np.zeros(scores.values.shape, dtype=bool)
    for row, key in np.ndindex(*scores.values.shape):
        tile = row // cells.grid.BLOCK_M, key // cells.grid.BLOCK_N
        cell = cells.cell_of(*tile)
        skipped, ahead = np.isnan(cells.order[cell]), cells.head_order[cell] > moment.head_step
        shade = ink_on(order_shade(cells.order[cell] / longest, theme))
        unvisited[row, key] = skipped
        colours.append("#FFFFFF" if tile == here else theme.ink if ahead else shade)
    return _printed(scores, colours, unvisited)


def _printed(scores: HeadScores, colours: list[str], unvisited: NDArray[np.bool_]) -> go.Scatter:
    """Every score in the middle of its cell; none where no tile is visited."""
    count = max(scores.values.shape)
    x, y, words, full = [], [], [], []
    for (row, key), score in np.ndenumerate(scores.values):
        x.append(key + 0.5)
        y.append(row + 0.5)
        words.append("" if unvisited[row, key] else _spelled(float(score), scores.decimals))
        said = f"{score:.6g}".replace("-", "−").replace("inf", "∞")
        full.append("not computed" if unvisited[row, key] else said)
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
