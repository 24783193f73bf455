"""What the timeline page shows of one Run: words, figures and pictures, no Streamlit."""

from dataclasses import dataclass

import numpy as np

from app.answer import where
from app.lane_shades import SHADES
from app.lanes import CLOCK, Lanes, lanes
from app.picture import Figure, Headline, Picture, Table
from app.program_work import Work, walk_of
from app.selection import compare
from app.spread import Spread, spread
from app.spread_chart import Axes, drawn_programs, spread_chart
from app.style import Theme, capacity, ratio, seconds, significant, traffic
from app.timeline_chart import MOST_BARS, story, time_bins, timeline
from profiler.run import Run

MOST_SIDE_BY_SIDE = 3


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


def headline(one: Timed, others: list[Timed]) -> Headline:
    """How far the programs that ran at one time were apart on K and V, in this Run and in another, against L2."""
    found, shown, run = one.found, spread(one.run), one.run
    detail = f"{one.name}, {run.workload.problem.label}, {where(run)}. Times by the running kernel's clock"
    if shown is None:
        return Headline(f"{len(found.sm):,} programs ran in {_waves(found)} on {found.sms} SMs.", f"{detail}.")
    l2 = "" if run.device.l2_bytes is None else f"; L2 holds {capacity(run.device.l2_bytes)}"
    also = next((f", {capacity(far.median)} with {other.name}" for other in others if (far := spread(other.run))), "")
    told = f"with {one.name}{also}" if also else f"and {capacity(shown.largest)} at most"
    sentence = f"In the median moment the running programs spanned {capacity(shown.median)} of K and V {told}{l2}."
    return Headline(sentence, f"{detail}; positions on K and V are derived from them.")


def figures(one: Timed) -> tuple[Figure, ...]:
    """Waves, tail, imbalance and spread."""
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
            f"of all lanes' time, after their last program; {seconds(found.duration * 1e-9)} in all",
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
        row.append(Figure("K and V spanned", capacity(shown.median), "model", _span_detail(shown, run)))
        row.append(_hbm_reads(run))
    return tuple(row)


def _span_detail(shown: Spread, run: Run) -> str:
    words = f"in the median moment, at most {capacity(shown.largest)}"
    l2 = run.device.l2_bytes
    return words if l2 is None else f"{words}; above half of L2 {shown.share_above(l2 // 2):.0%} of the time"


def _hbm_reads(run: Run) -> Figure:
    """HBM reads, for what the spread did."""
    read, problem = run.find("hbm_read_bytes"), run.workload.problem
    if read is None or read.value is None:
        why = "this Run did not count it" if read is None else read.note
        return Figure("HBM read", "–", "", reason=why)
    inputs = problem.compulsory_bytes - problem.tensor_bytes["o"]
    return Figure("HBM read", traffic(read.value), read.source, f"{ratio(read.value / inputs)} Q + K + V read once")


def _waves(found: Lanes) -> str:
    return "1 wave" if found.waves == 1 else f"{found.waves:,} waves"


def programs_on_sms(one: Timed, program: int, by: str, theme: Theme) -> Picture:
    """The lanes, shaded by one of SHADES."""
    shades = SHADES[by](one.found, walk_of(one.run, one.found))
    tick = one.run.timeline.timer_step_ns if one.run.timeline else 0
    many = "" if len(one.found.sm) <= MOST_BARS else f" Sampled at {time_bins(one.found)} moments."
    caption = f"{story(one.found, len(one.found.sm), shades)}{many} The clock ticks every {tick} ns."
    return Picture(f"Programs on SMs, {one.name}", caption, timeline(one.found, program, theme, shades), (CLOCK,))


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
            _spread_caption(shown),
            spread_chart(shown, axes, one.run.device.l2_bytes, program, theme),
            (CLOCK, "model"),
        )
        for one, shown in found
    ]


def _spread_caption(shown: Spread) -> str:
    drawn, seen = len(drawn_programs(shown)), len(np.unique(shown.program))
    part = "each program" if drawn == seen else f"{drawn:,} of {seen:,} programs, all of some lanes"
    return (
        f"Above: the key at which {part} is, three shades in turn from wave to wave. Parallel lines share K and V in "
        "L2; a fan does not. Below: K and V from the nearest to the furthest program of each K/V head, summed over "
        "heads. On an H200 HBM reads grew from about half of L2 on. Derived: each program is taken to go at an even "
        "speed."
    )


def chosen(one: Timed, program: int) -> Table:
    """What the chosen program worked on, and when and where."""
    found, walk = one.found, walk_of(one.run, one.found)
    rows: list[tuple[str, str, str]] = []
    if walk is not None:
        work = Work.of(walk, program)
        rows += [
            ("batch, head", f"{work.batch}, {work.head}", "schedule"),
            ("Q tile", _span(work.q_tiles), "schedule"),
            ("KV tiles", "none, all are masked" if work.kv_tiles is None else _span(work.kv_tiles), "schedule"),
            ("steps", f"{work.steps:,}", "schedule"),
            ("requested", traffic(work.requested_bytes), "schedule"),
        ]
    start, took = int(found.start[program]), int(found.took[program])
    rows += [
        ("SM", f"{found.sm[program]}", CLOCK),
        ("before it in its lane", f"{found.wave[program]:,}", CLOCK),
        ("start", seconds(start * 1e-9), CLOCK),
        ("took", seconds(took * 1e-9), CLOCK),
    ]
    caption = "Click a bar or type a number to choose another."
    return Table(f"Program {program:,}", caption, ("", "value", "source"), tuple(rows))


def _span(ends: tuple[int, int]) -> str:
    first, last = ends
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"
