"""Tile schedule: which tile a kernel works on, what sits where then, and which bytes it has cost so far."""

from dataclasses import replace

import streamlit as st

from app import page, place, player, tile_pages
from app.level_table import levels
from app.picture import Picture, Sheet, Table
from app.row_block_table import row_block
from app.style import Theme
from app.subject import Subject, subjects
from app.tile_moment import Moment
from app.tile_pickers import other
from app.tile_stage import stage
from app.tile_tables import moved
from kernels.problem import AttentionProblem, TileConfig
from profiler.run import Run

TITLE = "Tile schedule"
ICON = ":material/grid_on:"
ORDER = 30
ARTICLE = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32"), TileConfig(4, 4)
MOST_PRINTED = 4  # kernels with pictures in a report


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """The schedules of the measured kernels at one moment, the newest Run of each, at most MOST_PRINTED of them."""
    measured = [subject for subject in subjects(runs, *ARTICLE) if subject.run is not None]
    if not measured:
        return Sheet(missing="Press Run, or open a recorded H200 run, to see its tile schedule.")
    newest = {subject.kernel: subject for subject in reversed(measured)}
    shown = [subject for subject in measured if newest[subject.kernel] is subject][:MOST_PRINTED]
    items = [item for subject in shown for item in _printed(subject, measured, theme)]
    return Sheet(tile_pages.headline(shown[0]), (), tuple(items))


def _first(found: tuple[Subject, ...]) -> Subject:
    """The newest measured kernel; without any, the one that has most orders to choose from."""
    return found[0] if found[0].run else max(found, key=lambda subject: len(subject.attention_kernel.orders))


def _printed(subject: Subject, found: list[Subject], theme: Theme) -> list[Picture | Table]:
    walk = subject.schedule.walk
    if walk is None:
        launches = tile_pages.launches(subject, len(subject.schedule.launches) - 1, theme)
        scores = tile_pages.whole_scores(subject, found, theme)
        return [launches] if scores is None else [launches, scores]
    moment = Moment.opening(walk)
    items: list[Picture | Table | None] = [
        tile_pages.matrix(subject, moment, theme, scores=tile_pages.shown_scores(subject, found, moment)),
        tile_pages.neighbourhood(subject, moment, theme),
        moved(subject, moment),
        levels(subject, moment),
        row_block(subject),
    ]
    return [_on_paper(item) if isinstance(item, Table) else item for item in items if item is not None]


def _on_paper(table: Table) -> Table:
    """Only dashes keep their reasons: as footnotes, what each tile means would be longer than the table."""
    both = zip(table.rows, table.reasons, strict=False)
    reasons = [tuple(reason if text == "–" else "" for text, reason in zip(row, why, strict=True)) for row, why in both]
    return replace(table, reasons=tuple(reasons))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page around one moment that can be stepped, played and picked."""
    state = st.session_state
    found = subjects(runs, state.get("problem", ARTICLE[0]), state.get("tile", ARTICLE[1]))
    subject = next((subject for subject in found if subject.name == place.kernel()), None) or _first(found)
    second = other(found, subject)
    place.choose_kernel(subject.name)
    words = tile_pages.headline(subject) if second is None else tile_pages.headline_of_two(subject, second)
    page.headline(words)
    playing = player.is_playing()
    run_every = player.PLAY_SECONDS if playing else None
    st.fragment(stage, run_every=run_every)(subject, second, found, playing)
    with st.container(horizontal=True):
        if subject.schedule.walk is not None:
            page.link("online_softmax", "m, l and acc of this Q tile")
            page.link("timeline", "When and where this program ran")
        page.link("hbm_traffic", "Where the bytes go")
