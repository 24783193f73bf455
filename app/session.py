"""What one browser session looks at and waits for: the current Runs and the Job that makes new ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app import own_kernels
from app.history import Entry, load_entries, newest_request
from app.owners import owners, this_page
from profiler.codec import NotARun
from profiler.run import Run
from profiler.store import StoreError, load, runs_folder
from profiler.worker import Job, JobStatus, worker_for
from profiler.workload import Workload
from profiler.wrong_output import why_failed

RUN = "run"  # the kind of task that a Job is


@dataclass(frozen=True)
class Notice:
    """One sentence for the head of the page; kind is error or info. `trace` is a traceback that belongs to it."""

    kind: str
    text: str
    trace: str = ""


def current() -> tuple[Run, ...]:
    """The Runs that all pages show; at first those asked for last, from the store."""
    if "current" not in st.session_state:
        st.session_state.current = newest_request(runs_folder())
    runs: tuple[Run, ...] = st.session_state.current
    return runs


def select(runs: Sequence[Run]) -> None:
    """Make these the current Runs."""
    st.session_state.current = tuple(runs)


def open_entries(entries: Sequence[Entry]) -> None:
    """Make the Runs of entries the current ones; say which files cannot be read any more."""
    runs, faults = load_entries(entries)
    if runs:
        select(runs)
    if faults:
        notify("error", " ".join(faults))


def notify(kind: str, text: str, trace: str = "") -> None:
    """Say something above the page, until dismissed or replaced."""
    st.session_state.notice = Notice(kind, text, trace)


def notice() -> Notice | None:
    """What is to be said above the page."""
    found: Notice | None = st.session_state.get("notice")
    return found


def dismiss() -> None:
    """Take the notice away."""
    st.session_state.pop("notice", None)


def start(workloads: tuple[Workload, ...], timeout: float) -> None:
    """Hand Workloads to the device's worker; earlier results stay until new ones are there."""
    dismiss()
    job = worker_for(workloads[0].device).submit(workloads, timeout, own_kernels.permit())
    st.session_state.job, st.session_state.taken, st.session_state.finished = job, 0, ()
    owners().own(RUN, job, this_page())


def job() -> Job | None:
    """The Job that this session waits for: its own, or one that a page of the same browser left, as a reload does."""
    if st.session_state.get("job") is None:
        st.session_state.job = owners().take_up(RUN, this_page())
        st.session_state.taken, st.session_state.finished = 0, ()
    found: Job | None = st.session_state.job
    return found


def queued(device: str) -> int:
    """How many Jobs of this server measure on a device or wait for it, whoever asked for them."""
    return len(worker_for(device).queue)


def collect(status: JobStatus) -> bool:
    """Select what the Job has finished so far and note how it ended; True if the page must be drawn anew."""
    fresh = status.run_ids[st.session_state.taken :]
    for run_id in fresh:
        try:
            # Runs taken before are not read again: their files may have gone since.
            st.session_state.finished += load(runs_folder() / f"{run_id}.json")
            select(st.session_state.finished)
        except (NotARun, StoreError) as fault:
            notify("error", str(fault))
        st.session_state.taken += 1
    if status.is_over:
        st.session_state.job = None
        if status.error:
            notify("info" if status.state == "stopped" else "error", status.error, status.trace)
        elif spoiled := " ".join(filter(None, map(why_failed, st.session_state.finished))):
            notify("error", spoiled)
    return bool(fresh) or status.is_over
