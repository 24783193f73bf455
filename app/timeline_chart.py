"""Which SM ran which program, when: measured times as lanes, and what they add up to."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import plotly.graph_objects as go

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
    figure = go.Figure(layout={"template": template(theme), "height": height, "showlegend": False})
    scale = ["#1F5A5C", "#2BA39B"] if theme is DARK else ["#A9CFD0", "#3F9A95"]
    unit, factor = ("ms", 1e6) if found.end.max() >= 1e6 else ("µs", 1e3)
    if len(found.sm) <= MOST_BARS:
        figure.add_trace(_bars(found, np.arange(len(found.sm)), factor, [scale[w % 2] for w in found.wave.tolist()]))
    else:
        pale = ["#1D3B42", "#2BA39B", "#D6F5F1"] if theme is DARK else ["#DDEBEC", "#5FA9A5", "#074F4B"]
        figure.add_trace(_durations(found, factor, pale, theme))
    if program < len(found.sm):
        figure.add_trace(_bars(found, np.array([program]), factor, [TENSOR["p"]]))
    figure.update_layout(barmode="overlay", bargap=0)
    figure.update_xaxes(title_text=f"time after the first start, {unit}", rangemode="tozero", fixedrange=True)
    figure.update_yaxes(
        title_text="SM", range=[found.sm.max() + 1, -1], showgrid=False, zeroline=False, fixedrange=True
    )
    return figure


def _bars(found: Lanes, which: Int64Array, factor: float, colours: list[str]) -> go.Bar:
    thick = 1 / found.slots
    return go.Bar(
        orientation="h",
        base=(found.start[which] / factor).astype(np.float32),
        x=((found.end - found.start)[which] / factor).astype(np.float32),
        y=(found.sm[which] - 0.5 + (found.slot[which] + 0.5) * thick).astype(np.float32),
        width=thick,
        marker={"color": colours, "line_width": 0},
        customdata=np.stack([which, found.sm[which], found.wave[which]], axis=1),
        hovertemplate="program %{customdata[0]} on SM %{customdata[1]}, %{customdata[2]} before it<extra></extra>",
    )


def _durations(found: Lanes, factor: float, scale: list[str], theme: Theme) -> go.Heatmap:
    """How long the program took that runs in a lane at each of TIME_BINS moments; blank where none runs."""
    width = float(found.end.max()) / TIME_BINS
    # Moments lie in the middle of equal stretches: a program runs at those from its first to before its last.
    first, last = (np.ceil(time / width - 0.5).astype(np.int64) for time in (found.start, found.end))
    counts = last - first
    program = np.repeat(np.arange(len(counts)), counts)
    moment = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + first[program]
    lane = found.sm[program] * found.slots + found.slot[program]
    took = np.full(((int(found.sm.max()) + 1) * found.slots, TIME_BINS), np.nan, dtype=np.float32)
    took[lane, moment] = (found.end - found.start)[program] * 1e-3
    title = {"text": "program took, µs", "side": "right", "font": {"color": theme.muted, "size": 12}}
    return go.Heatmap(
        z=took,
        x0=width / 2 / factor,
        dx=width / factor,
        y0=-0.5 + 0.5 / found.slots,
        dy=1 / found.slots,
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
