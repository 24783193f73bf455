"""What one browser session looks at and waits for: the current Runs and the Job that makes new ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import streamlit as st

from app import form_values, own_kernels, unfinished
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
    try:
        job = worker_for(workloads[0].device).submit(workloads, timeout, own_kernels.permit())
    except StoreError as fault:
        notify("error", str(fault))
        return
    st.session_state.job, st.session_state.taken, st.session_state.finished = job, 0, ()
    page = this_page()
    owners().own(RUN, job, page)
    kernels = tuple(dict.fromkeys(workload.kernel for workload in workloads))
    what = f"{' and '.join(kernels)} on {workloads[0].problem.label}"
    unfinished.keep_until_over(unfinished.Note(what, kernels, page.browser, form_values.values()), job)


def come_back() -> Mapping[str, object]:
    """In a fresh session, say what the server was at when it was killed; what the form held then, empty otherwise."""
    if "current" in st.session_state:
        return {}
    form: Mapping[str, object] = {}
    for note in unfinished.take(this_page().browser):
        finished = [run.workload.kernel for run in current() if is_since(run, note.begun)]
        if told := unfinished.sentence(note, finished):
            notify("info", told)
            form = note.form or form
    return form


def is_since(run: Run, begun: float) -> bool:
    """Whether a Run was measured after a moment, in seconds since 1970."""
    return run.measured_at is not None and run.measured_at[0] >= begun


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
