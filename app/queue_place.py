"""The place in a device's queue: of this session's Job, and the one that a Job of it would get."""

import streamlit as st

from app import session

POLL_SECONDS, IDLE_SECONDS = 2.0, 5.0  # while somebody measures, and while nobody does
MOST_DRAWN = 12  # Jobs


def draw(device: str) -> None:
    """Say who measures on a device before anything is asked for, also once somebody begins."""
    st.fragment(_follow, run_every=POLL_SECONDS if session.queued(device) else IDLE_SECONDS)(device)


def _follow(device: str) -> None:
    count = session.queued(device)
    if count and session.job() is None:
        st.html(f'<p class="bs-others">{others(count)}</p>')


def others(count: int) -> str:
    """Where a Job would stand behind `count` of others."""
    first = "Another session is measuring" + (
        f" and {count - 1} more wait{'s' if count == 2 else ''}" if count > 1 else ""
    )
    return f"{first}; a Run that you start now is number {count + 1} in the queue."


def place(ahead: int) -> str:
    """The place of a Job with so many before it, in words."""
    return f"Number {ahead + 1} in the queue: {ahead} {'Job' if ahead == 1 else 'Jobs'} before yours"


def place_html(ahead: int, seconds: float) -> str:
    """The same with a picture, the Jobs before it and then this one, and how long it has waited."""
    before = "".join(f'<i class="{"" if index else "now"}"></i>' for index in range(min(ahead, MOST_DRAWN)))
    more = f"<span>+{ahead - MOST_DRAWN}</span>" if ahead > MOST_DRAWN else ""
    return (
        f'<div class="bs-queue">{before}{more}<i class="mine"></i><time>{seconds:.0f} s</time></div>'
        f'<p class="bs-place">{place(ahead)}</p>'
    )
