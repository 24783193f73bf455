"""Compare: any two Runs that are shown, saved or ship, what differs around them, and what changed between them."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import streamlit as st

from app import page, recorded
from app.compare_choice import Choice, choices, usual, usual_runs
from app.compare_ratios import TITLE as RATIOS
from app.compare_sheet import compare_sheet, rows
from app.compare_tables import ALONE, DIFFERENCES, EVERY
from app.picture import Headline, Sheet, Table
from app.style import Theme
from profiler.codec import NotARun
from profiler.compare import Compared, compare
from profiler.run import Run
from profiler.store import StoreError

TITLE = "Compare"
ICON = ":material/compare_arrows:"
ORDER = 85
EMPTY = "A comparison needs two Runs: press Run, or select two on the Runs page."
PRINTED = (DIFFERENCES, RATIOS, EVERY)
BEFORE, AFTER, SHOWN = "compare-before", "compare-after", "compare-shown"
FORMATS = {
    "html": ("HTML", "text/html"),
    "md": ("Markdown for a pull request", "text/markdown"),
    "csv": ("CSV", "text/csv"),
    "json": ("JSON", "application/json"),
}


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """The two Runs that the other pages hold against each other; without pictures that those pages have, too."""
    if len(runs) < 2:
        return Sheet(missing=EMPTY)
    whole = compare_sheet(compare(*usual_runs(runs)), theme)
    return replace(whole, items=tuple(item for item in whole.items if item.title in PRINTED))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page."""
    offered = choices(runs)
    both = _chosen(runs, offered)
    if both is None:
        page.headline(Headline("Compare any two Runs.", EMPTY))
        page.link("runs", "Choose two Runs")
        recorded.draw()
        return
    try:
        before, after = (offered[run_id].read() for run_id in both)
    except (NotARun, StoreError) as fault:
        page.headline(Headline("These two cannot be compared.", str(fault)))
        _pickers(offered)
        return
    compared = compare(before, after)
    shown = compare_sheet(compared, page.theme())
    if shown.headline is not None:
        page.headline(shown.headline)
    _pickers(offered)
    rest = tuple(item for item in shown.items if item.title != ALONE)
    page.sheet(replace(shown, headline=None, items=rest), "compare", rows=rows(shown))
    for item in shown.items:
        if isinstance(item, Table) and item.title == ALONE:
            with st.expander(f"{item.title}: {len(item.rows)} measurements"):
                st.html(page.table_html(item))
    _exports(compared)
    page.link("runs", "All Runs")


def _chosen(runs: tuple[Run, ...], offered: Mapping[str, Choice]) -> tuple[str, str] | None:
    """What the pickers, which are drawn further down, stand on; anew where other Runs are shown than before."""
    state, usually = st.session_state, usual(runs, offered)
    if usually is None:
        return None
    shown = tuple(run.id for run in runs)
    if state.get(SHOWN) != shown or not {state.get(BEFORE), state.get(AFTER)} <= offered.keys():
        state[SHOWN] = shown
        state[BEFORE], state[AFTER] = usually
    return state[BEFORE], state[AFTER]


def _pickers(offered: Mapping[str, Choice]) -> None:
    first, second, swap = st.columns([5, 5, 1], vertical_alignment="bottom")
    first.selectbox("Compare", list(offered), format_func=lambda run_id: offered[run_id].label, key=BEFORE)
    second.selectbox("with", list(offered), format_func=lambda run_id: offered[run_id].label, key=AFTER)
    swap.button("Swap", on_click=_swap, key="compare-swap")


def _swap() -> None:
    state = st.session_state
    state[BEFORE], state[AFTER] = state[AFTER], state[BEFORE]


def _exports(compared: Compared) -> None:
    with st.container(horizontal=True):
        for format, (label, mime) in FORMATS.items():
            name = f"bytescope-{compared.before.id}-{compared.after.id}.{format}"
            # A run of the page would take back the file that the browser is about to fetch.
            st.download_button(label, _maker(compared, format), name, mime, key=f"compare-{format}", on_click="ignore")


def _maker(compared: Compared, format: str) -> Callable[[], str]:
    """Makes the file once it is asked for; the report's modules are not needed to draw this page."""

    def make(format: str) -> str:
        from app.compare_report import FORMATS as makers

        return makers[format](compared, ())

    return partial(make, format)
