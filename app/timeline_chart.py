"""Which SM ran which program, when: measured times as lanes, and what they add up to."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray

from app.style import DARK, TENSOR, Theme, seconds, template
from kernels.problem import Int64Array
from profiler.codec import NotARun
from profiler.run import ProgramTrace

MOST_BARS = 4000
MOST_PROGRAMS = 2**17
TIME_BINS = 400


@dataclass(frozen=True)
class Lanes:
    """A ProgramTrace unpacked: SM, start and end in ns of each program, int64 [programs].

    `slot` tells programs apart that share an SM at the same time; `wave` counts the programs before it in its slot.
    """

    sm: Int64Array
    start: Int64Array
    end: Int64Array
    slot: Int64Array
    wave: Int64Array

    @property
    def at_once(self) -> int:
        """The most programs that ran at one moment."""
        time = np.concatenate([self.end, self.start])
        step = np.repeat([-1, 1], len(self.start))
        # Of equal times the ends come first, as they stand first.
        return int(step[np.argsort(time, kind="stable")].cumsum().max())

    @property
    def waves(self) -> int:
        """How often that many programs are needed to get through all of them."""
        return -(-len(self.start) // self.at_once)

    @property
    def longest_queue(self) -> int:
        """Programs that the busiest slot of an SM ran one after another."""
        return int(self.wave.max()) + 1

    @property
    def sms(self) -> int:
        """SMs that ran at least one program."""
        return len(np.unique(self.sm))

    @property
    def slots(self) -> int:
        """Programs that shared the fullest SM at one time."""
        return int(self.slot.max()) + 1


@lru_cache(maxsize=8)
def lanes(trace: ProgramTrace) -> Lanes | None:
    """The lanes of a trace; None where its arrays do not fit together or hold too many, as an imported one's may."""
    if trace.sm.nbytes > MOST_PROGRAMS * 8:
        return None
    try:
        sm, start, end = (part.numpy().astype(np.int64).ravel() for part in (trace.sm, trace.start_ns, trace.end_ns))
    except NotARun:
        return None
    if not len(sm) == len(start) == len(end) or len(sm) == 0 or (end < start).any() or start.min() < 0 or sm.min() < 0:
        return None
    slot, wave = np.zeros_like(sm), np.zeros_like(sm)
    free: dict[int, list[int]] = {}
    count: dict[tuple[int, int], int] = {}
    for program in np.argsort(start, kind="stable").tolist():
        here = free.setdefault(int(sm[program]), [])
        # The clock ticks: a program may seem to begin one tick before its forerunner ended.
        place = next((i for i, until in enumerate(here) if until <= start[program] + trace.timer_step_ns), len(here))
        here[place : place + 1] = [int(end[program])]
        slot[program], wave[program] = place, count.get((int(sm[program]), place), 0)
        count[int(sm[program]), place] = int(wave[program]) + 1
    return Lanes(sm, start, end, slot, wave)


def timeline(found: Lanes, program: int, theme: Theme) -> go.Figure:
    """One lane for each program that an SM holds at once; the chosen program is filled in P's colour.

    Bars alternate from pale to strong from one program to the next. Where there are too many programs for bars, the
    lanes are sampled at TIME_BINS moments, and a program is the stronger the longer it ran.
    """
    height = 380 if len(found.sm) <= MOST_BARS else 520
    scale = ["#1F5A5C", "#2BA39B"] if theme is DARK else ["#A9CFD0", "#3F9A95"]
    unit, factor = ("ms", 1e6) if found.end.max() >= 1e6 else ("µs", 1e3)
    if len(found.sm) <= MOST_BARS:
        traces = [_lanes_of(found, found.wave % 2 == parity, factor, scale[parity]) for parity in (0, 1)]
        traces.append(_named(found, factor))
    else:
        pale = ["#1D3B42", "#2BA39B", "#D6F5F1"] if theme is DARK else ["#DDEBEC", "#5FA9A5", "#074F4B"]
        traces = [_durations(found, factor, pale, theme)]
    if program < len(found.sm):
        traces.append(_bar(found, program, factor))
    lanes_range = [int(found.sm.max()) + 1, -1]
    # Without its own ticks, which it gives a heat map, and without drawing all twice to fit the margins to the labels.
    axis = {"fixedrange": True, "ticks": "", "automargin": False}
    layout = {
        "template": template(theme),
        "height": height,
        "showlegend": False,
        "barmode": "overlay",
        "bargap": 0,
        "margin": {"l": 21 + 6 * len(str(lanes_range[0])), "b": 37, "t": 13},
        "xaxis": axis | {"title": {"text": f"time after the first start, {unit}"}, "rangemode": "tozero"},
        "yaxis": axis | {"title": {"text": "SM"}, "range": lanes_range, "showgrid": False, "zeroline": False},
    }
    return go.Figure(traces, layout)


def _lanes_of(found: Lanes, which: NDArray[np.bool_], factor: float, colour: str) -> go.Scatter:
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


def _named(found: Lanes, factor: float) -> go.Heatmap:
    """Nothing to be seen, and under the mouse the name of the program that runs there."""
    program = _sampled(found)
    runs = program >= 0
    return go.Heatmap(
        z=np.where(runs, program, np.nan).astype(np.float32),
        **_moments(found, factor),
        customdata=np.where(runs, found.wave[program], 0),
        opacity=0,
        showscale=False,
        hovertemplate="program %{z:.0f} on SM %{y:.0f}, %{customdata} before it<extra></extra>",
        hoverongaps=False,
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


def _sampled(found: Lanes) -> Int64Array:
    """[lanes, TIME_BINS] the program that runs in a lane at the middle of each of equal stretches; -1 for none."""
    width = _stretch(found)
    # A program runs at the moments from its first to before its last.
    first, last = (np.ceil(time / width - 0.5).astype(np.int64) for time in (found.start, found.end))
    counts = last - first
    program = np.repeat(np.arange(len(counts)), counts)
    moment = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + first[program]
    lane = found.sm[program] * found.slots + found.slot[program]
    running = np.full(((int(found.sm.max()) + 1) * found.slots, TIME_BINS), -1, dtype=np.int64)
    running[lane, moment] = program
    return running


def _stretch(found: Lanes) -> float:
    """Length of each of TIME_BINS stretches in ns; a clock may be too coarse to see any time pass."""
    return max(1.0, float(found.end.max())) / TIME_BINS


def _moments(found: Lanes, factor: float) -> dict[str, float]:
    """Where the cells of a sampled map lie."""
    width = _stretch(found) / factor
    return {"x0": width / 2, "dx": width, "y0": -0.5 + 0.5 / found.slots, "dy": 1 / found.slots}


def _durations(found: Lanes, factor: float, scale: list[str], theme: Theme) -> go.Heatmap:
    """How long the program took that runs in a lane at each of TIME_BINS moments; blank where none runs."""
    program = _sampled(found)
    took = np.where(program >= 0, (found.end - found.start)[program] * 1e-3, np.nan)
    title = {"text": "program took, µs", "side": "right", "font": {"color": theme.muted, "size": 12}}
    return go.Heatmap(
        z=took.astype(np.float32),
        **_moments(found, factor),
        colorscale=scale,
        colorbar={"thickness": 8, "outlinewidth": 0, "nticks": 5, "title": title, "tickfont": {"color": theme.muted}},
        hovertemplate="SM %{y:.0f}: a program that took %{z:.3g} µs<extra></extra>",
        hoverongaps=False,
    )


def story(found: Lanes, program: int) -> str:
    """What the lanes say, as one sentence, and where the chosen program ran."""
    words = (
        f"{len(found.sm):,} programs on {found.sms} SMs, at most {found.at_once:,} at once ({found.slots} on an SM): "
        f"{found.waves} wave{'s' if found.waves > 1 else ''}."
    )
    if found.longest_queue > found.waves:
        words += f" The busiest lane ran {found.longest_queue} one after another."
    lane = "a lane for each SM" if found.slots == 1 else f"{found.slots} lanes for each SM"
    how = (
        "pale and strong alternate from program to program"
        if len(found.sm) <= MOST_BARS
        else "the stronger, the longer the program took"
    )
    words += f" Drawn: {lane}, {how}."
    if program >= len(found.sm):
        return words
    start, end = found.start[program] * 1e-9, found.end[program] * 1e-9
    return (
        f"{words} Program {program} ran on SM {found.sm[program]} from {seconds(start)} to {seconds(end)}, "
        f"{found.wave[program]} programs before it in its lane."
    )
