"""Lanes drawn: a bar for each program in the lane of its SM, and what they say in words."""

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from app.lane_shades import Shades, by_time, by_wave, ramp
from app.lanes import Lanes, lanes
from app.style import TENSOR, Theme, seconds, template

__all__ = ["MOST_BARS", "lanes", "story", "timeline"]

MOST_BARS = 4000
TIME_BINS, MOST_CELLS = 400, 500_000  # moments at which many lanes are sampled; fewer where there are too many
TARGETS, MOST_TARGETS = 160, 40_000  # moments at which a lane can be clicked; the same


def time_unit(found: Lanes) -> tuple[str, float]:
    """The unit of a time axis, and how many ns it has."""
    return ("ms", 1e6) if found.duration >= 1e6 else ("µs", 1e3)


def timeline(found: Lanes, program: int, theme: Theme, shades: Shades | None = None) -> go.Figure:
    """One lane for each program that an SM holds at once; the chosen program is filled in P's colour.

    Without `shades`, few programs are shaded by wave and many by time. Where there are too many programs for bars, the
    lanes are sampled (see `time_bins`). A click finds a program's number in `customdata`.
    """
    is_few = len(found.sm) <= MOST_BARS
    shown = shades or (by_wave if is_few else by_time)(found, None)
    colours = ramp(theme, shown.count)
    unit, factor = time_unit(found)
    if is_few:
        traces = [_paths(found, shown.shade == shade, factor, colour) for shade, colour in enumerate(colours)]
    else:
        traces = [_cells(found, shown, factor, colours)]
    traces.append(_targets(found, factor))
    if program < len(found.sm):
        traces.append(_bar(found, program, factor))
    lanes_range = [int(found.sm.max()) + 1, -1]
    # Without its own ticks, which it gives a heat map, and without drawing all twice to fit the margins to the labels.
    axis = {"fixedrange": True, "ticks": "", "automargin": False}
    layout = {
        "template": template(theme),
        "height": 380 if is_few else 520,
        "showlegend": False,
        "barmode": "overlay",
        "bargap": 0,
        "margin": {"l": 21 + 6 * len(str(lanes_range[0])), "b": 37, "t": 13},
        "xaxis": axis | {"title": {"text": f"time after the first start, {unit}"}, "rangemode": "tozero"},
        "yaxis": axis | {"title": {"text": "SM"}, "range": lanes_range, "showgrid": False, "zeroline": False},
        "dragmode": False,
        "hovermode": "closest",
    }
    return go.Figure(traces, layout)


def time_bins(found: Lanes) -> int:
    """At how many moments lanes are sampled where there are more than MOST_BARS programs."""
    return min(TIME_BINS, MOST_CELLS // ((int(found.sm.max()) + 1) * found.slots))


def _paths(found: Lanes, which: NDArray[np.bool_], factor: float, colour: str) -> go.Scatter:
    """These programs in their lanes, all of them one path: a bar for each would be slow to draw."""
    start, end = found.start[which] / factor, found.end[which] / factor
    top = found.sm[which] - 0.5 + found.slot[which] / found.slots
    bottom, lift = top + 1 / found.slots, np.full(len(top), np.nan)
    x, y = np.stack([start, end, end, start, lift], axis=1), np.stack([top, top, bottom, bottom, lift], axis=1)
    return go.Scatter(
        x=x.ravel().astype(np.float32),
        y=y.ravel().astype(np.float32),
        mode="none",
        fill="toself",
        fillcolor=colour,
        hoverinfo="skip",
    )


def _cells(found: Lanes, shades: Shades, factor: float, colours: list[str]) -> go.Heatmap:
    """The shade of the program that runs in each lane at the middle of each of some stretches; −1, blank, for none."""
    bins = time_bins(found)
    program, moment = found.running_at(bins)
    shade = np.full(((int(found.sm.max()) + 1) * found.slots, bins), -1, dtype=np.int8)
    shade[found.sm[program] * found.slots + found.slot[program], moment] = shades.shade[program]
    width, steps = found.stretch(bins) / factor, np.arange(shades.count + 2) / (shades.count + 1)
    shown = ["rgba(0,0,0,0)", *colours]
    scale = [[float(steps[i + end]), colour] for i, colour in enumerate(shown) for end in (0, 1)]
    return go.Heatmap(
        z=shade,
        x0=width / 2,
        dx=width,
        y0=-0.5 + 0.5 / found.slots,
        dy=1 / found.slots,
        zmin=-1.5,
        zmax=shades.count - 0.5,
        colorscale=scale,
        showscale=False,
        hoverinfo="skip",
    )


def _targets(found: Lanes, factor: float) -> go.Scatter:
    """Points along every lane that say and can be asked which program runs there; neither a path nor a map can.

    All but one are left undrawn, which they need not be to be found: as nodes of their own they would be slow.
    """
    moments = max(1, min(TARGETS, MOST_TARGETS // found.at_once))
    program, moment = found.running_at(moments)
    time = (moment + 0.5) * found.stretch(moments)
    if len(found.sm) <= MOST_BARS:
        # A program that ran between two moments has its own point.
        unseen = np.setdiff1d(np.arange(len(found.sm)), program)
        program = np.concatenate([program, unseen])
        time = np.concatenate([time, (found.start[unseen] + found.end[unseen]) / 2])
    return go.Scatter(
        x=(time / factor).astype(np.float32),
        y=(found.sm[program] - 0.5 + (found.slot[program] + 0.5) / found.slots).astype(np.float32),
        mode="markers",
        marker={"size": 4, "color": "rgba(0,0,0,0)", "maxdisplayed": 1},
        customdata=np.stack([program, found.wave[program], found.sm[program]], axis=1).astype(np.int32),
        hovertemplate="program %{customdata[0]} on SM %{customdata[2]}, %{customdata[1]} before it<extra></extra>",
    )


def _bar(found: Lanes, program: int, factor: float) -> go.Bar:
    thick = 1 / found.slots
    sm, start, end = int(found.sm[program]), found.start[program], found.end[program]
    return go.Bar(
        orientation="h",
        base=[start / factor],
        x=[(end - start) / factor],
        y=[sm - 0.5 + (found.slot[program] + 0.5) * thick],
        width=thick,
        marker={"color": TENSOR["p"], "line_width": 0},
        zorder=1,  # else Plotly draws it below the filled paths
        hovertemplate=f"program {program} on SM {sm}, {found.wave[program]} before it<extra></extra>",
    )


def story(found: Lanes, program: int, shades: Shades | None = None) -> str:
    """What the lanes say, how they are drawn, and where the chosen program ran."""
    words = (
        f"{len(found.sm):,} programs on {found.sms} SMs, at most {found.at_once:,} at once ({found.slots} on an SM): "
        f"{found.waves} wave{'s' if found.waves > 1 else ''}."
    )
    if found.longest_queue > found.waves:
        words += f" The busiest lane ran {found.longest_queue} one after another."
    lane = "a lane for each SM" if found.slots == 1 else f"{found.slots} lanes for each SM"
    shown = shades or (by_wave if len(found.sm) <= MOST_BARS else by_time)(found, None)
    words += f" Drawn: {lane}; {shown.words}."
    if program >= len(found.sm):
        return words
    start, end = found.start[program] * 1e-9, found.end[program] * 1e-9
    return (
        f"{words} Program {program} ran on SM {found.sm[program]} from {seconds(start)} to {seconds(end)}, "
        f"{found.wave[program]} programs before it in its lane."
    )
