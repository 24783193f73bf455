"""The lines that follow a compilation and a sweep: how far, how fast, how much longer, and Stop."""

import streamlit as st

from app import block_jobs
from app.style import significant
from profiler.compile_job import CompileStatus
from profiler.turns import SweepStatus

POLL_SECONDS = 0.5
REDRAW_SECONDS = 2.0  # between two drawings of the maps while cells come in
_SEEN = "blocks.seen"
GOES_ON = "It goes on when this page is closed; what is measured is saved cell by cell."


def draw() -> None:
    """Follow what runs until it is over, and say how it ended; nothing where nothing does."""
    if block_jobs.collect():
        st.rerun()
    if block_jobs.compiling() is not None or block_jobs.sweeping() is not None:
        st.fragment(_follow, run_every=POLL_SECONDS)()


def _follow() -> None:
    if block_jobs.collect():
        st.rerun()
    job = block_jobs.compiling()
    if job is not None:
        _line("compile", job.status().done, job.status().total, compile_words(job.status()), job.stop)
    sweep = block_jobs.sweeping()
    if sweep is not None:
        status = sweep.status()
        _line("sweep", status.done + status.failed, status.cells, sweep_words(status), sweep.stop)
        st.html(f'<p class="bs-caption">{GOES_ON}</p>')
    done = (0 if job is None else job.status().done) + (0 if sweep is None else sweep.status().finished)
    seen = st.session_state.setdefault(_SEEN, [done, 0])
    # The maps fill while cells come in, but not with every one of them.
    seen[1] += 1
    if done != seen[0] and seen[1] * POLL_SECONDS >= REDRAW_SECONDS:
        st.session_state[_SEEN] = [done, 0]
        st.rerun()


def _line(name: str, done: int, total: int, words: str, stop: object) -> None:
    with st.container(horizontal=True, vertical_alignment="center", key=f"bs-{name}-progress"):
        with st.container():
            st.progress(min(1.0, done / max(1, total)), text=words)
        st.button("Stop", on_click=stop, key=f"stop-{name}")  # type: ignore[arg-type]


def compile_words(status: CompileStatus) -> str:
    """How far a compilation is, in a few words."""
    without = f", {status.without_code} without code" if status.without_code else ""
    return f"Compiling: {status.done} of {status.total}{without}, {status.seconds:.0f} s"


def sweep_words(status: SweepStatus) -> str:
    """How far a sweep is, how fast, and how much longer it takes, in a few words."""
    parts = [f"Measuring: {status.done + status.failed} of {status.cells} cells"]
    if status.failed:
        parts.append(f"{status.failed} failed")
    if status.rate is not None and status.seconds_left is not None:
        parts += [f"{significant(status.rate, 2)} cells/s", f"{status.seconds_left:.0f} s left"]
    return ", ".join(parts)
