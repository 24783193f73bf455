"""The walk-through's single numbers: each from a shown Run, else from a recorded one, else a dash that says why."""

from collections.abc import Callable, Sequence

import numpy as np

from app.four_kinds import Bytes, l2_sm
from app.lesson_numbers import times
from app.lesson_subject import ARTICLE, ARTICLE_TILE, Shown, refusal, stand_ins
from app.lesson_tables import measured
from app.lesson_words import Words
from app.peak_check import possible_hbm
from app.picture import Figure
from app.softmax_moves import moves
from app.softmax_recording import Recording, recording
from app.style import capacity, significant, traffic
from kernels.base import all_kernels
from kernels.online_softmax import glued_local_softmax
from profiler.device import limits
from profiler.run import Run

TRACE = "interpreter"
Live = Callable[[Shown, Words], tuple[Figure, ...]]
Read = Callable[[Run], Bytes]
Spell = Callable[[float | None], str]


def nothing(shown: Shown, words: Words) -> tuple[Figure, ...]:
    """No number beside the step's figure, since that one is a Run's already."""
    return ()


def number(label: str, kernel: str, read: Read, spell: Spell, about: Callable[[Run, Words], str] | None = None) -> Live:
    """One value of a kernel's Run under a label; `about` adds a sentence on that Run."""

    def live(shown: Shown, words: Words) -> tuple[Figure, ...]:
        name = _named(kernel, label, words)
        here = shown.runs.get(kernel)
        first = None if here is None else read(here)
        for run in _candidates(here, kernel):
            found = read(run)
            if found.value is not None:
                told = [about(run, words)] if about is not None else []
                told.append(_where(run, words))
                return (Figure(name, spell(found.value), found.source, words.space.join(told)),)
        missing = words.labels["missing_run"].format(kernel=kernel)
        return (Figure(name, "–", "", reason=missing if first is None else words.quoted(first.reason)),)

    return live


def together(*parts: Live) -> Live:
    """Several numbers in a row."""
    return lambda shown, words: tuple(figure for part in parts for figure in part(shown, words))


def rescales_of_a_run(shown: Shown, words: Words) -> tuple[Figure, ...]:
    """Over all recorded rows: the steps that moved the maximum, since only these rescale anything."""
    for run, found in _traces(shown):
        counted = moves(found)
        if counted.share is not None:
            value = _of(counted.moved, counted.steps, words)
            note = words.notes["moved"].format(
                percent=significant(100 * counted.share), BLOCK_N=found.walk.grid.BLOCK_N
            )
            return (_traced("moved", value, note, run, words),)
    return (_untraced("moved", "no_trace", words),)


def moves_of_a_row(shown: Shown, words: Words) -> tuple[Figure, ...]:
    """In the last recorded row: the steps that moved the maximum."""
    for run, found in _traces(shown):
        state = found.row(found.trace.row_stop - 1)
        if state.rescalable:
            value = _of(len(state.moves), state.rescalable, words)
            note = words.notes["moved_row"].format(row=f"{state.row:,}", tiles=f"{len(state.visited):,}")
            return (_traced("moved", value, note, run, words),)
    return (_untraced("moved", "no_trace", words),)


def glued_row_of_a_run(shown: Shown, words: Words) -> tuple[Figure, ...]:
    """The scores of a recorded row, each KV tile normalised by itself: what they sum to."""
    for run, found in _traces(shown):
        row, block = found.trace.row_stop - 1, found.walk.grid.BLOCK_N
        scores = found.scores(row)
        if scores is not None:
            # A tile that the mask let no program visit holds no score of the row.
            seen = np.where(np.isnan(scores), -np.inf, scores)
            total = round(float(glued_local_softmax(seen, block).sum()), 6)
            count = f"{np.isfinite(seen).sum():,}"
            note = words.notes["glued_run"].format(row=f"{row:,}", scores=count, BLOCK_N=block)
            return (_traced("glued_run", times(total), note, run, words),)
    return (_untraced("glued_run", "no_scores", words),)


def refused_at_the_articles_length(shown: Shown, words: Words) -> tuple[Figure, ...]:
    """query_tiled's own sentence on why it cannot take the article's rows, on the GPU shown or the recorded one."""
    kernel = "query_tiled"
    runs = [*shown.runs.values(), *stand_ins(kernel)]
    device = next((run.device for run in runs if limits(run.device) is not None), None)
    if kernel not in all_kernels() or device is None:
        return ()
    reason = refusal(kernel, ARTICLE, ARTICLE_TILE, device)
    label = words.labels["of_kernel"].format(kernel=kernel, what=f"S = {ARTICLE.seq_len_kv:,}, {device.name}")
    return (Figure(label, "–", "", reason=words.quoted(reason)),) if reason else ()


def _scores_in_memory(run: Run, words: Words) -> str:
    problem = run.workload.problem
    return words.notes["s_and_p"].format(dtype=problem.dtype, bytes=capacity(2 * problem.score_bytes))


def _candidates(here: Run | None, kernel: str) -> Sequence[Run]:
    return [*([] if here is None else [here]), *stand_ins(kernel)]


def _traces(shown: Shown) -> Sequence[tuple[Run, Recording]]:
    """Runs with m and l after every tile: the shown one, then flash as recorded."""
    runs = [run for run in (shown.traced(), *stand_ins("flash")) if run is not None]
    return [(run, found) for run in runs if (found := recording(run)) is not None]


def _where(run: Run, words: Words) -> str:
    note = "live_recorded" if run.recorded else "live_here"
    return words.notes[note].format(device=run.device.name, date=run.created[:10], label=run.workload.problem.label)


def _traced(label: str, value: str, note: str, run: Run, words: Words) -> Figure:
    name = _named(run.workload.kernel, label, words)
    return Figure(name, value, TRACE, words.space.join((note, _where(run, words))))


def _untraced(label: str, reason: str, words: Words) -> Figure:
    return Figure(words.labels[label], "–", "", reason=words.notes[reason])


def _named(kernel: str, label: str, words: Words) -> str:
    return words.labels["of_kernel"].format(kernel=kernel, what=words.labels[label])


def _of(part: int, whole: int, words: Words) -> str:
    return words.labels["of"].format(part=f"{part:,}", whole=f"{whole:,}")


def _whole(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


PEAK = number("peak", "naive", measured("peak_allocated_bytes"), capacity, _scores_in_memory)
ROUND_TRIPS = number("hbm", "naive", possible_hbm, traffic)
ROWS = number("l2_sm", "row_streaming", l2_sm, traffic)
TILES = number("l2_sm", "query_tiled", l2_sm, traffic)
ON_CHIP = together(
    number("spills", "query_tiled", measured("spill_read_bytes"), traffic), refused_at_the_articles_length
)
FUSED = together(
    number("launched", "flash", measured("kernels_launched"), _whole),
    number("launched", "naive", measured("kernels_launched"), _whole),
    number("hbm", "flash", possible_hbm, traffic),
)
