"""What can be measured here, as tables; `doctor` is asked in the background, since it takes a while."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from app import page
from app.picture import Table
from profiler.codec import decode
from profiler.diagnosis import Diagnosis

ROOT = Path(__file__).resolve().parent.parent
COMMAND = (sys.executable, "-m", "profiler", "doctor", "--json")
MOST_SECONDS = 600.0
POLL_SECONDS = 0.5
TITLE = "What can be measured here"
ANY = "any"  # the device of what needs none
OPTION = "--\u2060counters"  # in one piece: a line may break after a hyphen


@dataclass(frozen=True)
class Outcome:
    """What asking led to: a Diagnosis, or a sentence on why there is none; `at` is when it ended."""

    diagnosis: Diagnosis | None
    fault: str
    at: datetime


class Checkup:
    """Asks the doctor, one question at a time, and keeps the last Outcome; every method answers at once."""

    def __init__(self, command: Sequence[str] = COMMAND) -> None:
        self.outcome: Outcome | None = None
        self._command = command
        self._guard = threading.Lock()
        self._begun: float | None = None

    @property
    def seconds(self) -> float | None:
        """How long the question has been under way; None where there is none."""
        begun = self._begun
        return None if begun is None else time.monotonic() - begun

    def start(self) -> None:
        """Ask, unless that is under way."""
        with self._guard:
            if self._begun is None:
                self._begun = time.monotonic()
                threading.Thread(target=self._ask, name="doctor", daemon=True).start()

    def _ask(self) -> None:
        diagnosis, fault = None, ""
        try:
            done = subprocess.run(
                self._command, cwd=ROOT, capture_output=True, text=True, timeout=MOST_SECONDS, check=False
            )
            lines = done.stdout.strip().splitlines()
            if done.returncode == 0 and lines:
                diagnosis = decode(Diagnosis, json.loads(lines[-1]), "The doctor's answer")
            else:
                last = done.stderr.strip().splitlines()[-1:] or ["it said nothing"]
                fault = f"The doctor ended with exit code {done.returncode}: {last[0][:300]}"
        except subprocess.TimeoutExpired:
            fault = f"The doctor had no answer after {MOST_SECONDS:.0f} s and was stopped."
        # NotARun is a ValueError too, as is what is no JSON or no text.
        except (OSError, ValueError) as error:
            fault = f"The doctor cannot be understood: {str(error)[:300]}"
        finally:
            self.outcome = Outcome(diagnosis, fault, datetime.now(UTC))
            self._begun = None


@st.cache_resource(show_spinner=False)
def checkup() -> Checkup:
    """The server's one Checkup, so that sessions do not ask twice."""
    return Checkup()


def draw() -> None:
    """The section: a button, and what the last question found."""
    st.fragment(_section, run_every=None if checkup().seconds is None else POLL_SECONDS)(checkup().seconds is not None)


def _section(was_asking: bool) -> None:
    asked = checkup()
    seconds, outcome = asked.seconds, asked.outcome
    with page.card(TITLE, caption(outcome), stretch=False):
        with st.container(horizontal=True, vertical_alignment="center"):
            label = "Check" if outcome is None else "Check again"
            st.button(label, on_click=asked.start, disabled=seconds is not None, key="doctor-check")
            if seconds is not None:
                page.message("info", f"Checking… {seconds:.0f} s. Each source is tried in a process of its own.")
        if outcome is not None and outcome.fault:
            page.message("error", outcome.fault)
        if outcome is not None and outcome.diagnosis is not None:
            st.html(page.table_html(sources(outcome.diagnosis)))
    if outcome is not None and outcome.diagnosis is not None:
        page.table(machine(outcome.diagnosis))
    if was_asking != (seconds is not None):
        st.rerun()  # starts or ends the polling


def caption(outcome: Outcome | None) -> str:
    """What Check does, or how old its answer is and what the sources have measured."""
    if outcome is None:
        return "Check tries every source of numbers on a copy, and says of each that fails what would allow it."
    tried_on = outcome.diagnosis.tried_on if outcome.diagnosis else ""
    return f"Found at {outcome.at:%H:%M:%S} UTC on {outcome.at:%Y-%m-%d}. {tried_on}"


def sources(found: Diagnosis) -> Table:
    """A row for each source, on each device where there are several."""
    devices = {answer.device for answer in found.sources} - {ANY}
    with_device = len(devices) > 1
    about = ("available", "what it measured, or why not")
    columns = ("source", OPTION, *(("device",) if with_device else ()), *about)
    rows = tuple(
        (
            answer.title,
            answer.counters,
            *((answer.device,) if with_device else ()),
            answer.verdict,
            answer.words or ("needs no GPU" if answer.device == ANY else ""),
        )
        for answer in found.sources
    )
    return Table(TITLE, "", columns, rows)


def machine(found: Diagnosis) -> Table:
    """A row for each fact, with its warning."""
    several = len(found.devices) > 1
    rows = tuple(
        (
            f"{fact.name}, {fact.device}" if several and fact.device else fact.name,
            f"{fact.value}. Warning: {fact.warning}" if fact.warning else fact.value,
        )
        for fact in found.facts
    )
    return Table("This machine", "What the sources depend on.", ("fact", "value"), rows)
