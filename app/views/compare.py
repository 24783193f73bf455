"""Compare: any two of the shown Runs, what differs around them, and what changed from the one to the other."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import streamlit as st

from app import page, recorded
from app.answer import pair
from app.compare_ratios import TITLE as RATIOS
from app.compare_sheet import ROWS, compare_sheet
from app.compare_tables import ALONE, DIFFERENCES, EVERY
from app.picture import Headline, Sheet, Table
from app.selection import compare as comparable
from app.selection import names
from app.style import Theme
from profiler.compare import Compared, compare
from profiler.run import Run

TITLE = "Compare"
ICON = ":material/compare_arrows:"
ORDER = 85
EMPTY = "A comparison needs two Runs: press Run, or select two on the Runs page."
PRINTED = (DIFFERENCES, RATIOS, EVERY)
BEFORE, AFTER = "compare-before", "compare-after"
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
    whole = compare_sheet(compare(*usual(runs)), theme)
    return replace(whole, items=tuple(item for item in whole.items if item.title in PRINTED))


def usual(runs: tuple[Run, ...]) -> tuple[Run, Run]:
    """What the other pages hold against each other; of Runs of different problems, the newest two."""
    two = pair(comparable(runs))
    if two.baseline is not None:
        return two.baseline, two.subject
    before, after = sorted(runs, key=lambda run: run.created)[-2:]
    return before, after


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page."""
    if len(runs) < 2:
        page.headline(Headline("Compare any two Runs.", EMPTY))
        page.link("runs", "Choose two Runs")
        recorded.draw()
        return
    before, after = _chosen(runs)
    compared = compare(before, after)
    shown = compare_sheet(compared, page.theme())
    if shown.headline is not None:
        page.headline(shown.headline)
    _pickers(runs)
    rest = tuple(item for item in shown.items if item.title != ALONE)
    page.sheet(replace(shown, headline=None, items=rest), "compare", rows=ROWS)
    for item in shown.items:
        if isinstance(item, Table) and item.title == ALONE:
            with st.expander(f"{item.title}: {len(item.rows)} measurements"):
                st.html(page.table_html(item))
    _exports(compared)
    page.link("runs", "Choose other Runs")


def _chosen(runs: tuple[Run, ...]) -> tuple[Run, Run]:
    """What the pickers, which are drawn further down, stand on; reset where those Runs are not shown any more."""
    known = {run.id: run for run in runs}
    usual_ids = [run.id for run in usual(runs)]
    for key, run_id in zip((BEFORE, AFTER), usual_ids, strict=True):
        if st.session_state.get(key) not in known:
            st.session_state[key] = run_id
    return known[st.session_state[BEFORE]], known[st.session_state[AFTER]]


def _pickers(runs: tuple[Run, ...]) -> None:
    spelled = {run.id: _label(name, run) for name, run in zip(names(runs), runs, strict=True)}
    first, second, swap = st.columns([5, 5, 1], vertical_alignment="bottom")
    first.selectbox("Compare", list(spelled), format_func=spelled.__getitem__, key=BEFORE)
    second.selectbox("with", list(spelled), format_func=spelled.__getitem__, key=AFTER)
    swap.button("Swap", on_click=_swap, key="compare-swap")


def _label(name: str, run: Run) -> str:
    return f"{name}, {run.workload.problem.label}, {run.device.name}"


def _swap() -> None:
    state = st.session_state
    state[BEFORE], state[AFTER] = state[AFTER], state[BEFORE]


def _exports(compared: Compared) -> None:
    with st.container(horizontal=True):
        for format, (label, mime) in FORMATS.items():
            name = f"bytescope-{compared.before.id}-{compared.after.id}.{format}"
            st.download_button(label, _maker(compared, format), name, mime, key=f"compare-{format}")


def _maker(compared: Compared, format: str) -> Callable[[], str]:
    """Makes the file once it is asked for; the report's modules are not needed to draw this page."""

    def make(format: str) -> str:
        from app.compare_report import FORMATS as makers

        return makers[format](compared, ())

    return partial(make, format)
