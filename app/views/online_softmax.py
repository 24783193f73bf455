"""Online softmax: m, l, alpha and acc as the running kernel wrote them, tile by tile, beside the exact values."""

import streamlit as st

from app import page, place, softmax_pages
from app.picture import Headline, Sheet
from app.selection import compare
from app.softmax_state import is_whole, row_state
from app.style import Theme
from app.subject import Subject
from kernels.problem import TileConfig
from profiler.run import Run, SoftmaxTrace

TITLE = "Online softmax"
ICON = ":material/functions:"
ORDER = 40
MISSING = "None of these Runs recorded its softmax state: run flash, or open a recorded H200 run that did."
TERMS = {
    "m": "The largest score of the row so far. Subtracting it keeps every exponential at or below 1.",
    "l": "Σ exp(s − m) over the scores so far: the denominator of the softmax.",
    "α": "The rescale factor alpha, exp(m_old − m_new), that brings l and acc to a new maximum; 1 if m did not move. "
    "What was summed before then counts as if the new maximum had been known from the start.",
    "|acc|": "Euclidean norm of the row of acc = Σ exp(s − m) · v so far: the output before its division by l.",
    "exact prefix": "m, l and |acc| over the same keys, computed in float64 in one go.",
}


def traced(runs: tuple[Run, ...]) -> list[tuple[str, Run, SoftmaxTrace]]:
    """The comparable Runs with a softmax state, newest first, with their names."""
    found = compare(runs)
    named = zip(reversed(found.names), reversed(found.runs), strict=True)
    return [(name, run, run.softmax) for name, run in named if run.softmax is not None and is_whole(run.softmax)]


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """The last recorded row of the newest traced Run, all rows' alpha, and acc at the end."""
    found = traced(runs)
    if not found:
        return Sheet(missing=MISSING)
    _, run, trace = found[0]
    state = row_state(trace, trace.row_stop - 1)
    items = [
        softmax_pages.along_row(state, None, theme),
        softmax_pages.all_rows(trace, "alpha", state.row, None, theme),
    ]
    tiles = softmax_pages.recorded_tiles(trace)
    if tiles:
        items.append(softmax_pages.whole_acc(run, trace, tiles[-1], state.row, theme))
    return Sheet(softmax_pages.headline(run, trace, state), softmax_pages.figures(run, state), tuple(items))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page around one row, shared with the tile schedule."""
    found = traced(runs)
    if not found:
        page.headline(Headline(MISSING, ""))
        return
    names = [name for name, _, _ in found]
    chosen = st.session_state.get("softmax.run")
    name, run, trace = found[names.index(chosen) if chosen in names else 0]
    colours = page.theme()
    state = row_state(trace, int(st.session_state.get("row", trace.row_stop - 1)))
    kv_tile = st.session_state.get("kv_tile")
    page.headline(softmax_pages.headline(run, trace, state))
    page.figures(softmax_pages.figures(run, state))
    left, right = st.columns([7, 5])
    with left:
        panels = softmax_pages.along_row(state, kv_tile, colours)
        with page.card("One row, tile by tile", panels.caption, sources=panels.sources):
            _pickers(names, run, trace, state.row)
            st.plotly_chart(panels.chart, key="softmax.row-panels", theme=None, config=page.CHART_CONFIG)
    with right:
        _all_rows(trace, state.row, kv_tile, colours)
        _accumulator(run, trace, state.row, kv_tile, colours)
    with st.container(horizontal=True, vertical_alignment="center"):
        page.go_button(
            "tile_schedule", "The tiles of this row's program", lambda: _show_tiles(name, run, trace, state.row)
        )
        page.link("hbm_traffic", "Where the bytes go")


def _pickers(names: list[str], run: Run, trace: SoftmaxTrace, row: int) -> None:
    """Which row, which Run where several were traced, and the terms; a row out of reach is named."""
    asked = st.session_state.get("row", row)
    st.session_state["softmax.row"] = row
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.number_input(
            f"Row, {trace.row_start:,} to {trace.row_stop - 1:,}", step=1, width=170, key="softmax.row",
            on_change=_picked, args=(run, trace), help="A row of Q, and so of S and O: one query",
        )  # fmt: skip
        if len(names) > 1:
            st.selectbox("Run", names, key="softmax.run", width=200)
        for term, meaning in TERMS.items():
            st.caption(term, help=meaning, width="content")
    if words := place.take_remark():
        st.caption(words)
    elif asked != row:
        st.caption(f"Row {asked:,}, chosen on the tile schedule, was not recorded; row {row:,} is the nearest.")


def _picked(run: Run, trace: SoftmaxTrace) -> None:
    _go_to_row(run, trace, place.clamped("Row", st.session_state["softmax.row"], trace.row_start, trace.row_stop - 1))


def _go_to_row(run: Run, trace: SoftmaxTrace, row: int) -> None:
    work = run.workload
    grid = Subject("", work.kernel, work.problem, work.tile or TileConfig()).schedule.tiles
    if grid is not None:
        place.go_to_row(grid, trace.batch, trace.head, row)


def _show_tiles(name: str, run: Run, trace: SoftmaxTrace, row: int) -> None:
    place.choose_kernel(name)
    _go_to_row(run, trace, row)


def _all_rows(trace: SoftmaxTrace, row: int, kv_tile: int | None, theme: Theme) -> None:
    choice = st.session_state.get("softmax.map") or "α"
    item = softmax_pages.all_rows(trace, "alpha" if choice == "α" else "m", row, kv_tile, theme)
    with page.card("All recorded rows", item.caption, sources=item.sources):
        st.segmented_control("Shown", ("α", "m"), default="α", key="softmax.map", label_visibility="collapsed")
        st.plotly_chart(item.chart, key="softmax.all-rows", theme=None, config=page.CHART_CONFIG)


def _accumulator(run: Run, trace: SoftmaxTrace, row: int, kv_tile: int | None, theme: Theme) -> None:
    tiles = softmax_pages.recorded_tiles(trace)
    if not tiles:
        return
    nearest = tiles[-1] if kv_tile is None else min(tiles, key=lambda tile: abs(tile - kv_tile))
    at = st.session_state.get("softmax.acc", nearest)
    at = at if at in tiles else nearest
    item = softmax_pages.whole_acc(run, trace, at, row, theme)
    with page.card(item.title, item.caption, sources=item.sources):
        if len(tiles) > 1:
            st.session_state["softmax.acc"] = at
            st.select_slider("After KV tile", tiles, key="softmax.acc")
        st.plotly_chart(item.chart, key="softmax.acc-map", theme=None, config=page.CHART_CONFIG)
