"""Files that are cut short, disks that fail while they are written to, folders that go or turn into files."""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.history import read_folder
from kernels.problem import AttentionProblem, TileConfig
from profiler import run_index
from profiler.catalogue import catalogue, count
from profiler.codec import NotARun
from profiler.resource_cache import ResourceCache
from profiler.resources import Resources, configurations
from profiler.store import StoreError, list_runs, load, save
from profiler.sweep import Grid, create
from profiler.worker import Worker
from profiler.workload import CPU, workloads
from tests.fake_runs import cpu_run
from tests.nvml_stub import COMPILER
from tests.small_disk import SmallDisk, disk

__all__ = ["disk"]
ROOT = Path(__file__).parents[1]
PATIENCE = 60.0
STEP = 64  # bytes from one cut to the next
TINY = AttentionProblem(1, 1, 1, 16, 16, 16)
NAIVE = workloads(("naive",), TINY, TileConfig(16, 16), CPU)


def test_a_run_file_cut_anywhere_is_named_and_the_others_are_listed(runs: Path) -> None:
    whole = save(cpu_run()).read_bytes()
    names = []
    for length in range(0, len(whole) - 1, STEP):
        names.append(f"cut-{length:06}.json")
        (runs / names[-1]).write_bytes(whole[:length])
        with pytest.raises(NotARun, match=r"^This is not a Run file.*\.$"):
            load(runs / names[-1])
    assert len(names) > 50
    with catalogue([runs]) as saved:
        told = saved.faults
        assert count(saved.runs) == 1
    listing, shown = list_runs(), read_folder(runs)
    assert listing.runs == (cpu_run(),) and [entry.run_id for entry in shown.entries] == [cpu_run().id]
    for faults in (told, listing.faults, shown.faults):
        assert sorted(fault.partition(":")[0] for fault in faults) == names
        assert all(fault.endswith(".") and "\n" not in fault for fault in faults)


def test_a_cache_cut_anywhere_is_none(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is kept of Runs and of compiled kernels is made again, never believed in part."""
    monkeypatch.setattr("profiler.catalogue.WORTH_KEEPING_BYTES", -1)
    monkeypatch.setattr(run_index, "SETTLED_NANOSECONDS", 0)
    save(cpu_run())
    with catalogue([runs]) as saved:
        expected = saved.runs.fetchall()
    index = run_index.index_path(runs)
    whole = index.read_bytes()
    for length in range(0, len(whole), max(STEP, len(whole) // 40)):
        index.write_bytes(whole[:length])
        assert not run_index._is_whole(index)
    with catalogue([runs]) as saved:
        assert saved.runs.fetchall() == expected
    (one,) = configurations("flash", TINY, [TileConfig(16, 16)], [(9, 0)])
    cache, found = ResourceCache(tmp_path / "resources", "3.7.1"), Resources(one, "3.7.1", reason="none")
    cache.keep(found)
    digest = cache.keep_code(bytes(range(256)) * 64)
    for path, is_gone in (
        (cache._path(one), lambda: cache.find(one) is None),
        (cache._code_path(digest), lambda: cache.find_code(digest) is None),
    ):
        whole = path.read_bytes()
        for length in range(0, len(whole), STEP):
            path.write_bytes(whole[:length])
            assert is_gone()
    cache.keep(found)
    assert cache.find(one) == found


@pytest.mark.parametrize("call", ["write", "fsync"])
@pytest.mark.parametrize("fault", [errno.EIO, errno.EDQUOT], ids=["EIO", "EDQUOT"])
def test_a_disk_that_fails_or_a_quota_leaves_what_was_there(fault: int, call: str, runs: Path, tmp_path: Path) -> None:
    if COMPILER is None:
        pytest.skip("There is no C compiler to make a failing disk with.")
    library = tmp_path / "faults.so"
    source = Path(__file__).with_name("disk_faults.c")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True, timeout=60)
    kept = save(cpu_run())
    before = kept.read_bytes()
    script = "from profiler.store import save; from tests.fake_runs import cpu_run; save(cpu_run())"
    environment = {"LD_PRELOAD": str(library), "FAULT_PATH": f"{runs}/", "FAULT_ERRNO": str(fault), "FAULT_CALL": call}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env=os.environ | environment, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    sentence = f"profiler.store.StoreError: The Run could not be saved in {runs}: {os.strerror(fault)}."
    assert done.stderr.splitlines()[-1] == sentence
    assert kept.read_bytes() == before and list(runs.iterdir()) == [kept]


@pytest.mark.parametrize("becomes_file", [False, True], ids=["gone", "a file now"])
def test_a_job_whose_temporary_folder_goes_is_measured_all_the_same(
    becomes_file: bool, cpu_worker: Worker, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    job = cpu_worker.submit(NAIVE)
    (folder,) = tmp_path.glob("bytescope-*")
    shutil.rmtree(folder)
    if becomes_file:
        folder.touch()
    while not job.status().is_over:
        job.wait(0.01)
    assert (job.status().state, job.status().error) == ("done", "")
    assert [run.workload for run in list_runs().runs] == list(NAIVE)


def test_a_folder_of_runs_that_goes_is_made_again_and_one_that_became_a_file_is_told(
    cpu_worker: Worker, runs: Path
) -> None:
    assert cpu_worker.submit(NAIVE).wait(PATIENCE).state == "done"
    shutil.rmtree(runs)
    assert cpu_worker.submit(NAIVE).wait(PATIENCE).state == "done" and len(list_runs().runs) == 1
    shutil.rmtree(runs)
    runs.touch()
    status = cpu_worker.submit(NAIVE).wait(PATIENCE)
    assert (status.state, status.error) == ("failed", f"Nothing could be written to {runs}: File exists.")
    assert read_folder(runs).faults == (f"{runs.name} could not be listed: Not a directory.",)


def test_a_sweep_whose_notes_cannot_be_removed_goes_on(tmp_path: Path) -> None:
    sweep = create(Grid({"seed": (1, 2)}), tmp_path / "sweep")
    (cell, _) = sweep.cells
    sweep.note_failure(cell, "It broke.")
    shutil.rmtree(sweep.folder / "failed")
    (sweep.folder / "failed").touch()
    sweep.forget_failure(cell)
    with pytest.raises(StoreError, match=r"could not be written: Not a directory\.$"):
        sweep.note_failure(cell, "It broke.")


def test_a_folder_for_temporary_files_that_takes_nothing_is_a_sentence(
    disk: SmallDisk, runs: Path, cpu_worker: Worker, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(cpu_run())
    (disk.folder / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(disk.folder / "file"))
    sentence = r"^No folder for temporary files could be made: Not a directory\. Free some space there, or name another"
    with pytest.raises(StoreError, match=sentence), catalogue([runs]):
        pass
    with pytest.raises(StoreError, match=sentence):
        cpu_worker.submit(NAIVE)
    # A full one costs only the progress.
    monkeypatch.setattr(tempfile, "tempdir", str(disk.folder))
    disk.fill()
    if disk.is_mounted:
        assert cpu_worker.submit(NAIVE).wait(PATIENCE).state == "done"
    with catalogue([runs]) as saved:
        assert count(saved.runs) == 1 + disk.is_mounted


def test_a_page_says_why_a_job_cannot_begin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cpu_worker: Worker
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))

    def script() -> None:
        import streamlit as st

        from app import session
        from tests.test_disk_broken import NAIVE

        session.start(NAIVE, 60.0)
        notice = session.notice()
        st.text(notice.text if notice else "")

    at = AppTest.from_function(script, default_timeout=60).run()
    assert not at.exception
    assert at.text[0].value.startswith("No folder for temporary files could be made: Not a directory.")
