"""The command line in this process, and what it answers."""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from profiler import __main__ as cli


@dataclass(frozen=True)
class Answer:
    code: int
    out: str
    err: str


Command = Callable[..., Answer]


def answer_to(words: Sequence[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Answer:
    """What `python -m profiler words` says, and its exit code."""
    monkeypatch.setattr(sys, "argv", ["profiler", *words])
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        cli.main()
    shown = capsys.readouterr()
    return Answer(int(end.value.code or 0), shown.out, shown.err)
