"""Temporary folders: gone with the command that made them, however it ends, and never another live process's."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from profiler import scratch as scratch_module
from profiler.scratch import LOCK, Scratch, remove_leftovers, scratch
from profiler.stopped import SIGNALS, stopped_by_signals
from tests.small_disk import NOBODY

ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
HOLD = (
    "from profiler.scratch import Scratch; import sys; one = Scratch(); print(one.folder, flush=True); sys.stdin.read()"
)
Start = Callable[[str], "subprocess.Popen[str]"]
# A command that measures until it is stopped: flash is interpreted for a while.
RUN = "run --device cpu --kernel flash --heads 8 --seq-len 512 --head-dim 64 --block-m 16 --block-n 16"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of processes started from now on."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


@pytest.fixture
def start(place: Path) -> Iterator[Start]:
    started = []

    def start(script: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-c", script], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def aged(folder: Path) -> Path:
    """The folder, as if it had been made an hour ago."""
    os.utime(folder / LOCK, (time.time() - 3600, time.time() - 3600))
    return folder


def test_a_folder_goes_with_its_block_and_with_its_process(place: Path, start: Start) -> None:
    with scratch() as folder:
        (folder / "file").touch()
    assert not folder.exists()
    one = start(HOLD)
    made = Path(line(one))
    assert made.parent == place and made.is_dir()
    one.communicate()  # its input ends, and so does it
    assert not made.exists()


def test_what_the_dead_left_is_removed_and_what_the_living_hold_is_not(place: Path, start: Start) -> None:
    alive, dead, young = start(HOLD), start(HOLD), start(HOLD)
    held, left, new = (Path(line(one)) for one in (alive, dead, young))
    for one in (dead, young):
        one.kill()
        one.communicate()
    aged(held), aged(left)
    (left / "half").mkdir()
    (place / "bytescope-locks").mkdir()
    (place / "bytescope-link").symlink_to(held)
    remove_leftovers(place)
    assert {path.name for path in place.iterdir()} == {held.name, new.name, "bytescope-locks", "bytescope-link"}
    assert held.is_dir() and alive.poll() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="Only root can make what another user left.")
def test_what_another_user_left_stays(place: Path, start: Start) -> None:
    one = start(HOLD)
    left = Path(line(one))
    one.kill()
    one.communicate()
    os.chown(aged(left), NOBODY, NOBODY)
    remove_leftovers(place)
    assert left.is_dir()


def test_somebody_who_clears_the_folder_for_temporary_files_is_no_fault(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch_module.tempfile, "tempdir", str(place))
    one = Scratch()
    shutil.rmtree(one.folder)
    one.remove()
    remove_leftovers(place / "nowhere")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name)
def test_a_command_that_is_ended_leaves_nothing_for_long(place: Path, number: signal.Signals) -> None:
    """SIGKILL lets nobody clean up: the next command does it."""
    words = [sys.executable, "-m", "profiler", *RUN.split()]
    with subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as command:
        end = time.monotonic() + PATIENCE
        while not (notes := list(place.glob("bytescope-*/progress.json"))):
            assert command.poll() is None and time.monotonic() < end
            time.sleep(0.02)
        folder = notes[0].parent
        command.send_signal(number)
        out, err = command.communicate(timeout=PATIENCE)
    assert out == "" and "Traceback" not in err
    if number != signal.SIGKILL:
        assert command.returncode == 128 + number
        assert err.splitlines() == ["Stopped. Runs that were finished are kept."]
        assert not folder.exists()
        return
    assert command.returncode == -number and folder.exists()
    aged(folder)
    subprocess.run([sys.executable, "-m", "profiler", "list"], cwd=ROOT, check=True, timeout=60, capture_output=True)
    assert list(place.glob("bytescope-*")) == []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_is_taken_for_ctrl_c_once(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt), stopped_by_signals() as received:
        os.kill(os.getpid(), number)
        time.sleep(PATIENCE)
    assert received == [number] and {signal.getsignal(one) for one in SIGNALS} == {signal.SIG_DFL}


def test_a_signal_that_is_ignored_stays_so() -> None:
    """As nohup has it."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with stopped_by_signals() as received:
            os.kill(os.getpid(), signal.SIGHUP)
        assert received == [] and signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
