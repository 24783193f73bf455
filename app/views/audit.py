"""Audit: how far the sources of numbers agree with ncu and with what is known, as the last audit found it."""

import streamlit as st

from app import page
from app.audit_table import by_shape, every_check, figures, headline, limits, missed, reasons
from app.picture import Headline
from profiler.audit import audits_folder, newest, runs_of
from profiler.plausible import printable
from profiler.run import Run

TITLE = "Audit"
ICON = ":material/fact_check:"
ORDER = 95
COMMAND = "python -m profiler audit"
WHAT = (
    "An audit runs a copy, a fill, a sum and a grid of attention shapes through every source that answers here, and "
    "holds each number against ncu, the interpreter or what must have moved."
)


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page; `runs` do not matter here."""
    found = newest()
    for fault in found.faults:
        page.message("error", fault)
    audit = found.audit
    if audit is None:
        page.headline(Headline("No audit has been made yet.", WHAT))
        with page.card("Make one", f"It takes a minute or two and is kept in {printable(str(audits_folder()))}."):
            st.code(COMMAND, language="bash")
        return
    page.headline(headline(audit))
    page.figures(figures(audit))
    for table in (missed(audit), limits(audit), *by_shape(audit), reasons(audit)):
        if table is not None:
            page.table(table)
    whole = every_check(audit)
    with st.expander(whole.title):
        st.caption(whole.caption)
        st.html(page.table_html(whole))
    if audit.run_ids:
        place = printable(str(runs_of(audit.id)))
        st.html(page.item_html(f"Its Runs are in {place}", "The Runs page opens a file of them."))
    saved = printable(str(found.path))
    st.html(page.item_html(f"Repeat with {COMMAND} --device {audit.device.device}", f"Saved as {saved}"))
