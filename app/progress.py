"""The line that follows a Job: its place in the queue, then kernel, phase and how far; and Stop."""

import streamlit as st

from app import queue_place, session
from profiler.child import WAIT
from profiler.worker import JobStatus

POLL_SECONDS = 0.4
QUEUED_POLL_SECONDS = 1.0  # of a Job that others come before: many may wait


def draw() -> None:
    """Follow the session's Job until it is over; nothing where none runs."""
    if (job := session.job()) is not None:
        st.fragment(_follow, run_every=QUEUED_POLL_SECONDS if job.status().ahead else POLL_SECONDS)()


def words(status: JobStatus) -> str:
    """Where a Job whose turn it is stands, in a few words."""
    if status.phase.startswith(WAIT):
        return f"{status.kernel}: {status.phase}, {status.seconds:.0f} s"
    if status.state == "waiting":
        return f"{status.kernel}: waiting for the worker, {status.seconds:.0f} s"
    return f"{status.kernel}: {status.phase}, {status.done} of {status.total} steps, {status.seconds:.1f} s"


def _follow() -> None:
    job = session.job()
    if job is None:
        return
    status = job.status()
    if session.collect(status):
        st.rerun()
    with st.container(key="bs-progress"):
        if status.ahead:
            st.html(queue_place.place_html(status.ahead, status.seconds))
        else:
            st.progress(min(1.0, status.done / max(1, status.total)), text=words(status))
        st.button("Stop", on_click=job.stop, width="stretch", key="stop")
