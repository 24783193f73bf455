"""Notes of what a killed server was at: told once, to the right browser, and gone where nothing is missing."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from app.unfinished import FOLDER, Note, keep_until_over, sentence, take

ROOT = Path(__file__).resolve().parent.parent
NOTE = Note("naive and flash on a problem", ("naive", "flash"), "browser", {"seq_len_q": 2048})
WRITE = """
import os, threading
from app.unfinished import Note, keep_until_over
class Task:
    def wait(self): threading.Event().wait()
keep_until_over(Note("naive and flash on a problem", ("naive", "flash"), "browser", {"seq_len_q": 2048}), Task())
os.kill(os.getpid(), 9)
"""


class Task:
    def __init__(self) -> None:
        self.over = threading.Event()

    def wait(self) -> None:
        self.over.wait(60)


def test_a_note_of_a_process_that_was_killed_is_told_once_to_its_browser(runs: Path) -> None:
    assert subprocess.run([sys.executable, "-c", WRITE], cwd=ROOT, check=False).returncode == -9
    assert take("another") == []
    (note,) = take("browser")
    assert (note.what, note.kernels, note.form) == (NOTE.what, NOTE.kernels, NOTE.form) and note.begun > 0
    assert take("browser") == [] and not list((runs / FOLDER).iterdir())


def test_a_note_stays_while_its_process_lives_and_goes_with_its_task(runs: Path) -> None:
    task = Task()
    keep_until_over(NOTE, task)
    assert take("browser") == [] and len(list((runs / FOLDER).iterdir())) == 1
    task.over.set()
    for thread in threading.enumerate():
        if thread.name == "unfinished":
            thread.join(60)
    assert not list((runs / FOLDER).iterdir())


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"what": 1, "kernels": []}', '{"what": "x", "kernels": 3}', "[" * 9999]
)
def test_what_is_no_note_is_removed(runs: Path, text: str) -> None:
    (runs / FOLDER).mkdir(parents=True)
    (runs / FOLDER / "a.json").write_text(text)
    assert take("browser") == [] and not list((runs / FOLDER).iterdir())


def test_a_disk_that_takes_no_note_costs_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BYTESCOPE_RUNS", str(tmp_path / "file"))
    keep_until_over(NOTE, Task())
    assert take("browser") == []


@pytest.mark.parametrize(
    ("finished", "told"),
    [
        ([], "The server was ended while it measured naive and flash on a problem. Press Run to measure again."),
        (
            ["naive"],
            "The server was ended while it measured naive and flash on a problem. naive was finished and is shown. "
            "Press Run to measure again.",
        ),
        (["flash", "naive"], ""),
    ],
)
def test_the_sentence(finished: list[str], told: str) -> None:
    assert sentence(NOTE, finished) == told
    assert sentence(Note("a sweep"), finished).endswith("Go on with it on the Runs page; nothing is repeated.")


def test_a_pipe_among_the_notes_keeps_no_page_from_opening(runs: Path) -> None:
    (runs / "unfinished").mkdir(parents=True)
    os.mkfifo(runs / "unfinished" / "x.json")
    assert take("anybody") == []
