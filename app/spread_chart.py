"""The positions of resident programs on K and V over time, and below them what these span against L2."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from app.lane_shades import ALTERNATING, ramp
from app.spread import Spread
from app.style import TENSOR, Theme, capacity, template
from app.timeline_chart import time_unit
from kernels.problem import Int64Array

MOST_POINTS = 30_000
EVERY = 4  # of the moments of a Spread, one in so many bends a line
MIB = 2**20


@dataclass(frozen=True)
class Axes:
    """Ends of the axes, common to the Spreads that stand side by side: ns, and bytes of K and V."""

    end: int
    most: int

    @classmethod
    def common(cls, spreads: list[Spread], l2_bytes: int | None) -> "Axes":
        """Axes on which all of them, a head's K and V and L2 fit."""
        sizes = [size for one in spreads for size in (one.largest, one.head_bytes)]
        return cls(max(one.found.duration for one in spreads), max(*sizes, l2_bytes or 0))


def spread_chart(shown: Spread, axes: Axes, l2_bytes: int | None, program: int, theme: Theme) -> go.Figure:
    """Above the key at which each program is, a line each; below MiB of K and V that the resident ones span."""
    unit, factor = time_unit(shown.found)
    drawn = drawn_programs(shown)
    traces = [
        _lines(shown, drawn[shown.found.wave[drawn] % ALTERNATING == shade], factor, colour, 1.0)
        for shade, colour in enumerate(ramp(theme, ALTERNATING))
    ]
    if program < len(shown.found.sm):
        traces.append(_lines(shown, np.array([program]), factor, TENSOR["p"], 3.0))
    if shown.parts:
        traces.append(_spanned(shown, factor, theme))
    axis = {"fixedrange": True, "ticks": "", "zeroline": False}
    time, bytes_range = {"range": [0, axes.end / factor * 1.01]}, {"range": [0, axes.most / MIB * 1.2]}
    layout = {
        "template": template(theme),
        "height": 470,
        "showlegend": False,
        "hovermode": "closest",
        "margin": {"t": 10},
        "xaxis": axis | time | {"anchor": "y", "showticklabels": False},
        "yaxis": axis | {"title": {"text": "key"}, "range": [0, shown.seq_len_kv], "domain": [0.46, 1], "nticks": 5},
        "xaxis2": axis | time | {"anchor": "y2", "title": {"text": f"time after the first start, {unit}"}},
        "yaxis2": axis | {"title": {"text": "K and V spanned, MiB"}, "domain": [0, 0.4], "nticks": 5, **bytes_range},
    }
    chart = go.Figure(traces, layout)
    _limit(chart, shown.head_bytes, f"K and V of a head, {capacity(shown.head_bytes)}", "dot", theme.muted, "right")
    if l2_bytes is not None:
        _limit(chart, l2_bytes, f"L2, {capacity(l2_bytes)}", "dash", theme.ink, "left", shown.head_bytes > l2_bytes)
        _limit(chart, l2_bytes // 2, "half of L2", "dash", theme.muted, "left")
    return chart


def drawn_programs(shown: Spread) -> Int64Array:
    """The programs that get a line: all, or those of every so many lanes, so that MOST_POINTS are not passed."""
    seen = np.unique(shown.program)
    points = 3 * len(seen) + len(shown.program) // EVERY
    every = -(-points // MOST_POINTS)
    return np.asarray(seen[shown.found.lane[seen] % every == 0])


def _lines(shown: Spread, programs: Int64Array, factor: float, colour: str, width: float) -> go.Scatter:
    """The key at the middle of the KV tile at hand, from each program's first look to its last; one path for all."""
    is_end = _ends(shown.program)
    kept = np.isin(shown.program, programs) & (is_end | (shown.moment % EVERY == 0))
    order = np.lexsort((shown.moment[kept], shown.program[kept]))
    program, moment, kv_tile = (part[kept][order] for part in (shown.program, shown.moment, shown.kv_tile))
    key = (kv_tile + 0.5) * shown.BLOCK_N
    # A line ends where the next program begins.
    cut = np.flatnonzero(np.diff(program)) + 1
    x = np.insert(shown.moments[moment] / factor, cut, np.nan).astype(np.float32)
    return go.Scatter(
        x=x,
        y=np.insert(np.minimum(key, shown.seq_len_kv), cut, np.nan).astype(np.float32),
        mode="lines",
        line={"color": colour, "width": width},
        hoverinfo="skip",
    )


def _ends(program: Int64Array) -> NDArray[np.bool_]:
    """Of positions in order of their program, which are a program's first or last."""
    change = np.concatenate([[True], np.diff(program) != 0, [True]])
    return np.asarray(change[:-1] | change[1:])


def _spanned(shown: Spread, factor: float, theme: Theme) -> go.Scatter:
    colour = TENSOR["k"]
    return go.Scatter(
        x=(shown.moments / factor).astype(np.float32),
        y=(shown.spanned / MIB).astype(np.float32),
        mode="lines",
        line={"color": colour, "width": 1.5},
        fill="tozeroy",
        fillcolor="rgba(230,159,0,0.25)",
        hovertemplate="%{y:.3g} MiB at %{x:.3g}<extra></extra>",
        xaxis="x2",
        yaxis="y2",
    )


def _limit(chart: go.Figure, size: int, words: str, dash: str, colour: str, side: str, below: bool = False) -> None:
    """A line across the lower panel at so many bytes, with its name at one end, above or below it."""
    y = size / MIB
    line = {"color": colour, "width": 1, "dash": dash}
    chart.add_shape(type="line", xref="x2 domain", x0=0, x1=1, yref="y2", y0=y, y1=y, line=line)
    chart.add_annotation(
        text=words, xref="x2 domain", x=0.005 if side == "left" else 0.995, xanchor=side, yref="y2", y=y,
        yanchor="top" if below else "bottom", showarrow=False, font={"size": 11, "color": colour},
    )  # fmt: skip
