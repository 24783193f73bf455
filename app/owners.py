"""Which open page waits for which Job; a Job whose page is gone goes to a page of the same browser, or is ended.

A page is open while its browser holds the line to the server. A hidden one does, though its timers may tick but once a
minute; one that was closed does not, and of one whose computer went to sleep the server hears no answer to its pings.
"""

import threading
import time
import weakref
from dataclasses import dataclass
from typing import Any, Protocol

import streamlit as st
from streamlit import runtime
from streamlit.runtime.scriptrunner import get_script_run_ctx

# A page that is loaded anew, or whose line broke, is back by then. With what it takes to notice (the ping interval of
# .streamlit/config.toml, twice) and to end the Job, the device is free within 30 s.
GRACE_SECONDS = 8.0
LOOK_SECONDS = 0.5
WHY_ENDED = (
    f"Ended, for the page that had asked for it was closed, or could not be reached for {GRACE_SECONDS:.0f} s. "
    "Runs that were finished are kept; run again."
)
BROWSER_COOKIE = "_streamlit_xsrf"  # Streamlit gives every browser a token of its own


class Task(Protocol):
    """What runs in the background: a Job or a CompileJob."""

    def status(self) -> Any:
        """How far it is; it knows `is_over`."""

    def stop(self, why: str = "") -> None:
        """End it."""


@dataclass(frozen=True)
class Page:
    """One page in a browser. `browser` is the same for all pages of one, and empty where that is not known."""

    session: str
    browser: str = ""

    @property
    def is_open(self) -> bool:
        """Whether its browser holds the line; outside a server there is no line to lose."""
        return not runtime.exists() or runtime.get_instance().is_active_session(self.session)


@dataclass
class Owned:
    """A task and its page; `seen` is when the page was open last, by the monotonic clock."""

    kind: str
    task: Task
    page: Page
    seen: float


class Owners:
    """Tasks and their pages; safe to use from threads."""

    def __init__(self, grace: float = GRACE_SECONDS) -> None:
        self._grace = grace
        self._owned: list[Owned] = []
        self._guard = threading.Lock()
        self._is_watching = False

    def own(self, kind: str, task: Task, page: Page) -> None:
        """The page waits for the task, and nobody else does."""
        with self._guard:
            self._owned = [one for one in self._owned if one.task is not task]
            self._owned.append(Owned(kind, task, page, time.monotonic()))
            if not self._is_watching:
                self._is_watching = True
                threading.Thread(target=_watch, args=(weakref.ref(self),), name="owners", daemon=True).start()

    def take_up(self, kind: str, page: Page) -> Any:
        """The newest task of that kind that a page of the same browser has left, now this page's; None without one."""
        with self._guard:
            left = [
                one
                for one in self._owned
                if one.kind == kind and one.page.browser == page.browser and not one.page.is_open
            ]
            found = next((one for one in reversed(left) if not one.task.status().is_over), None)
            if found is not None:
                found.page, found.seen = page, time.monotonic()
            return None if found is None else found.task

    def look(self) -> bool:
        """End what nobody has waited for longer than the grace; False once there is nothing more to look after."""
        now = time.monotonic()
        with self._guard:
            self._owned = [one for one in self._owned if not one.task.status().is_over]
            for one in self._owned:
                if one.page.is_open:
                    one.seen = now
            left = [one.task for one in self._owned if now - one.seen > self._grace]
            self._is_watching = bool(self._owned)
        for task in left:
            task.stop(WHY_ENDED)
        return self._is_watching


def _watch(owners: "weakref.ref[Owners]") -> None:
    while (found := owners()) is not None and found.look():
        del found
        time.sleep(LOOK_SECONDS)


@st.cache_resource(show_spinner=False)
def owners() -> Owners:
    """Those of this server."""
    return Owners()


def this_page() -> Page:
    """The page that this script run draws."""
    context = get_script_run_ctx()
    return Page("" if context is None else context.session_id, browser_of(st.context.cookies.get(BROWSER_COOKIE, "")))


def browser_of(cookie: str) -> str:
    """The token in the cookie, which is masked anew each time: version|mask|masked token|time; empty if it is not."""
    try:
        _, mask, masked, _ = cookie.split("|")
        key = int(mask, 16).to_bytes(4, "big")
        return bytes(byte ^ key[index % 4] for index, byte in enumerate(bytes.fromhex(masked))).hex()
    except (ValueError, OverflowError):
        return ""
