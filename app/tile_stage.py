"""The part of the tile schedule that moves: one kernel, or two on one slider, stepped, played and picked."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import streamlit as st

from app import page, place, player, tile_pages
from app.level_table import levels
from app.picture import Picture
from app.player import Steps
from app.row_block_table import row_block
from app.standing import Pair, Standing
from app.style import Theme
from app.subject import Subject
from app.tile_moment import Moment
from app.tile_pickers import kernel_pickers, other, tile_pickers
from app.tile_scores import HeadScores
from app.tile_tables import launches_moved, moved, moved_both
from kernels.tile_grid import TileGrid

PLAY_TICKS = 512  # a head of more steps than that is played several steps at a time


def stage(first: Subject, second: Subject | None, found: tuple[Subject, ...], has_timer: bool) -> None:
    """Controls, then the pictures and tables of the step at hand."""
    if player.ticks():
        _play_on(Pair.here(first, second))
    # The headline and the timer are outside of what moves.
    if player.is_playing() != has_timer or place.kernel() != first.name or other(found, first) != second:
        st.rerun()
    pair = Pair.here(first, second)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        kernel_pickers(found, pair)
        if pair.leader.moment is not None:
            tile_pickers(pair.leader.moment)
        player.controls(_steps(pair), "tile.player")
    if words := place.take_remark():
        st.caption(words)
    colours = page.theme()
    if pair.second is not None:
        _two(pair, pair.second, found, colours)
    elif pair.first.moment is not None:
        _one(pair, pair.first.moment, found, colours)
    else:
        _launches(pair, found, colours)


def _steps(pair: Pair) -> Steps:
    leader = pair.leader
    name = "Launch" if leader.moment is None else "Step of this head"
    whose = "" if pair.second is None else f", {leader.subject.name}"
    step_on = 1 if leader.at + 1 < leader.steps else 1 - leader.steps
    step_back = -1 if leader.at else leader.steps - 1
    return Steps(
        f"{name}{whose}",
        1,
        leader.steps,
        leader.at + 1,
        move=lambda step: pair.go(step - 1),
        back=partial(pair.go, leader.at + step_back),
        forward=partial(pair.go, leader.at + step_on),
        help="One visit of one tile; the programs of a head one after another, as if one SM ran them"
        if leader.moment is not None
        else "One kernel started on the GPU after another",
    )


def _play_on(pair: Pair) -> None:
    """One tick further; the last step ends it, and from there it begins anew."""
    leader = pair.leader
    last, stride = leader.steps - 1, player.speed() * max(1, leader.steps // PLAY_TICKS)
    then = 0 if leader.at == last else min(leader.at + stride, last)
    pair.go(then)
    if then == last:
        player.stop()


def _one(pair: Pair, moment: Moment, found: tuple[Subject, ...], theme: Theme) -> None:
    subject = pair.first.subject
    left, right = st.columns([7, 5])
    with left:
        scores = tile_pages.shown_scores(subject, found, moment)
        _clickable(tile_pages.matrix(subject, moment, theme, scores=scores), pair, pair.first, scores)
        if (near := tile_pages.neighbourhood(subject, moment, theme)) is not None:
            _clickable(near, pair, pair.first)
    with right:
        page.table(moved(subject, moment))
        page.table(levels(subject, moment))
    if (needed := row_block(subject)) is not None:
        page.table(needed)
    measured = tile_pages.programs_on_sms(subject, moment.program, theme)
    if measured is not None:
        page.picture(measured, "tile.timeline")


def _two(pair: Pair, second: Standing, found: tuple[Subject, ...], theme: Theme) -> None:
    both = (pair.first, second)
    reads = max((tile_pages.most_reads(part.moment.walk) for part in both if part.moment is not None), default=None)
    columns = st.columns(2)
    for column, part in zip(columns, both, strict=True):
        with column:
            if part.moment is None:
                _launch_map(part, pair, found, theme)
            else:
                scores = tile_pages.shown_scores(part.subject, found, part.moment, is_narrow=True)
                picture = tile_pages.matrix(part.subject, part.moment, theme, reads, scores)
                _clickable(picture, pair, part, scores)
    page.table(moved_both(pair))
    for column, part in zip(st.columns(2), both, strict=True):
        if part.moment is not None:
            with column:
                page.table(levels(part.subject, part.moment))
                if (needed := row_block(part.subject)) is not None:
                    page.table(needed)


def _launches(pair: Pair, found: tuple[Subject, ...], theme: Theme) -> None:
    left, right = st.columns([7, 5])
    with left:
        _launch_map(pair.first, pair, found, theme)
    with right:
        page.table(launches_moved(pair.first.subject.schedule, pair.first.at))


def _launch_map(standing: Standing, pair: Pair, found: tuple[Subject, ...], theme: Theme) -> None:
    """The launches, and below them the scores that they hold in HBM where a Run has kept them."""
    subject, side = standing.subject, _side(standing, pair)
    page.picture(tile_pages.launches(subject, standing.at, theme), f"tile.launch-map-{side}")
    item = tile_pages.whole_scores(subject, found, theme, is_narrow=pair.second is not None)
    if item is not None:
        with page.card(item.title, item.caption, sources=item.sources), st.container(key=f"bs-scores-{side}"):
            st.plotly_chart(
                item.chart, key=f"tile.scores-{side}", theme=None, config=page.CHART_CONFIG,
                alt=f"{item.title}. {item.caption}",
            )  # fmt: skip


def _side(standing: Standing, pair: Pair) -> str:
    return "first" if standing is pair.first else "second"


def clicked_tile(point: Mapping[str, Any], grid: TileGrid) -> tuple[int, int]:
    """(Q tile, KV tile) of a point of the map: of a target by its data, of a printed score by where it stands."""
    tile = point.get("customdata")  # a row of an array, which comes back as a dict
    if tile is not None:
        return int(tile["0"]), int(tile["1"])
    return int(point["y"]) // grid.BLOCK_M, int(point["x"]) // grid.BLOCK_N


def _clickable(item: Picture, pair: Pair, standing: Standing, scores: HeadScores | None = None) -> None:
    """A map in a card; clicking a tile goes there, where tiles are large enough to be hit."""
    key, moment = f"tile.{item.title}", standing.moment
    assert moment is not None

    def choose() -> None:
        points = st.session_state[key].selection.points
        if points:
            there = Moment.at_tile(moment.walk, moment.head, *clicked_tile(points[0], moment.walk.grid))
            pair.go_with(Standing.at_moment(standing.subject, there))

    # Numbers that have no room on a phone are scrolled there.
    inside = None if scores is None else f"bs-scores-{_side(standing, pair)}"
    with page.card(item.title, item.caption, sources=item.sources), st.container(key=inside):
        st.plotly_chart(
            item.chart, key=key, theme=None, config=page.CHART_CONFIG, on_select=choose, selection_mode="points",
            alt=f"{item.title}. {item.caption}",
        )  # fmt: skip
