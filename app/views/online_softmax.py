"""Online softmax: m, l, alpha and acc as the running kernel wrote them, tile by tile, beside the exact values."""

import streamlit as st

from app import (
    page,
    place,
    run_again,
    softmax_asked,
    softmax_by_hand_card,
    softmax_differences,
    softmax_dtype_card,
    softmax_moves,
    softmax_pages,
    softmax_scores,
)
from app.picture import Headline, Picture, Sheet, Table
from app.softmax_asked import Asked
from app.softmax_recording import Recording
from app.softmax_state import RowState
from app.softmax_traced import Traced, missing, traced
from app.style import Theme
from profiler.run import Run

TITLE = "Online softmax"
ICON = ":material/functions:"
ORDER = 40
TERMS = {
    "m": "The largest score of the row so far. Subtracting it keeps every exponential at or below 1.",
    "l": "Σ exp(s − m) over the scores so far: the denominator of the softmax.",
    "α": "The rescale factor alpha, exp(m_old − m_new), that brings l and acc to a new maximum; 1 if m did not move. "
    "What was summed before then counts as if the new maximum had been known from the start.",
    "|acc|": "Euclidean norm of the row of acc = Σ exp(s − m) · v so far: the output before its division by l.",
    "exact prefix": "m, l and |acc| over the same keys, computed in float64 in one go.",
}


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """The last row whose scores were kept, else the last one, of the newest traced Run, and all rows together."""
    found = traced(runs)
    if not found:
        return Sheet(missing=missing())
    run, about = found[0].run, found[0].found
    last = about.trace.row_stop - 1
    kept = softmax_scores.nearest_kept(about, last)
    state = about.row(last if kept is None else kept)
    items: list[Picture | Table] = [softmax_pages.along_row(state, None, theme)]
    scores = softmax_scores.row_scores(about, state)
    if scores is not None:
        items.append(softmax_scores.picture(scores, None, theme))
        printed = softmax_scores.table(scores)
        items += [] if printed is None else [printed]
    items.append(softmax_pages.all_rows(about, "alpha", state.row, None, theme))
    moved = softmax_moves.picture(softmax_moves.moves(about), theme)
    items += [] if moved is None else [moved]
    items.append(softmax_differences.table(about, state))
    tiles = softmax_pages.recorded_tiles(about.trace)
    if tiles:
        items.append(softmax_pages.whole_acc(about, softmax_pages.last_recorded(about), state.row, theme))
    return Sheet(softmax_pages.headline(run, about, state), softmax_pages.figures(run, about, state), tuple(items))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page around one row, shared with the tile schedule."""
    found = traced(runs)
    if not found:
        page.headline(Headline(missing(), ""))
        softmax_by_hand_card.draw(None, None)
        return
    one = next((one for one in found if one.name == place.kernel()), found[0])
    colours = page.theme()
    trace = one.found.trace
    asked = Asked.here(one.found)
    state = one.found.row(asked.row)
    kv_tile = place.kv_tile(trace.BLOCK_N)
    page.headline(softmax_pages.headline(one.run, one.found, state))
    page.figures(softmax_pages.figures(one.run, one.found, state))
    left, right = st.columns([7, 5])
    with left:
        panels = softmax_pages.along_row(state, kv_tile, colours)
        with page.card("One row, tile by tile", panels.caption, sources=panels.sources):
            _pickers([each.name for each in found], one, asked, state.row)
            st.plotly_chart(panels.chart, key="softmax.row-panels", theme=None, config=page.CHART_CONFIG)
    with right:
        _all_rows(one.found, state.row, kv_tile, colours)
        _accumulator(one.found, state.row, kv_tile, colours)
    _scores(one, state, kv_tile, colours)
    left, right = st.columns(2)
    with left:
        _differences(one, state)
    with right:
        _moves(one, colours)
    softmax_dtype_card.draw(one.run, runs, colours)
    softmax_by_hand_card.draw(one.found, state)
    with st.container(horizontal=True, vertical_alignment="center"):
        page.go_button("tile_schedule", "The tiles of this row's program", lambda: _show_tiles(one, state.row))
        page.link("hbm_traffic", "Where the bytes go")


def _pickers(names: list[str], one: Traced, asked: Asked, row: int) -> None:
    """Which row, which Run where several were traced, and the terms; a row that was not recorded is named."""
    trace = one.found.trace
    st.session_state["softmax.row"] = row
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.number_input(
            f"Row, {trace.row_start:,} to {trace.row_stop - 1:,}", step=1, width=170, key="softmax.row",
            on_change=_picked, args=(one.found,), help="A row of Q, and so of S and O: one query",
        )  # fmt: skip
        if len(names) > 1:
            st.session_state["softmax.run"] = one.name
            st.selectbox("Run", names, key="softmax.run", width=220, on_change=_choose_run)
        for term, meaning in TERMS.items():
            st.caption(term, help=meaning, width="content")
    if words := place.take_remark():
        st.caption(words)
    if words := softmax_asked.sentence(asked, one.found, row):
        st.caption(words)
        if asked.exists(problem := one.found.walk.grid.unpacked):
            label = f"Run again, recording {asked.named(problem)}"
            run_again.button(label, "softmax.run-row", one.run, asked.workload)


def _choose_run() -> None:
    place.choose_kernel(str(st.session_state["softmax.run"]))


def _picked(found: Recording) -> None:
    trace = found.trace
    _go_to_row(found, place.clamped("Row", st.session_state["softmax.row"], trace.row_start, trace.row_stop - 1))


def _go_to_row(found: Recording, row: int, kv_tile: int | None = None) -> None:
    if kv_tile is not None:
        st.session_state["key"] = kv_tile * found.trace.BLOCK_N
    place.go_to_row(found.walk, found.trace.batch, found.trace.head, row)


def _show_tiles(one: Traced, row: int) -> None:
    place.choose_kernel(one.name)
    _go_to_row(one.found, row)


def _all_rows(found: Recording, row: int, kv_tile: int | None, theme: Theme) -> None:
    choice = st.session_state.get("softmax.map") or "α"
    item = softmax_pages.all_rows(found, "alpha" if choice == "α" else "m", row, kv_tile, theme)
    with page.card("All recorded rows", item.caption, sources=item.sources):
        st.segmented_control("Shown", ("α", "m"), default="α", key="softmax.map", label_visibility="collapsed")
        st.plotly_chart(item.chart, key="softmax.all-rows", theme=None, config=page.CHART_CONFIG)


def _accumulator(found: Recording, row: int, kv_tile: int | None, theme: Theme) -> None:
    tiles = softmax_pages.recorded_tiles(found.trace)
    if not tiles:
        return
    nearest = (
        softmax_pages.last_recorded(found) if kv_tile is None else min(tiles, key=lambda tile: abs(tile - kv_tile))
    )
    at = st.session_state.get("softmax.acc", nearest)
    at = at if at in tiles else nearest
    item = softmax_pages.whole_acc(found, at, row, theme)
    with page.card(item.title, item.caption, sources=item.sources):
        if len(tiles) > 1:
            st.session_state["softmax.acc"] = at
            st.select_slider("After KV tile", tiles, key="softmax.acc")
        st.plotly_chart(item.chart, key="softmax.acc-map", theme=None, config=page.CHART_CONFIG)


def _scores(one: Traced, state: RowState, kv_tile: int | None, theme: Theme) -> None:
    """The chosen row's scores with every one printed where they are few, or why there are none."""
    scores = softmax_scores.row_scores(one.found, state)
    if scores is None:
        with page.card(f"Scores of row {state.row:,}", stretch=False):
            page.empty(softmax_scores.why_none(one.found, state))
            nearest = softmax_scores.nearest_kept(one.found, state.row)
            if nearest is not None:
                label, where = f"Go to row {nearest:,}, whose scores were kept", (one.found, nearest)
                st.button(label, on_click=_go_to_row, args=where, key="softmax.to-scores")
        return
    printed = softmax_scores.table(scores)
    if printed is None:
        page.picture(softmax_scores.picture(scores, kv_tile, theme), "softmax.scores")
        return
    left, right = st.columns([7, 5])
    with left:
        page.picture(softmax_scores.picture(scores, kv_tile, theme), "softmax.scores")
    with right:
        page.table(printed)


def _moves(one: Traced, theme: Theme) -> None:
    found = softmax_moves.moves(one.found)
    item = softmax_moves.picture(found, theme)
    if item is not None:
        page.picture(item, "softmax.moves")
        return
    with page.card(softmax_moves.TITLE):
        page.empty(softmax_moves.sentence(found))


def _differences(one: Traced, state: RowState) -> None:
    item = softmax_differences.table(one.found, state)
    with page.card(item.title, item.caption, sources=(softmax_differences.TRACE,)):
        st.html(page.table_html(item))
        with st.container(horizontal=True, gap="small"):
            for symbol, worst in softmax_differences.places(one.found).items():
                at = "" if worst.kv_tile is None else f", KV tile {worst.kv_tile:,}"
                st.button(
                    f"{symbol}: row {worst.row:,}{at}", on_click=_go_to_row,
                    args=(one.found, worst.row, worst.kv_tile), key=f"softmax.to-{symbol}", type="tertiary",
                    icon=":material/arrow_forward:",
                )  # fmt: skip
