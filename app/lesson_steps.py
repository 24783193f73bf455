"""The eleven steps of the walk-through in one language: text with its numbers, one figure, how it was obtained."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from app import lesson_live as live
from app import lesson_pictures as pictures
from app import lesson_tables as tables
from app.answer import bytes_in_words
from app.lesson_numbers import slots
from app.lesson_subject import Shown, recorded, shown
from app.lesson_words import Words
from app.peak_check import possible_hbm
from app.picture import Headline, Picture, Table
from app.softmax_recording import recording
from app.softmax_state import RowState
from app.style import Theme, capacity, error, ratio
from kernels.base import all_kernels
from profiler.run import Run


@dataclass(frozen=True)
class Step:
    """One step as it is shown; `view` is the page where it can be watched, and `note` says where the figure is from.

    `item` carries the step's single numbers from Runs as its figures.
    """

    number: int
    title: str
    text: str
    note: str
    item: Picture | Table
    view: str
    link: str
    is_wide: bool = False  # the figure needs the card's whole width

    @property
    def printed(self) -> Picture | Table:
        """The figure with title and text of its own, as it stands in a report."""
        return replace(self.item, title=f"{self.number}. {self.title}", caption=f"{self.text} {self.note}")


@dataclass(frozen=True)
class Talk:
    """What a step is made from: the Runs it speaks of, the language and the colours."""

    shown: Shown
    words: Words
    theme: Theme

    def joined(self, notes: Sequence[str]) -> str:
        """Sentences one after another."""
        return self.words.space.join(notes)

    def say(self, note: str, **slots: str) -> str:
        """One of the notes with its numbers."""
        return self.words.notes[note].format(**slots)

    @property
    def label(self) -> str:
        """The problem in a line."""
        return self.shown.problem.label


Made = tuple[Picture | Table, str]  # the figure without title, and its note


def headline(runs: Sequence[Run], words: Words) -> Headline:
    """What the page is about, and of which problem it speaks."""
    return Headline(words.headline, words.detail.format(about=shown(runs).problem.label))


def steps(runs: Sequence[Run], words: Words, theme: Theme) -> tuple[Step, ...]:
    """All eleven, for the newest problem of the Runs, or the article's without any."""
    talk = Talk(shown(runs), words, theme)
    values = slots(talk.shown) | {"saved": _saved_in_words(talk)}
    made = []
    for number, (spoken, (make, numbers, view)) in enumerate(zip(words.steps, _MAKERS, strict=True), 1):
        item, note = make(talk)
        item = replace(item, figures=numbers(talk.shown, words))
        made.append(
            Step(number, spoken.title, spoken.text.format(**values), note, item, view, spoken.link, make is _schedule)
        )
    return tuple(made)


def _score_matrix(talk: Talk) -> Made:
    return tables.score_matrix(talk.shown, talk.words), talk.say("numbers")


def _round_trips(talk: Talk) -> Made:
    run = talk.shown.runs.get("naive")
    rows = pictures.counted_trips(run)
    if rows and run is not None:
        part = possible_hbm(run)
        note = f"{talk.say('trips_counted', device=_device(run))} {_in_l2(talk, run)}".rstrip()
    else:
        rows = pictures.requested_trips(all_kernels()["naive"].schedule(talk.shown.problem, talk.shown.tile))
        part, note = None, talk.say("trips_schedule", label=talk.label)
    sources = ("schedule",) if part is None else (part.source,)
    return Picture("", "", pictures.round_trips(rows, talk.words, talk.theme), sources), note


def _in_l2(talk: Talk, run: Run) -> str:
    """Why little of a small S reaches HBM; empty where it is larger than L2, or L2 is not known."""
    scores, l2 = run.workload.problem.score_bytes, run.device.l2_bytes
    if l2 is None or scores >= l2:
        return ""
    return talk.say("trips_in_l2", label=talk.label, scores=capacity(scores), l2=capacity(l2))


def _asking(*kernels: str) -> Callable[[Talk], Made]:
    def make(talk: Talk) -> Made:
        chart = pictures.asked_for(kernels, talk.shown, talk.words, talk.theme)
        ran = [kernel for kernel in kernels if kernel in talk.shown.runs]
        missing = [kernel for kernel in kernels if kernel not in ran and kernel in all_kernels()]
        refused = {kernel: reason for kernel in missing if (reason := talk.shown.why_not(kernel))}
        to_run = [kernel for kernel in missing if kernel not in refused]
        absent = [kernel for kernel in kernels if kernel not in all_kernels()]
        notes = [talk.say("requested", label=talk.label)]
        notes += [talk.say("crossed")] if ran else []
        notes += [talk.say("run_these", kernels=", ".join(to_run))] if to_run else []
        device = next((_device(run) for run in talk.shown.runs.values()), "")
        notes += [
            talk.say("cannot_run", kernel=kernel, device=device, reason=talk.words.quoted(refused[kernel]))
            for kernel in refused
        ]
        notes += [talk.words.labels["missing_kernel"].format(kernel=kernel) for kernel in absent]
        return Picture("", "", chart, ("model", "schedule")), talk.joined(notes)

    return make


def _key_tiles(talk: Talk) -> Made:
    return Picture("", "", pictures.two_cuts(talk.words, talk.theme), ("schedule",)), talk.say("small")


def _on_chip(talk: Talk) -> Made:
    return Picture("", "", pictures.on_chip(talk.shown, talk.words, talk.theme), ("model",)), talk.say("chip")


def _broken(talk: Talk) -> Made:
    return tables.broken_softmax(talk.words), talk.say("breaks")


def _state(talk: Talk) -> Made:
    return tables.row_state(talk.words), talk.say("state")


def _acc(talk: Talk) -> Made:
    here = _traced_row(talk.shown)
    found = here or _traced_row(recorded())
    if found is None:
        return Table("", "", ("|acc|",), (("–",),), ((talk.say("no_trace"),),)), talk.say("no_trace")
    run, state = found
    worst = state.difference("acc_norm")
    apart = error(worst.relative) if worst is not None else "–"
    notes = [talk.say("acc", row=f"{state.row:,}", device=_device(run), apart=apart)]
    if here is None:
        notes.insert(0, talk.say("no_trace"))
    notes += _recorded_note(talk, run)
    return Picture("", "", pictures.growing_acc(state, talk.words, talk.theme), ("interpreter",)), talk.joined(notes)


def _traced_row(subject: Shown | None) -> tuple[Run, RowState] | None:
    run = None if subject is None else subject.traced()
    found = None if run is None else recording(run)
    if run is None or found is None:
        return None
    return run, found.row(found.trace.row_stop - 1)


def _schedule(talk: Talk) -> Made:
    return tables.moves_of_the_schedule(talk.words), talk.say("source")


def _saved(talk: Talk) -> Made:
    pair = _pair(talk)
    if pair is None:
        runs = talk.shown.runs
        table = tables.saved(runs.get("naive"), runs.get("flash"), talk.words)
        return table, talk.say("saved", label=talk.label)
    notes = [talk.say("saved", label=pair[0].workload.problem.label), *_recorded_note(talk, pair[1])]
    here = None if talk.shown.pair() or talk.shown.is_article else talk.shown.runs
    return tables.saved(*pair, talk.words, here), talk.joined(notes)


def _saved_in_words(talk: Talk) -> str:
    pair = _pair(talk)
    if pair is None:
        return talk.say("saved_unknown")
    before, after = (float(possible_hbm(run).value or 0) for run in pair)
    largest = max(before, after)
    told = {"naive": bytes_in_words(before, largest), "flash": bytes_in_words(after, largest)}
    factor = ratio(before / after) if after else "–"
    note = "saved_recorded" if pair[1].recorded else "saved_here"
    return talk.say(note, device=_device(pair[1]), label=pair[1].workload.problem.label, ratio=factor, **told)


def _pair(talk: Talk) -> tuple[Run, Run] | None:
    """naive and flash with HBM bytes: those shown, else those recorded."""
    stand_in = recorded()
    return talk.shown.pair() or (None if stand_in is None else stand_in.pair())


def _recorded_note(talk: Talk, run: Run) -> list[str]:
    return [talk.say("recorded", label=f"{_device(run)}, {run.created[:10]}")] if run.recorded else []


def _device(run: Run) -> str:
    return run.device.name


# What draws each step, its single numbers, and the page where it can be watched.
_MAKERS: tuple[tuple[Callable[[Talk], Made], live.Live, str], ...] = (
    (_score_matrix, live.PEAK, "tile_schedule"),
    (_round_trips, live.ROUND_TRIPS, "hbm_traffic"),
    (_asking("row_streaming"), live.ROWS, "hbm_traffic"),
    (_asking("row_streaming", "query_tiled"), live.TILES, "tile_schedule"),
    (_key_tiles, live.rescales_of_a_run, "tile_schedule"),
    (_on_chip, live.ON_CHIP, "tile_schedule"),
    (_broken, live.glued_row_of_a_run, "online_softmax"),
    (_state, live.moves_of_a_row, "online_softmax"),
    (_acc, live.nothing, "online_softmax"),
    (_schedule, live.FUSED, "tile_schedule"),
    (_saved, live.nothing, "hbm_traffic"),
)
