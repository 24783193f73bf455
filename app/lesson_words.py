"""What the walk-through says in one language: eleven titles and texts, and the words of its figures."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class StepWords:
    """One step: its title, two to four sentences, and what the link below them is called; {slots} take numbers."""

    title: str
    text: str
    link: str


@dataclass(frozen=True)
class Words:
    """One language. `notes` say how a figure was obtained, `labels` are the words in tables and charts.

    `headline` and `detail` open the page. Every language has the same steps, keys and {slots}. `lead` stands before a
    reason, since kernels and counters give theirs in English; empty where that needs no word.
    """

    language: str
    code: str  # BCP 47, for the browser
    headline: str
    detail: str
    steps: tuple[StepWords, ...]
    notes: Mapping[str, str]
    labels: Mapping[str, str]
    space: str  # between two sentences
    lead: str = ""

    def quoted(self, reason: str) -> str:
        """A reason that a kernel or a counter gave, told as quoted; empty without one."""
        return self.lead + reason if reason else ""
