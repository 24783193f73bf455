"""A sweep that runs for real on the CPU's workers: killed, hung, stopped, taken up again, out of disk."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kernels.problem import Refused
from profiler import compile_ahead, store, sweep_job
from profiler.compile_ahead import configurations_of
from profiler.grid import Grid
from profiler.store import load
from profiler.sweep import create, open_sweep
from profiler.sweep_job import LocalDevices, SweepJob
from profiler.turns import SweepStatus, Turns
from profiler.worker import Worker
from tests.faults import break_flash

ROOT = Path(__file__).parents[1]
PATIENCE = 90.0
TINY = {"heads": (1,), "seq_len_q": (16,), "head_dim": (16,)}


def wait(job: SweepJob) -> SweepStatus:
    status = job.wait(PATIENCE)
    assert status.is_over, status
    return status


def once(devices: LocalDevices, fault: str) -> None:
    """The first flash cell of each worker meets a fault; the processes that replace those are sound."""
    for worker in devices.cpu_workers:
        worker.schedule(break_flash, fault).result(PATIENCE)


def naive(seeds: int) -> Grid:
    return Grid(TINY | {"kernel": ("naive",), "seed": tuple(range(seeds))})


def flash(*widths: int) -> Grid:
    return Grid(TINY | {"BLOCK_M": (16,), "BLOCK_N": (16,), "head_dim": widths})


def test_every_cell_has_its_run(tmp_path: Path) -> None:
    sweep = create(Grid(TINY | {"kernel": ("naive", "flash"), "BLOCK_M": (16, 48), "BLOCK_N": (16,)}), tmp_path / "s")
    status = wait(SweepJob(sweep, LocalDevices(["cpu"], 2)))
    assert (status.state, status.cells, status.done, status.failed, status.error) == ("done", 4, 2, 2, "")
    for cell in sweep.cells:
        path = sweep.runs / f"{sweep.run_id(cell)}.json"
        assert path.exists() == (cell.workload is not None)
        if cell.workload is not None:
            (run,) = load(path)
            assert (run.workload, run.id, run.request) == (cell.workload, sweep.run_id(cell), sweep.plan.id)
            assert run.value("relative_error") is not None
    assert {f.reason for f in sweep.failed().values()} == {
        "BLOCK_M is 48; it must be a power of two up to 1024, such as 32."
    }


def test_nothing_is_repeated(tmp_path: Path) -> None:
    sweep = create(naive(5), tmp_path / "s")
    assert wait(SweepJob(sweep, LocalDevices(["cpu"], 1))).finished == 5
    before = {path: path.stat().st_mtime_ns for path in sweep.runs.iterdir()}
    gone = sweep.runs / f"{sweep.run_id(sweep.cells[3])}.json"
    gone.unlink()
    status = wait(SweepJob(open_sweep(sweep.folder), LocalDevices(["cpu"], 1)))
    assert (status.finished, status.done) == (1, 5)
    after = {path: path.stat().st_mtime_ns for path in sweep.runs.iterdir()}
    assert after.keys() == before.keys() and after[gone] > before[gone]
    assert {p: t for p, t in after.items() if p != gone} == {p: t for p, t in before.items() if p != gone}


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("kill", "killed by SIGKILL"),
        ("exit", "left with exit code 3"),
        ("raise", "the kernel is broken"),
        ("out of memory", "ran out of memory: can't allocate memory"),
    ],
)
def test_a_cell_that_breaks_is_kept_as_failed_and_the_rest_goes_on(tmp_path: Path, fault: str, words: str) -> None:
    sweep = create(flash(16, 32, 64), tmp_path / "s")
    devices = LocalDevices(["cpu"], 1)
    once(devices, fault)
    status = wait(SweepJob(sweep, devices))
    broken = 3 if fault in ("raise", "out of memory") else 1  # the process lives on, and stays broken
    assert (status.state, status.done, status.failed) == ("done", 3 - broken, broken)
    assert words in sweep.failed()[sweep.cells[0].id].reason
    # Tried again it succeeds, and is no longer a failure.
    assert wait(SweepJob(sweep, LocalDevices(["cpu"], 1), again=True)).done == 3
    assert sweep.failed() == {}


def test_a_cell_that_hangs_is_stopped_after_its_time(tmp_path: Path) -> None:
    sweep = create(flash(16, 32), tmp_path / "s")
    devices = LocalDevices(["cpu"], 1, timeout=3.0)
    once(devices, "sleep")
    status = wait(SweepJob(sweep, devices))
    assert (status.state, status.done, status.failed) == ("done", 1, 1)
    assert "was stopped after 3 s" in sweep.failed()[sweep.cells[0].id].reason


def test_stopped_and_taken_up(tmp_path: Path) -> None:
    sweep = create(naive(200), tmp_path / "s")
    job = SweepJob(sweep, LocalDevices(["cpu"], 2))
    while job.status().done < 5:
        time.sleep(0.005)
    job.stop()
    status = wait(job)
    assert status.state == "stopped" and 5 <= status.done < 200 and status.failed == 0
    assert len(sweep.done()) == status.done
    status = wait(SweepJob(sweep, LocalDevices(["cpu"], 2)))
    assert (status.state, status.done, status.failed) == ("done", 200, 0)


def test_killed_with_signal_9_and_taken_up(tmp_path: Path) -> None:
    folder = tmp_path / "s"
    command = [sys.executable, "-m", "profiler", "sweep", "--kernel", "naive", "--heads", "1", "--seq-len", "16"]
    command += ["--head-dim", "16", "--seed", "0:199", "--workers", "2", "--out", str(folder)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while len(list((folder / "runs").glob("*.json")) if folder.exists() else []) < 5:
        time.sleep(0.005)
        assert process.poll() is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    time.sleep(1.0)  # its workers end with it
    sweep = open_sweep(folder)
    before = {path: path.stat().st_mtime_ns for path in sweep.runs.glob("[!.]*.json")}
    assert 5 <= len(before) < 200
    status = wait(SweepJob(sweep, LocalDevices(["cpu"], 2)))
    assert (status.state, status.done, status.finished) == ("done", 200, 200 - len(before))
    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_a_second_process_may_not_run_the_same_sweep(tmp_path: Path) -> None:
    sweep = create(naive(3), tmp_path / "s")
    with sweep.held(), pytest.raises(Refused, match="Another process is running the sweep"):
        SweepJob(sweep, LocalDevices(["cpu"], 1))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """A file system of its own with room for so many bytes; skipped where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def make(size: int) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
        if subprocess.run(command, capture_output=True, check=False).returncode != 0:
            pytest.skip("This process may not mount a small file system.")
        return folder

    yield make
    subprocess.run(["umount", "-l", str(folder)], capture_output=True, check=False)


def test_a_full_disk_ends_the_sweep_and_costs_nothing_that_was_written(
    small_disk: Callable[[int], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # of the workers, which keep there what the disk does not take
    monkeypatch.setattr(store, "ROOM_BYTES", 0)  # it is to fill up later
    sweep = create(naive(40), small_disk(128 * 1024) / "s")
    status = wait(SweepJob(sweep, LocalDevices(["cpu"], 2)))
    assert status.state == "failed" and "No space left on device" in status.error
    assert 0 < status.done < 40 and status.failed == 0
    runs = [load(path) for path in sweep.runs.glob("[!.]*.json")]
    assert len(runs) == status.done == len(sweep.done())


def test_a_worker_that_cannot_start_fails_no_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "torch.py").write_text("raise ImportError('no such torch')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path / 'broken'}{os.pathsep}{ROOT}")
    monkeypatch.syspath_prepend(str(tmp_path / "broken"))
    sweep = create(naive(3), tmp_path / "s")
    status = wait(SweepJob(sweep, LocalDevices(["cpu"], 1)))
    assert (status.state, status.done, status.failed) == ("failed", 0, 0)
    assert "The worker cannot start: ImportError: no such torch" in status.error
    assert len(sweep.left()) == 3


def test_a_device_that_is_not_there_fails_no_cell(tmp_path: Path) -> None:
    sweep = create(naive(3), tmp_path / "s")
    status = wait(SweepJob(sweep, LocalDevices(["cuda:9"])))
    assert status.state == "failed" and "There is no GPU cuda:9 here" in status.error
    assert status.failed == 0 and len(sweep.left()) == 3


@pytest.mark.parametrize(("workers", "timeout", "words"), [(0, 1.0, "0 workers"), (1, 0.0, "The timeout is 0 s")])
def test_what_cannot_run_is_refused(workers: int, timeout: float, words: str) -> None:
    with pytest.raises(Refused, match=words):
        LocalDevices(["cpu"], workers, timeout)


def test_an_executor_that_breaks_is_one_sentence(tmp_path: Path) -> None:
    class Broken:
        title, workers, on_gpu = "broken", 1, False

        def run(self, turns: Turns) -> None:
            raise KeyError("x")

        def stop(self) -> None: ...

    sweep = create(naive(2), tmp_path / "s")
    status = wait(SweepJob(sweep, Broken()))
    assert (status.state, status.error) == ("failed", "The sweep cannot go on: KeyError: 'x'")
    with sweep.held():
        pass


def test_a_gpu_is_shared_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lock of a GPU is let go between cells once it was held for a while; here a CPU plays the GPU."""
    told: list[str] = []
    monkeypatch.setattr(sweep_job, "HELD_SECONDS", 0.0)
    monkeypatch.setattr(sweep_job, "worker_for", lambda device: Worker("cpu"))
    monkeypatch.setattr(sweep_job, "CPU", "no device")  # so that the lock is asked for
    ask = sweep_job.Share._ask

    def listen(self: sweep_job.Share, function: Callable[..., object], *arguments: object, **how: float) -> object:
        told.append(function.__name__)
        return ask(self, function, *arguments, **how)

    monkeypatch.setattr(sweep_job.Share, "_ask", listen)
    sweep = create(naive(2), tmp_path / "s")
    devices = LocalDevices(["cuda:0"])
    assert wait(SweepJob(sweep, devices)).done == 2
    measured = ["admit_all", "measure_and_save"]
    assert told == ["describe", "lock", *measured, "unlock", "lock", *measured]
    for worker in devices._workers:
        worker.stop()


def test_what_is_compiled_ahead_is_what_is_measured() -> None:
    grid = Grid({"kernel": ("naive", "flash", "cudnn"), "BLOCK_M": (64, 48), "BLOCK_N": (32, 64), "head_dim": (64,)})
    found = configurations_of(grid.cells(), (9, 0))
    tiles = [(one.kernel, one.tile.BLOCK_M, one.tile.BLOCK_N) for one in found]
    # naive and cudnn are no Triton kernels, and 48 is no tile.
    assert tiles == [("flash", 64, 32), ("flash", 64, 64)]
    assert {one.compute_capability for one in found} == {(9, 0)}
    (workload,) = (c.workload for c in grid.cells() if c.workload and c.workload.tile == found[0].tile)
    assert workload is not None and (workload.kernel, workload.problem) == (found[0].kernel, found[0].problem)


def test_nothing_is_compiled_for_a_cpu_and_once_for_each_capability(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    class Job:
        def __init__(self, chosen: object, processes: int) -> None:
            made.append(chosen)

        def stop(self) -> None:
            made.append("stopped")

    monkeypatch.setattr(compile_ahead, "CompileJob", Job)
    ahead, cells = compile_ahead.CompileAhead(), flash(64).cells()
    for capability in (None, (9, 0), (9, 0), (8, 0)):
        ahead.start(cells, capability)
    ahead.stop()
    assert made == [configurations_of(cells, (9, 0)), configurations_of(cells, (8, 0)), "stopped", "stopped"]
