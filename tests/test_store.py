"""Runs on disk: whole or not there, listed in spite of broken neighbours, and a sentence for every fault."""

import math
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from profiler import store
from profiler.codec import NotARun
from profiler.run import LaunchedKernel, Measurement
from profiler.run_document import MAX_FILE_BYTES
from profiler.store import (
    StoreError,
    list_runs,
    load,
    read_ordinary,
    require_writable,
    runs_folder,
    save,
    write_atomically,
)
from tests.fake_runs import cpu_run, flash_run, naive_run

ROOT = Path(__file__).parents[1]
WRITE = """
import sys
from pathlib import Path
from profiler.store import save
from tests.fake_runs import cpu_run
for number in range(60):
    save(cpu_run(run_id=f"{sys.argv[1]}-{number}"))
    save(cpu_run(run_id="shared"))
"""


def test_saved_and_there_after_a_restart(runs: Path) -> None:
    path = save(flash_run())
    assert path == runs / "fake-flash.json"
    assert load(path) == (flash_run(),)
    assert list_runs().runs == (flash_run(),)


def test_the_folder_is_a_setting_with_a_default_outside_the_repository(
    monkeypatch: pytest.MonkeyPatch, runs: Path, tmp_path: Path
) -> None:
    assert runs_folder() == runs
    monkeypatch.delenv("BYTESCOPE_RUNS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert runs_folder() == tmp_path / "data/bytescope/runs"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert runs_folder() == tmp_path / ".local/share/bytescope/runs"


def test_what_no_page_could_open_is_saved_without_its_launches(runs: Path) -> None:
    """257 launches are one more than a file may have; what the whole pass moved is kept, and why the rest is not."""
    single = tuple(Measurement("hbm_read_bytes", 1.0, "B", "cupti-range", launch=f"l{i}") for i in range(257))
    run = replace(
        cpu_run(),
        measurements=(*cpu_run().measurements, *single),
        kernels=(LaunchedKernel("l0", "k"),),
    )
    (found,) = load(save(run))
    reason = (
        "left out of the Run, since its file could not be opened: runs[0] has more than 5000 measurements or 256 "
        "launches."
    )
    lost = Measurement("hbm_read_bytes", None, "B", "cupti-range", reason)
    assert found == replace(cpu_run(), measurements=(*cpu_run().measurements, lost))


@pytest.mark.parametrize("value", [-5.0, 1e30, math.nan])
def test_a_value_that_no_page_could_open_is_not_saved(runs: Path, value: float) -> None:
    impossible = Measurement("hbm_read_bytes", value, "B", "cupti-sampling")
    run = replace(cpu_run(), measurements=(*cpu_run().measurements, impossible))
    with pytest.raises(StoreError, match=r"^The Run of flash is not saved: .+ Please report this line\.$"):
        save(run)
    assert not runs.exists()


def test_newest_first_and_at_most_so_many(runs: Path) -> None:
    for age, run in enumerate((naive_run(), flash_run(), cpu_run())):
        path = save(run)
        os.utime(path, (time.time() - age, time.time() - age))
    assert [run.id for run in list_runs().runs] == ["fake-naive", "fake-flash", "fake-cpu"]
    assert [run.id for run in list_runs(most=1).runs] == ["fake-naive"]


def test_no_folder_is_no_runs(runs: Path) -> None:
    assert not runs.exists()
    assert list_runs() == store.Listing((), ())


def test_broken_files_are_named_and_the_others_listed(runs: Path) -> None:
    whole = save(cpu_run()).read_text()
    (runs / "cut.json").write_text(whole[: len(whole) // 2])
    (runs / "empty.json").write_bytes(b"")
    (runs / "newer.json").write_text(whole.replace('"format_version": 1', '"format_version": 9'))
    (runs / "folder.json").mkdir()
    (runs / "gone.json").symlink_to(runs / "nowhere")
    (runs / "notes.txt").write_text("not looked at")
    listing = list_runs()
    assert listing.runs == (cpu_run(),)
    assert sorted(fault.partition(":")[0] for fault in listing.faults) == [
        "cut.json",
        "empty.json",
        "folder.json",
        "gone.json",
        "newer.json",
    ]
    assert any("reads up to 1" in fault for fault in listing.faults)
    assert all(fault.endswith(".") and "\n" not in fault for fault in listing.faults)


def test_a_file_over_the_limit_is_refused_unread(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs.mkdir()
    large = runs / "large.json"
    large.touch()
    os.truncate(large, MAX_FILE_BYTES + 2**20)
    monkeypatch.setattr(Path, "read_bytes", lambda self: pytest.fail("was read"))
    with pytest.raises(NotARun, match=r"^large\.json is 65 MiB; Run files stay under 64 MiB\.$"):
        load(large)


def test_a_file_that_is_not_there_is_a_sentence(runs: Path) -> None:
    with pytest.raises(StoreError, match=r"^no\.json could not be read: No such file or directory\.$"):
        load(runs / "no.json")


@pytest.mark.parametrize("kind", ["file", "below a file", "device"])
def test_an_unwritable_folder_is_a_sentence(kind: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    folder = {"file": tmp_path / "file", "below a file": tmp_path / "file/runs", "device": Path("/dev/null")}[kind]
    with pytest.raises(StoreError, match=rf"^The Run could not be saved in {folder}: .+\.$"):
        save(cpu_run(), folder)


def test_a_full_disk_is_a_sentence_and_leaves_nothing(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(naive_run())

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"No space left on device\.$"):
        save(flash_run())
    assert [path.name for path in runs.iterdir()] == ["fake-naive.json"]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_fault_in_between_leaves_the_old_file(moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "run.json"
    write_atomically(path, "old")

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, moment, stop)
    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, "new and longer")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_kill_in_between_leaves_no_half_file(runs: Path) -> None:
    """A process that dies while it writes, before the rename: its part is never listed."""
    script = """
import os, signal
from profiler.store import save
from tests.fake_runs import cpu_run
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
save(cpu_run())
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, check=False)
    assert done.returncode == -9
    assert [path.suffix for path in runs.iterdir()] == [".part"]
    assert list_runs() == store.Listing((), ())


def test_two_processes_write_at_once_while_one_reads(runs: Path) -> None:
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, name], cwd=ROOT) for name in ("a", "b")]
    while any(writer.poll() is None for writer in writers):
        assert list_runs().faults == ()
    assert [writer.returncode for writer in writers] == [0, 0]
    assert sorted(run.id for run in list_runs().runs) == sorted(
        ["shared", *(f"{name}-{number}" for name in ("a", "b") for number in range(60))]
    )


@pytest.mark.parametrize("read", [load, lambda path: list_runs(path.parent)], ids=["load", "list"])
def test_a_name_in_any_script(read: Callable[[Path], object], tmp_path: Path) -> None:
    path = tmp_path / "прогон 実行 €.json"
    path.write_text("{}")
    if read is load:
        with pytest.raises(NotARun):
            load(path)
    else:
        (fault,) = list_runs(tmp_path).faults
        assert fault.startswith("прогон 実行 €.json: This is not a Run file")


def test_a_name_that_is_not_utf8_is_a_fault_that_can_be_printed(runs: Path) -> None:
    whole = save(cpu_run())
    shutil.copy(whole, os.fsencode(runs) + b"/caf\xe9.json")
    (runs / "two\nlines.json").write_text("{}")
    listing = list_runs()
    assert listing.runs == (cpu_run(),)
    assert sorted(fault.partition(":")[0] for fault in listing.faults) == ["caf\ufffd.json", "two lines.json"]
    assert "caf\ufffd.json: It cannot be read: its name is not UTF-8; rename it." in listing.faults
    with pytest.raises(StoreError, match="gone\ufffd"):
        load(runs / os.fsdecode(b"gone\xff.json"))


def test_what_is_no_ordinary_file_is_not_read(tmp_path: Path) -> None:
    """A pipe without a writer, and a device without an end."""
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "zero.json").symlink_to("/dev/zero")
    for name in ("pipe.json", "zero.json"):
        with pytest.raises(NotARun, match=f"^{name} is not a file\\.$"):
            read_ordinary(tmp_path / name, 100, "notes")


def test_what_a_killed_process_left_half_written_goes_after_an_hour(tmp_path: Path) -> None:
    old, young, other = (tmp_path / name for name in (".run-a.x.part", ".run-b.x.part", "mine.part"))
    for path in (old, young, other):
        path.write_text("{")
    for path in (old, other):
        os.utime(path, (time.time() - 3_700, time.time() - 3_700))
    require_writable(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [young.name, other.name]
