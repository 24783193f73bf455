"""The card that holds float16, bfloat16 and float32 side by side, and starts what is missing of them."""

from html import escape

import streamlit as st

from app import page, session
from app.cost import refusal
from app.devices import devices, free_bytes
from app.softmax_dtypes import DTYPES, alike, chart, table, wanted
from app.style import Theme
from kernels.problem import Refused
from profiler.run import Run
from profiler.worker import DEFAULT_TIMEOUT
from profiler.workload import Workload


def draw(run: Run, runs: tuple[Run, ...], theme: Theme) -> None:
    """Table and bars of the Runs that differ from `run` only in dtype, and the button that makes them."""
    found = alike(run, runs)
    shown = table(found)
    with page.card(shown.title, shown.caption, stretch=False):
        if len(found) > 1:
            left, right = st.columns([6, 5])
            with right:
                st.plotly_chart(chart(found, theme), key="softmax.dtypes", theme=None, config=page.CHART_CONFIG)
        else:
            left = st.container()
        with left:
            st.html(page.table_html(shown))
            if len(found) < len(DTYPES):
                _start(run)


def _start(run: Run) -> None:
    """The button, or why it cannot be pressed."""
    workloads, reason = check(run)
    label = f"Run in {DTYPES[0]}, {DTYPES[1]} and {DTYPES[2]}"
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(label, disabled=bool(reason), key="softmax.run-dtypes"):
            session.start(workloads, DEFAULT_TIMEOUT)
            st.rerun()
        if reason:
            st.html(f'<p class="bs-caption">{escape(reason)}</p>', width="stretch")


def check(run: Run) -> tuple[tuple[Workload, ...], str]:
    """The Run's Workload in every dtype, and why they may not run now; empty if they may."""
    device, here = run.workload.device, devices()
    if session.job() is not None:
        return (), "A Job is running; wait for it or stop it."
    if device not in here or here[device].name != run.device.name:
        known = f"{here[device].name} is" if device in here else f"{device} is not"
        return (), f"This Run was made on {run.device.name}; {known} here. Run the problem here first."
    try:
        found = wanted(run)
    except Refused as refused:
        return (), str(refused)
    return found, refusal(found, here[device], free_bytes(device))
