"""What the timeline page shows of one Run: words, figures and pictures, no Streamlit."""

from dataclasses import dataclass

import numpy as np

from app.lane_shades import SHADES
from app.lanes import CLOCK, Lanes, lanes
from app.picture import Figure, Picture
from app.program_work import walk_of
from app.reread import Reread, reread
from app.reread_chart import reread_chart
from app.selection import compare
from app.spread import Spread, spread
from app.spread_chart import Axes, drawn_programs, spread_chart
from app.style import Theme, capacity, ratio, seconds, significant, traffic
from app.timeline_chart import MOST_BARS, story, time_bins, timeline
from kernels.problem import PERSISTENT
from kernels.row_walk import RowWalk
from kernels.walk import Walk
from profiler.run import Run

MOST_SIDE_BY_SIDE = 3
IN_STEP = "Programs that read the same K and V read them together, so nothing of them is re-read."


@dataclass(frozen=True)
class Timed:
    """A Run that has a timeline, under its name, with its lanes."""

    name: str
    run: Run
    found: Lanes


def timed(runs: tuple[Run, ...]) -> list[Timed]:
    """The comparable Runs with a timeline, newest first."""
    found = compare(runs)
    named = zip(reversed(found.names), reversed(found.runs), strict=True)
    unpacked = [(name, run, lanes(run.timeline)) for name, run in named if run.timeline is not None]
    return [Timed(name, run, shown) for name, run, shown in unpacked if shown is not None]


def figures(one: Timed) -> tuple[Figure, ...]:
    """Waves, tail, imbalance, spread and re-read distance."""
    found, shown, run = one.found, spread(one.run), one.run
    longest = int(found.took.max()) * 1e-9
    busiest = "" if found.busiest is None else f"; busiest lane {significant(found.busiest)}× the mean one"
    imbalance = found.imbalance
    row = [
        Figure("waves", f"{found.waves:,}", CLOCK, f"{len(found.sm):,} programs, at most {found.at_once:,} at once"),
        Figure(
            "tail idle",
            f"{found.tail_idle:.1%}",
            CLOCK,
            f"of all lanes' time, after their last program; in this pass of its own the launch took "
            f"{seconds(found.duration * 1e-9)}",
        ),
        Figure(
            "causal imbalance" if run.workload.problem.causal else "imbalance",
            "–" if imbalance is None else f"{significant(imbalance)}×",
            CLOCK,
            f"longest program {seconds(longest)} / median{busiest}",
            "the clock saw no time pass in most programs" if imbalance is None else "",
        ),
    ]
    if shown is not None:
        spanned = Figure("K and V spanned", capacity(shown.median), "model", _span_detail(shown, run))
        nothing = Figure("K and V spanned", "–", "", reason="no two programs read the same K and V")
        row += [spanned if shown.parts else nothing, _reread(run), _hbm_reads(run)]
    return tuple(row)


def _span_detail(shown: Spread, run: Run) -> str:
    words = f"in the median moment, at most {capacity(shown.largest)}"
    l2 = run.device.l2_bytes
    return words if l2 is None else f"{words}; above half of L2 {shown.share_above(l2 // 2):.0%} of the time"


def _reread(run: Run) -> Figure:
    """The median re-read distance, and how many re-reads come from further than L2 is sure to keep."""
    found, label, l2 = reread(run), "re-read distance", run.device.l2_bytes
    if isinstance(found, str) or found.median is None:
        why = found if isinstance(found, str) else IN_STEP
        return Figure(label, "–", "", reason=why[0].lower() + why[1:].removesuffix("."))
    far = "" if l2 is None else f"; {found.share_above(l2 // 2):.0%} of the re-reads from further than half of L2"
    return Figure(label, capacity(found.median), "model", f"median{far}")


def _hbm_reads(run: Run) -> Figure:
    """HBM reads, for what the spread did."""
    read, problem = run.find("hbm_read_bytes"), run.workload.problem
    if read is None or read.value is None:
        why = "this Run did not count it" if read is None else read.note
        return Figure("HBM read", "–", "", reason=why)
    inputs = problem.compulsory_bytes - problem.tensor_bytes["o"]
    return Figure("HBM read", traffic(read.value), read.source, f"{ratio(read.value / inputs)} Q + K + V read once")


def waves(found: Lanes) -> str:
    """How many waves, in words."""
    return "1 wave" if found.waves == 1 else f"{found.waves:,} waves"


def programs_on_sms(one: Timed, program: int, by: str, theme: Theme) -> Picture:
    """The lanes, shaded by one of SHADES."""
    shades = SHADES[by](one.found, walk_of(one.run, one.found))
    tick = one.run.timeline.timer_step_ns if one.run.timeline else 0
    many = "" if len(one.found.sm) <= MOST_BARS else f" Sampled at {time_bins(one.found)} moments."
    caption = f"{story(one.found, len(one.found.sm), shades)}{many}{_stay(one.run)} The clock ticks every {tick} ns."
    return Picture(f"Programs on SMs, {one.name}", caption, timeline(one.found, program, theme, shades), (CLOCK,))


def _stay(run: Run) -> str:
    """What is called a program where those that were launched take several Q tiles each."""
    tile = run.workload.tile
    if tile is None or tile.order != PERSISTENT:
        return ""
    return " The grid is persistent: what is called a program here is one Q tile of one that stays for the next."


def spreads(some: list[Timed], program: int, theme: Theme) -> list[Picture]:
    """A picture of each Run's spread, at most MOST_SIDE_BY_SIDE, all on the same axes."""
    found = [(one, shown) for one in some if (shown := spread(one.run)) is not None][:MOST_SIDE_BY_SIDE]
    if not found:
        return []
    largest_l2 = max((one.run.device.l2_bytes or 0 for one, _ in found), default=0)
    axes = Axes.common([shown for _, shown in found], largest_l2)
    return [
        Picture(
            f"How far apart on K and V, {one.name}",
            _spread_caption(shown, walk_of(one.run, one.found)),
            spread_chart(shown, axes, one.run.device.l2_bytes, program, theme),
            (CLOCK, "model"),
        )
        for one, shown in found
    ]


def _spread_caption(shown: Spread, walk: Walk | None) -> str:
    drawn, seen = len(drawn_programs(shown)), len(np.unique(shown.program))
    part = "each program" if drawn == seen else f"{drawn:,} of {seen:,} programs, all of some lanes"
    above = f"Above: the key at which {part} is, three shades in turn from wave to wave."
    even = "Derived: each program is taken to go at an even speed."
    if not shown.parts:
        return f"{above} No two programs read the same K and V, so nothing is spanned and L2 need not keep any. {even}"
    cut = isinstance(walk, RowWalk) and len(np.unique(walk.share_first)) > 1
    each = "share of each K/V head, since different shares have no tile in common" if cut else "K/V head"
    return (
        f"{above} Parallel lines share K and V in L2; a fan does not. Below: K and V from the nearest to the furthest "
        f"program of each {each}; their sum. On an H200 HBM reads grew from about half of L2 on. {even}"
    )


def rereads(some: list[Timed], theme: Theme) -> list[Picture]:
    """The re-read distances of all of these Runs on one axis; none where nothing is read again."""
    found = [(one, reread(one.run)) for one in some]
    drawn = [
        (one.name, one.run.workload.kernel, far)
        for one, far in found
        if isinstance(far, Reread) and far.median is not None
    ]
    if not drawn:
        return []
    l2 = next((one.run.device.l2_bytes for one, _ in found if one.run.device.l2_bytes is not None), None)
    left_out = "".join(
        f" {one.name} is left out: {why[0].lower()}{why[1:]}"
        for one, far in found
        if (why := far if isinstance(far, str) else IN_STEP if far.median is None else "")
    )
    caption = (
        "Each time that programs come back to a KV tile: the distinct K and V, of all heads, that programs moved over "
        "since it was last read. Left of the dashed lines L2 may still hold the tile, right of them it comes from HBM "
        "again: on an H200 HBM reads grew from about half of L2 on. First reads are not in it. Derived: each program "
        f"is taken to go at an even speed.{left_out}"
    )
    return [Picture("How long ago K and V were last read", caption, reread_chart(drawn, l2, theme), (CLOCK, "model"))]
