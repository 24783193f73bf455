"""What the page of block sizes waits for: one compilation of this session, and the sweeps of this server."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import streamlit as st

from app import session
from app.owners import owners, this_page
from app.unfinished import Note, keep_until_over
from kernels.problem import Refused
from profiler.codec import NotARun
from profiler.compile_job import CompileJob
from profiler.grid import Grid
from profiler.resources import Configuration
from profiler.store import StoreError
from profiler.sweep import Sweep, all_sweeps, create, open_sweep, read_plan
from profiler.sweep_job import LocalDevices, SweepJob
from profiler.worker import DEFAULT_TIMEOUT

_COMPILE, _FOLLOWED = "blocks.compile-job", "blocks.followed"


def start_compiling(chosen: Sequence[Configuration]) -> None:
    """Compile in the background; what was compiled before comes from the cache."""
    session.dismiss()
    if compiling() is None and chosen:
        st.session_state[_COMPILE] = CompileJob(chosen)
        owners().own(_COMPILE, st.session_state[_COMPILE], this_page())


def compiling() -> CompileJob | None:
    """The compilation that is under way: this session's, or one that a page of the same browser left."""
    if st.session_state.get(_COMPILE) is None:
        st.session_state[_COMPILE] = owners().take_up(_COMPILE, this_page())
    job: CompileJob | None = st.session_state[_COMPILE]
    return job


def start_sweep(grid: Grid, device: str, timeout: float) -> None:
    """Measure a grid on a device of this host, or go on with it; what cannot be begun is said above the page."""
    session.dismiss()
    try:
        _begin(unfinished(grid) or create(grid), device, timeout)
    except (Refused, StoreError) as fault:
        session.notify("error", str(fault))


def go_on(folder: Path, device: str, timeout: float = DEFAULT_TIMEOUT) -> None:
    """Measure what a saved sweep has left; what cannot be begun is said above the page."""
    session.dismiss()
    try:
        _begin(open_sweep(folder), device, timeout)
    except (Refused, StoreError, NotARun) as fault:
        session.notify("error", str(fault))


def _begin(sweep: Sweep, device: str, timeout: float) -> None:
    job = SweepJob(sweep, LocalDevices([device], timeout=timeout))
    _sweeps().append(job)
    keep_until_over(Note(f"a sweep of {len(sweep.cells):,} cells on {device}"), job)


def unfinished(grid: Grid) -> Sweep | None:
    """The newest saved sweep of exactly this grid that has cells left, if nobody else runs it."""
    for folder in all_sweeps():
        try:
            if read_plan(folder).grid() == grid and (found := open_sweep(folder)).left():
                with found.held():
                    return found
        except (Refused, StoreError, NotARun):
            continue  # the Runs page says what is wrong with it
    return None


def sweeping() -> SweepJob | None:
    """The sweep that runs on this server, whoever began it."""
    running = [job for job in _sweeps() if not job.status().is_over]
    return running[-1] if running else None


def collect() -> bool:
    """Say how what is over ended, once; True if the page must be drawn anew."""
    is_changed = False
    job = compiling()
    if job is not None and (told := job.status()).is_over:
        st.session_state.pop(_COMPILE)
        if told.error:
            session.notify("error", told.error)
        is_changed = True
    # Everybody who saw it run is told; where nobody is left, whoever comes next is.
    followed: list[SweepJob] = st.session_state.setdefault(_FOLLOWED, [])
    followed += [one for one in _sweeps() if one not in followed]
    for one in [one for one in followed if one.status().is_over]:
        followed.remove(one)
        with suppress(ValueError):  # somebody else was told before
            _sweeps().remove(one)
        status = one.status()
        if status.state != "done" or status.failed:
            failed = f", {status.failed} failed" if status.failed else ""
            words = f"{status.done} of {status.cells} cells measured{failed}. {status.error}".strip()
            session.notify("error" if status.error else "info", words)
        is_changed = True
    return is_changed


@st.cache_resource(show_spinner=False)
def _sweeps() -> list[SweepJob]:
    """The sweeps of this server that nobody has been told the end of, oldest first.

    They belong to no page: one that was begun in the evening goes on when its page is closed.
    """
    return []
