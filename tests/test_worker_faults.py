"""Every fault of a worker, for real: one sentence, earlier Runs as they were, and the next Run works."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks.worker_faults import FAULTS
from benchmarks.worker_scene import PATIENCE, Fault, NotHere, Scene, outcome_of, wait_for
from benchmarks.worker_storm import next_run, storm
from profiler.grid import Grid
from profiler.oom import OomKills
from profiler.store import save
from profiler.sweep import create
from profiler.sweep_job import LocalDevices, SweepJob
from profiler.worker import Worker
from tests.fake_runs import cpu_run
from tests.faults import spoil_answer

ROOT = Path(__file__).parents[1]
ON_GPU = (
    "segmentation fault in a counter's library",
    "CUDA context lost",
    "no memory for a tensor",
    "stopped in mid Run",
)


def stage(worker: Worker, runs: Path, notes: Path) -> Scene:
    save(cpu_run())
    notes.mkdir()
    return Scene(worker, runs, notes)


@pytest.fixture
def scene(cpu_worker: Worker, runs: Path, tmp_path: Path) -> Scene:
    """The CPU's worker, with an earlier Run on the disk."""
    return stage(cpu_worker, runs, tmp_path / "notes")


@pytest.fixture(scope="module")
def gpu_worker() -> Iterator[Worker]:
    worker = Worker("cuda:0")
    yield worker
    worker.stop()


def assert_survived(fault: Fault, scene: Scene, record_property: Callable[[str, object], None]) -> None:
    try:
        outcome = outcome_of(fault, scene)
    except NotHere as reason:
        pytest.skip(f"The fault cannot be brought about here: {reason}.")
    record_property("seconds_until_the_next_run", outcome.seconds)
    assert outcome.problems == () and outcome.runs_lost == 0
    assert outcome.seconds < PATIENCE  # 10 s on a machine that has nothing else to do


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault(scene: Scene, fault: Fault, record_property: Callable[[str, object], None]) -> None:
    assert_survived(fault, scene, record_property)


@pytest.mark.gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_a_fault_on_a_gpu(
    gpu_worker: Worker, runs: Path, tmp_path: Path, name: str, record_property: Callable[[str, object], None]
) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == name)
    assert_survived(fault, stage(gpu_worker, runs, tmp_path / "notes"), record_property)


def test_who_killed_it_is_told_by_the_kernels_count(
    scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The count is a fake here; where a control group can be made, test_a_fault has the real one."""
    count = tmp_path / "memory.events"
    count.write_text("low 0\noom 7\noom_kill 3\n")
    monkeypatch.setattr("profiler.oom.file_that_counts", lambda *_: count)
    pid = scene.pid
    job, note = scene.broken("sleep")
    wait_for(note.exists)
    count.write_text("low 0\noom 8\noom_kill 4\n")
    os.kill(pid, signal.SIGKILL)
    assert job.wait(PATIENCE).error == (
        "flash (phase: interpret) ended: the worker process was killed by the system, which ran out of memory. "
        "Choose a smaller problem or free some memory; run again."
    )


def test_blows_at_random_moments(scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    for blow in storm(scene, rounds=2, seed=int.from_bytes(os.urandom(4), "big")):
        assert blow.problems == (), blow
    status, _ = next_run(scene)
    assert (status.state, status.error) == ("done", "")


def test_a_job_that_waits_is_not_hurt(scene: Scene) -> None:
    pid = scene.pid
    struck, note = scene.broken("sleep")
    waits = scene.submit("naive", "flash")
    wait_for(note.exists)
    os.kill(pid, signal.SIGKILL)
    assert struck.wait(PATIENCE).state == "failed"
    assert (waits.wait(PATIENCE).state, len(waits.status().run_ids)) == ("done", 2)


def test_a_cell_whose_process_dies_with_its_answer_is_done(tmp_path: Path) -> None:
    tiny = {"kernel": ("naive",), "heads": (1,), "seq_len_q": (16,), "head_dim": (16,)}
    sweep, devices = create(Grid(tiny | {"seed": (0, 1)}), tmp_path / "sweep"), LocalDevices(["cpu"], 1)
    (worker,) = devices.cpu_workers
    worker.schedule(spoil_answer, "cut off").result(PATIENCE)
    status = SweepJob(sweep, devices).wait(PATIENCE)
    assert (status.state, status.done, status.failed, status.error) == ("done", 2, 0, "")


def test_a_program_ends_though_its_worker_is_stopped(tmp_path: Path) -> None:
    script = """
import os, signal
from profiler.worker import Worker
pid = Worker("cpu").schedule(os.getpid).result()
os.kill(pid, signal.SIGSTOP)
print(pid)
"""
    begun = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    assert time.monotonic() - begun < PATIENCE / 2 and done.stderr == ""
    assert not Path(f"/proc/{done.stdout.strip()}").exists()


def test_the_count_of_this_process_is_found_or_is_not_there() -> None:
    kills = OomKills(os.getpid())
    assert not kills.have_risen() and (kills.file is None or kills.file.is_file())
