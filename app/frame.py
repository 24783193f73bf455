"""The frame around every page: brand, device line, navigation, the form, the running Job and one notice."""

import gc
import logging
from functools import cache, partial
from html import escape
from pathlib import Path
from types import ModuleType

# Streamlit imports it when the first table is drawn, and plotly, drawing for another session meanwhile, would use what
# is there of it by then. Imported here, it is whole before any page is drawn.
import pandas  # noqa: F401
import streamlit as st

from app import form, form_values, listening, page, player, queue_place, session, sign_in
from app.block_jobs import sweeping
from app.devices import device_line, why_no_gpu
from app.registry import all_views

ICON = Path(__file__).with_name("icon.svg")  # a Material symbol would be fetched from the network


def show() -> None:
    """Draw the whole application for one script run."""
    st.set_page_config("Bytescope", ICON, layout="wide", initial_sidebar_state="auto")
    page.style_sheet()
    views = {view.__name__.rpartition(".")[2]: view for view in all_views()}
    _settle()
    pages = {name: _page(view, index == 0) for index, (name, view) in enumerate(views.items())}
    st.session_state.pages = pages
    chosen = st.navigation(list(pages.values()), position="hidden")
    asked = sign_in.gate()
    if not sign_in.is_signed_in(asked):
        sign_in.draw(asked)
        return
    if st.session_state.get("page") != chosen.url_path:
        # Who left a page while it played comes back to one that stands still.
        player.stop()
        st.session_state["page"] = chosen.url_path
    st.session_state["page-follows-form"] = getattr(views.get(chosen.url_path or ""), "FOLLOWS_FORM", False)
    form.prepare()
    with st.sidebar:
        st.fragment(_brand, run_every=queue_place.IDLE_SECONDS)(str(form_values.values()["device"]))
        with st.container(key="bs-nav", gap=None):
            for target in pages.values():
                st.page_link(target, width="stretch")
        form.draw()
    _notice()
    if warning := listening.warning(not asked.is_open):
        with st.container(key="bs-open"):
            page.message("info" if not asked.is_open else "error", warning)
    chosen.run()


@cache
def _settle() -> None:
    """Leave what was imported out of every later collection of garbage; once in a process.

    Streamlit collects after each script run, every poll of a progress line too: among 140,000 objects of modules that
    took 40 ms and more of the one thread that all sessions share.
    """
    gc.collect()
    gc.freeze()


def _brand(device: str) -> None:
    """The name, and whether the device measures now, whoever asked for it."""
    is_running = session.job() is not None or sweeping() is not None or session.queued(device) > 0
    lines = [device_line(device, is_running)]
    if why_no_gpu():
        lines.append("No GPU: kernels are interpreted on the CPU")
    spans = "".join(f"<span>{escape(line)}</span>" for line in lines)
    st.html(f'<div class="bs-brand" title="{escape(why_no_gpu() or "")}"><b>Bytescope</b>{spans}</div>')


def _page(view: ModuleType, is_first: bool) -> st.Page:
    render = partial(_render, view)
    return st.Page(
        render, title=view.TITLE, icon=view.ICON, url_path=view.__name__.rpartition(".")[2], default=is_first
    )


def _render(view: ModuleType) -> None:
    try:
        view.render(session.current())
    except Exception as fault:  # one page's fault is a sentence there, and the log has the rest
        logging.getLogger("bytescope").exception("%s", view.TITLE)
        what = f"{type(fault).__name__}: {str(fault)[:300]}"
        page.message("error", f"{view.TITLE} cannot be drawn ({what}). The Runs and the other pages are unharmed.")


def _notice() -> None:
    found = session.notice()
    if found is None:
        return
    with st.container(horizontal=True, vertical_alignment="center", key="bs-notice"):
        with st.container():
            page.message(found.kind, found.text)
        st.button("Dismiss", on_click=session.dismiss, key="dismiss")
    if found.trace:
        with st.expander("Traceback"):
            st.code(found.trace, language=None, wrap_lines=True)
