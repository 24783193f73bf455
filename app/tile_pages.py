"""What the tile schedule shows of one subject at one moment: pictures and words, no Streamlit."""

from collections.abc import Sequence

import numpy as np

from app.lanes import CLOCK
from app.launch_chart import launch_steps, launch_title
from app.own_schedule import no_schedule, where_from
from app.packed_rows import head_title, rows_in_words, why_packed
from app.picture import Headline, Picture
from app.resident import resident
from app.selection import titled
from app.style import Theme, ratio, significant, traffic
from app.subject import Subject
from app.tile_cells import Cells, around, whole
from app.tile_chart import MOST_LABELLED, tile_map
from app.tile_moment import Moment, reads_at_end, totals
from app.tile_scores import HeadScores, score_matrix, shared_scores
from app.tile_shades import scale_in_words
from app.timeline_chart import lanes, story, timeline
from kernels.problem import Int64Array
from kernels.walk import Walk

MATRIX_HEIGHT, LARGER_HEIGHT = 540, 660


def headline(subject: Subject) -> Headline:
    """How the kernel goes through the score matrix, as a sentence."""
    walk, label = subject.schedule.walk, subject.problem.label
    kernel = titled(subject.attention_kernel, subject.name)
    if walk is None:
        names = [launch_title(launch.name) for launch in subject.schedule.launches]
        count = "one launch" if len(names) == 1 else f"{len(names)} launches"
        sentence = f"{kernel} runs {count} over the whole score matrix: {', '.join(names)}."
        return Headline(sentence, f"{label}. {no_schedule(subject)}")
    # Flash, K/V outside, reads …
    kernel, grid = f"{kernel}," if "," in kernel else kernel, walk.grid
    share = 1 - int((grid.last - grid.first).sum()) / (grid.q_tiles * grid.kv_tiles)
    skipped = f"; the mask skips {share:.0%} of the tiles" if share else ""
    each = f"a {head_title(grid)}"
    sentence = f"{kernel} reads K and V {_times(subject, 'k')} and Q {_times(subject, 'q')} {each}{skipped}."
    blocks = f"BLOCK_M × BLOCK_N {grid.BLOCK_M:,} × {grid.BLOCK_N:,}"
    programs = f"{_counted(walk.programs, 'program')} {each} with {_counted(int(walk.steps.sum()), 'step')} in all"
    return Headline(sentence, f"{label}. {blocks}, {programs}; {where_from(subject)}.{why_packed(grid)}")


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _times(subject: Subject, tensor: str) -> str:
    """How often a head reads each byte of a tensor until its end, in words."""
    walk = subject.schedule.walk
    assert walk is not None
    distinct = Moment(walk).distinct(tensor, subject.tensor_bytes)
    times = totals(walk)[0].get(tensor, 0) / walk.copies / distinct if distinct else 0
    return (
        "once"
        if times == 1
        else "twice"
        if times == 2
        else f"{f'{times:,.0f}' if times == int(times) else significant(times)} times"
    )


def headline_of_two(one: Subject, other: Subject) -> Headline:
    """What a head costs with one kernel and with the other."""
    costs = [
        (plan.requested_read_bytes + plan.requested_write_bytes) / (one.problem.batch * one.problem.heads)
        for plan in (one.schedule, other.schedule)
    ]
    (less, few), (more, many) = sorted(zip(costs, (one.name, other.name), strict=True))
    than = f"{ratio(more / less)} the {traffic(less)} of {few}" if 0 < less < more else f"as much as {few}"
    sentence = f"For one head {many} asks for {traffic(more)}, {than}."
    return Headline(sentence, f"{one.problem.label}. Requested bytes, all launches; from the schedules, no Run needed.")


def most_reads(walk: Walk) -> int:
    """How often a head has asked for K of the tile that it reads most."""
    return max(1, int(reads_at_end(walk)[0].max()))


def matrix(
    subject: Subject, moment: Moment, theme: Theme, reads: int | None = None, scores: HeadScores | None = None
) -> Picture:
    """The score matrix of one head as tiles; `reads`, the top of the axis of K's reads, is given for two of them.

    `scores` are printed in the cells.
    """
    cells = whole(moment.walk, moment.head)
    running = running_tiles(subject, moment)
    # Alone in its column the map may be as high as the tables beside it.
    height = LARGER_HEIGHT if cells.is_exact and reads is None else MATRIX_HEIGHT
    chart = tile_map(moment, cells, theme, height, reads or most_reads(moment.walk), scores, running)
    sources = ("schedule", *(("interpreter",) if scores else ()), *(() if running is None else (CLOCK, "model")))
    caption = _caption(moment, cells, theme) + _numbers(cells, scores, subject) + _ticks(cells, running)
    return Picture(f"Score matrix, {subject.name}", caption, chart, sources)


def shown_scores(
    subject: Subject, found: Sequence[Subject], moment: Moment, is_narrow: bool = False
) -> HeadScores | None:
    """The scores of the head looked at, where a Run has kept them all and there is room to print them.

    Of a matrix whose rows are several heads' no Run has: a trace is of one head.
    """
    if moment.walk.grid.packs > 1:
        return None
    return shared_scores(subject, found, moment.batch_head, is_narrow)


def running_tiles(subject: Subject, moment: Moment) -> Int64Array | None:
    """The KV tiles at hand in the head looked at while the program is at this step; None without a timeline."""
    running = None if subject.run is None else resident(subject.run, moment.program, moment.step)
    return None if running is None else running.tiles_of(moment.walk, moment.head)


def whole_scores(subject: Subject, found: Sequence[Subject], theme: Theme, is_narrow: bool = False) -> Picture | None:
    """S as a kernel without known tiles holds it, where a Run has kept all of a head's scores; else None."""
    scores = None if "s" not in subject.schedule.by_tensor else shared_scores(subject, found, None, is_narrow)
    if scores is None:
        return None
    masked = " −∞ and grey: masked." if np.isneginf(scores.values).any() else ""
    caption = (
        f"Batch {scores.batch}, head {scores.head}: the scaled scores as recorded by {_recorder(scores, subject)}. "
        f"Here all of them lie in HBM at once, for every head.{masked}"
    )
    return Picture(f"Score matrix, {subject.name}", caption, score_matrix(scores, theme), ("interpreter",))


def neighbourhood(subject: Subject, moment: Moment, theme: Theme) -> Picture | None:
    """The tiles around the one at hand, where the matrix shows several tiles as one cell; else None."""
    if whole(moment.walk, moment.head).is_exact:
        return None
    near = around(moment.walk, moment.head, moment.q_tile, moment.kv_tile or 0)
    caption = "The matrix around the tile at hand, one cell a tile."
    chart = tile_map(moment, near, theme, height=330)
    return Picture(f"Neighbourhood, {subject.name}", caption, chart, ("schedule",))


def _numbers(cells: Cells, scores: HeadScores | None, subject: Subject) -> str:
    """What the numbers in the cells are."""
    if scores is None:
        is_labelled = cells.is_exact and max(cells.visited.shape) <= MOST_LABELLED
        head = head_title(cells.grid)
        return f" Numbers: the step of the {head} at which a tile is first visited." if is_labelled else ""
    masked = " −∞ is masked." if np.isneginf(scores.values).any() else ""
    if scores.name == subject.name:
        return f" Numbers: the scaled scores that the running kernel computed.{masked}"
    return f" Numbers: the scaled scores as recorded by {_recorder(scores, subject)}.{masked}"


def _recorder(scores: HeadScores, subject: Subject) -> str:
    """Whose scores they are where the kernel looked at recorded none, and why they are the same."""
    return f"{scores.name}, of the same {'problem' if subject.run is None else 'problem, seed and device'}"


def _ticks(cells: Cells, running: Int64Array | None) -> str:
    """What the ticks across K and V are."""
    if running is None:
        return ""
    whose = head_title(cells.grid)
    return (
        f" Ticks on K and V: where the programs of this {whose} were that ran while this one was here; by the kernel's "
        "clock, each at an even speed."
    )


def _caption(moment: Moment, cells: Cells, theme: Theme) -> str:
    batch, head = moment.batch_head
    keys, whose = moment.keys, head_title(cells.grid)
    rows = rows_in_words(cells.grid, moment.head, *moment.rows)
    at_hand = "no KV tile, all are hidden" if keys is None else f"KV tile {moment.kv_tile:,} at hand"
    scale = "" if cells.is_exact else f" One cell is {cells.q_step:,} × {cells.kv_step:,} tiles."
    return (
        f"Batch {batch}, {whose} {head}, program {moment.program:,}, its step {moment.step + 1:,} of {moment.steps:,}: "
        f"{rows}, {at_hand}. {scale_in_words(theme)}: order within a program. "
        f"Washed out: still to come, one program after another. Grey: skipped. Stroke: partly masked.{scale} "
        f"Below: how often this {whose} has read K so far."
    )


def launches(subject: Subject, current: int, theme: Theme) -> Picture:
    """The launches of a kernel without known tiles."""
    caption = "Launches in order, and what each asks to read and to write of whole tensors; from the schedule."
    return Picture(f"Launches, {subject.name}", caption, launch_steps(subject.schedule, current, theme))


def programs_on_sms(subject: Subject, program: int, theme: Theme) -> Picture | None:
    """The measured timeline of the subject's Run; None where it has none."""
    trace = None if subject.run is None else subject.run.timeline
    found = None if trace is None else lanes(trace)
    if trace is None or found is None:
        return None
    caption = f"{story(found, program)} By the GPU's clock, which ticks every {trace.timer_step_ns} ns."
    chart = timeline(found, program, theme)
    # What can be clicked and named under the mouse is most of what is sent, at every step; the timeline's page has it.
    chart.data = [part for part in chart.data if part.customdata is None]
    return Picture(f"Programs on SMs, {subject.name}", caption, chart, (CLOCK,))
