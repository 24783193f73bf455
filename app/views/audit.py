"""Audit: how far the sources of numbers agree with ncu and with what is known, by the last audit."""

import streamlit as st

from app import page
from app.audit_table import by_shape, every_check, figures, headline, limits, missed, reasons
from app.picture import Headline
from app.recorded import AUDIT, recorded_audit
from profiler.audit import Audit, audits_folder, newest, runs_of
from profiler.codec import NotARun
from profiler.plausible import printable
from profiler.run import Run
from profiler.store import StoreError

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
    if found.audit is not None:
        page.headline(headline(found.audit))
        _draw(found.audit)
        if found.audit.run_ids:
            place = printable(str(runs_of(found.audit.id)))
            st.html(page.item_html(f"Its Runs are in {place}", "The Runs page opens a file of them."))
        again = f"Repeat with {COMMAND} --device {found.audit.device.device}"
        st.html(page.item_html(again, f"Saved as {printable(str(found.path))}"))
        return
    try:
        audit = recorded_audit()
    except (NotARun, StoreError) as fault:
        page.message("error", f"{AUDIT.name}: {fault}")
        page.headline(Headline("No audit has been made yet.", ""))
    else:
        page.headline(headline(audit, f"make your own with {COMMAND}"))
        _draw(audit)
    kept = f"It takes a minute or two and is kept in {printable(str(audits_folder()))}."
    with page.card("Make your own", f"{WHAT} {kept}"):
        st.code(COMMAND, language="bash")


def _draw(audit: Audit) -> None:
    page.figures(figures(audit))
    for table in (missed(audit), limits(audit), *by_shape(audit), reasons(audit)):
        if table is not None:
            page.table(table)
    whole = every_check(audit)
    with st.expander(whole.title):
        st.caption(whole.caption)
        st.html(page.table_html(whole))
