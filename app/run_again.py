"""A button that starts a Run's Workload anew with something changed, or the reason why it cannot be pressed."""

from collections.abc import Callable
from html import escape

import streamlit as st

from app import session
from app.cost import refusal
from app.devices import devices, free_bytes
from kernels.problem import Refused
from profiler.run import Run
from profiler.worker import DEFAULT_TIMEOUT
from profiler.workload import Workload

Make = Callable[[Run], tuple[Workload, ...]]  # raises Refused


def button(label: str, key: str, run: Run, make: Make) -> None:
    """Start what `make` makes of the Run, on the Run's device."""
    workloads, reason = check(run, make)
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button(label, disabled=bool(reason), key=key):
            session.start(workloads, DEFAULT_TIMEOUT)
            st.rerun()
        if reason:
            st.html(f'<p class="bs-caption">{escape(reason)}</p>', width="stretch")


def check(run: Run, make: Make) -> tuple[tuple[Workload, ...], str]:
    """What `make` makes of the Run, and why it may not run now; empty if it may."""
    device, here = run.workload.device, devices()
    if session.job() is not None:
        return (), "A Job is running; wait for it or stop it."
    if device not in here or here[device].name != run.device.name:
        known = f"{here[device].name} is" if device in here else f"{device} is not"
        return (), f"This Run was made on {run.device.name}; {known} here. Run the problem here first."
    try:
        found = make(run)
    except Refused as refused:
        return (), str(refused)
    return found, refusal(found, here[device], free_bytes(device))
