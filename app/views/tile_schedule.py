"""Tile schedule: which tile a program works on, what is on chip then, and which bytes it has cost so far."""

from functools import partial

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import page, place, player, tile_pages
from app.picture import Picture, Sheet, Table
from app.player import Steps
from app.style import Theme
from app.subject import Subject, subjects
from app.tile_moment import Moment
from app.tile_tables import launches_moved, moved, on_chip
from kernels.problem import AttentionProblem, TileConfig
from profiler.run import Run

TITLE = "Tile schedule"
ICON = ":material/grid_on:"
ORDER = 30
ARTICLE = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32"), TileConfig(4, 4)
PLAY_TICKS = 48  # a program of more steps than that is played several tiles at a time
LAUNCH = "tile.launch"


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """Every measured kernel's schedule at one moment."""
    measured = [subject for subject in subjects(runs, *ARTICLE) if subject.run is not None]
    if not measured:
        return Sheet(missing="Press Run, or open a recorded H200 run, to see its tile schedule.")
    items: list[Picture | Table | None] = []
    for subject in measured:
        grid = subject.schedule.tiles
        if grid is None:
            items.append(tile_pages.launches(subject, len(subject.schedule.launches) - 1, theme))
            continue
        moment = Moment.opening(grid)
        items += [tile_pages.matrix(subject, moment, theme), tile_pages.neighbourhood(subject, moment, theme)]
        items += [on_chip(moment, subject.tile), moved(moment)]
        items.append(tile_pages.programs_on_sms(subject, moment.program, theme))
    return Sheet(tile_pages.headline(measured[0]), (), tuple(item for item in items if item is not None))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page around one moment that can be stepped, played and picked."""
    state = st.session_state
    found = subjects(runs, state.get("problem", ARTICLE[0]), state.get("tile", ARTICLE[1]))
    subject = next((subject for subject in found if subject.name == place.kernel()), found[0])
    place.choose_kernel(subject.name)
    page.headline(tile_pages.headline(subject))
    stage = _launch_stage if subject.schedule.tiles is None else _tile_stage
    playing = player.is_playing()
    run_every = player.PLAY_SECONDS if playing else None
    st.fragment(stage, run_every=run_every)(subject, tuple(one.name for one in found), playing)
    with st.container(horizontal=True):
        if subject.schedule.tiles is not None:
            page.link("online_softmax", "m, l and acc of this Q tile")
        page.link("hbm_traffic", "Where the bytes go")


def _tile_stage(subject: Subject, names: tuple[str, ...], has_timer: bool) -> None:
    """The part of the page that moves, for a kernel with known tiles."""
    grid = subject.schedule.tiles
    assert grid is not None
    if player.ticks():
        _play_on(place.here(grid))
    if player.is_playing() != has_timer or place.kernel() != subject.name:
        st.rerun()
    moment = place.here(grid)
    with _row():
        _pickers(subject, names, moment)
        player.controls(_steps(moment), "tile.player")
    if words := place.take_remark():
        st.caption(words)
    colours = page.theme()
    matrix = tile_pages.matrix(subject, moment, colours)
    near = tile_pages.neighbourhood(subject, moment, colours)
    left, right = st.columns([7, 5])
    with left:
        for item in (matrix, near):
            if item is not None:
                _clickable(item, moment)
    with right:
        page.table(moved(moment))
        page.table(on_chip(moment, subject.tile))
    measured = tile_pages.programs_on_sms(subject, moment.program, colours)
    if measured is not None:
        page.picture(measured, "tile.timeline")


def _row() -> DeltaGenerator:
    return st.container(horizontal=True, vertical_alignment="bottom", gap="small")


def _steps(moment: Moment) -> Steps:
    grid, low = moment.grid, int(moment.grid.first[moment.q_tile])
    return Steps(
        "KV tile at hand",
        low,
        low + moment.steps - 1,
        moment.kv_tile or 0,
        move=lambda kv_tile: place.go_to(Moment.at_tile(grid, moment.program, kv_tile)),
        back=partial(place.go_to, moment.before()),
        forward=partial(place.go_to, moment.after()),
        help="The tile of K and V that streams through the chip while the Q tile stays",
    )


def _play_on(moment: Moment) -> None:
    """One tick further; the last tile of the last Q tile ends it, and from there it begins anew."""
    stride = player.speed() * max(1, moment.steps // PLAY_TICKS)
    is_last = moment.step == moment.steps - 1
    then = moment.after() if is_last else Moment(moment.grid, moment.program, moment.step + stride)
    place.go_to(then)
    if then.q_tile == then.grid.q_tiles - 1 and then.step == then.steps - 1:
        player.stop()


def _pickers(subject: Subject, names: tuple[str, ...], moment: Moment) -> None:
    """Kernel, batch, head and Q tile; what has only one choice is left out."""
    batch, head = moment.batch_head
    problem, grid = subject.problem, moment.grid
    choices = (("Batch", batch, problem.batch), ("Head", head, problem.heads), ("Q tile", moment.q_tile, grid.q_tiles))
    _kernel_picker(names, subject.name)
    for label, value, count in choices:
        if count > 1:
            key = f"tile.{label}"
            st.session_state[key] = value
            words = f"{label}, 0 to {count - 1:,}"
            st.number_input(words, step=1, key=key, on_change=_picked, args=(moment,), width=136)


def _picked(moment: Moment) -> None:
    grid, (batch, head) = moment.grid, moment.batch_head
    batch, head, q_tile = (
        place.clamped(label, st.session_state.get(f"tile.{label}", value), 0, count - 1)
        for label, value, count in (
            ("Batch", batch, grid.problem.batch),
            ("Head", head, grid.problem.heads),
            ("Q tile", moment.q_tile, grid.q_tiles),
        )
    )
    program = (batch * grid.problem.heads + head) * grid.q_tiles + q_tile
    place.go_to(Moment.at_tile(grid, program, moment.kv_tile or 0))


def _kernel_picker(names: tuple[str, ...], chosen: str) -> None:
    if len(names) < 2:
        return
    key = "tile.choice"
    st.session_state[key] = chosen
    st.segmented_control(
        "Kernel", names, key=key, format_func=page.plain, on_change=lambda: _choose(st.session_state[key] or chosen)
    )


def _choose(name: str) -> None:
    place.choose_kernel(name)
    player.stop()


def _clickable(item: Picture, moment: Moment) -> None:
    """A map in a card; clicking a tile chooses its program and KV tile, where tiles are large enough to be hit."""
    key = f"tile.{item.title}"

    def choose() -> None:
        points = st.session_state[key].selection.points
        if points:
            tile = points[0]["customdata"]  # a row of an array, which comes back as a dict
            q_tile, kv_tile = int(tile["0"]), int(tile["1"])
            place.go_to(Moment.at_tile(moment.grid, moment.program - moment.q_tile + q_tile, kv_tile))

    with page.card(item.title, item.caption):
        st.plotly_chart(
            item.chart, key=key, theme=None, config=page.CHART_CONFIG, on_select=choose, selection_mode="points",
            alt=f"{item.title}. {item.caption}",
        )  # fmt: skip


def _launch_stage(subject: Subject, names: tuple[str, ...], has_timer: bool) -> None:
    """The part of the page that moves, for a kernel whose launches are its steps."""
    last = len(subject.schedule.launches) - 1
    state = st.session_state
    at = min(state.get(LAUNCH, last), last)
    if player.ticks():
        state[LAUNCH] = at = at + 1 if at < last else 0
        if at == last:
            player.stop()
    if player.is_playing() != has_timer or place.kernel() != subject.name:
        st.rerun()
    go = partial(state.__setitem__, LAUNCH)
    back, forward = partial(go, max(0, at - 1)), partial(go, min(last, at + 1))
    with _row():
        _kernel_picker(names, subject.name)
        player.controls(
            Steps("Launch", 1, last + 1, at + 1, lambda launch: go(launch - 1), back, forward), "tile.launches"
        )
    left, right = st.columns([7, 5])
    with left:
        page.picture(tile_pages.launches(subject, at, page.theme()), "tile.launch-map")
    with right:
        page.table(launches_moved(subject.schedule, at))
