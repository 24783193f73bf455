"""How often the maximum moved over all recorded rows, and so how often the rescale did anything."""

from dataclasses import dataclass

import numpy as np
import plotly.graph_objects as go

from app.picture import Figure, Picture
from app.softmax_recording import Recording
from app.softmax_state import Floats, unpacked
from app.style import STATE, Theme, significant, template

TRACE, MODEL = "interpreter", "model"
MOST_BARS = 200
TITLE = "How often the maximum moved"


@dataclass(frozen=True)
class Moves:
    """Steps at which a row had something to rescale, and those that moved its maximum; in all and by step.

    by_step and moved_by_step [most tiles of a state] count rows: index k is the step after k tiles.
    """

    by_step: Floats
    moved_by_step: Floats

    @property
    def steps(self) -> int:
        """Steps of all rows at which there was something to rescale."""
        return int(self.by_step.sum())

    @property
    def moved(self) -> int:
        """Those of them that moved the maximum."""
        return int(self.moved_by_step.sum())

    @property
    def share(self) -> float | None:
        """moved / steps; None where there were none."""
        return self.moved / self.steps if self.steps else None


def moves(found: Recording) -> Moves:
    """The moves of every recorded row."""
    m, place = unpacked(found.trace.m), found.place
    could = np.isfinite(found.before)
    did = could & (m > found.before)
    length = int(place.max(initial=0)) + 1
    counts = [np.bincount(place[chosen], minlength=length).astype(np.float64) for chosen in (could, did)]
    return Moves(counts[0], counts[1])


def sentence(found: Moves) -> str:
    """How often the rescale did anything, in words."""
    if found.share is None:
        return "Every running state sees its keys in one step: there was never anything to rescale."
    return (
        f"The maximum moved in {_percent(found.share)} of {found.steps:,} steps; "
        f"in {_percent(1 - found.share)} α was 1 and the rescale did nothing."
    )


def figure(found: Moves) -> Figure:
    """The same as a number at the head of the page."""
    if found.share is None:
        return Figure("m moved, all rows", "–", TRACE, reason="no running state has a second step")
    return Figure("m moved, all rows", _percent(found.share), TRACE, f"of {found.steps:,} steps; α = 1 elsewhere")


def _percent(share: float) -> str:
    return "0%" if share == 0 else f"{significant(100 * share)}%"


def picture(found: Moves, theme: Theme) -> Picture | None:
    """The share of rows whose maximum moved, step by step; None where there was no step at which it could."""
    if found.share is None:
        return None
    caption = (
        f"{sentence(found)} Bars: share of recorded rows whose maximum moved at that step. Line: 1/k at the k-th tile, "
        "as for scores in no particular order."
    )
    return Picture(TITLE, caption, _chart(found, theme), (TRACE, MODEL))


def _chart(found: Moves, theme: Theme) -> go.Figure:
    """Bars from the second tile on; where there are many, each is the mean of a stretch of steps."""
    could, did = found.by_step[1:], found.moved_by_step[1:]
    width = max(1, -(-len(could) // MOST_BARS))
    starts = np.arange(0, len(could), width)
    could, did = (np.add.reduceat(part, starts) if len(starts) else part for part in (could, did))
    share = np.divide(did, could, out=np.full_like(did, np.nan), where=could > 0)
    tile = np.arange(2, 2 + len(found.by_step) - 1)
    chart = go.Figure(layout={"template": template(theme), "height": 300, "showlegend": False, "bargap": 0.1})
    chart.add_bar(
        x=starts + 2 + (width - 1) / 2, y=100 * share, width=0.9 * width, customdata=did,
        marker={"color": STATE["alpha"], "line_width": 0},
        hovertemplate="tile %{x} of a state: %{y:.3g}% of rows, %{customdata:,.0f} moves<extra></extra>",
    )  # fmt: skip
    line = {"color": theme.muted, "width": 1.5, "dash": "dot"}
    chart.add_scatter(x=tile, y=100 / tile, mode="lines", line=line, hovertemplate="1/k: %{y:.3g}%<extra></extra>")
    whole = {"dtick": 1} if len(tile) <= 16 else {}
    chart.update_xaxes(title_text="k, tiles that the state has met", fixedrange=True, tickformat=",d", **whole)
    chart.update_yaxes(title_text="rows whose maximum moved, %", rangemode="tozero", fixedrange=True)
    return chart
