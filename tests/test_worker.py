"""Jobs through a real child process: end to end, killed, timed out, stopped, broken, queued; and who is left over."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import TimeoutError
from itertools import pairwise
from pathlib import Path

import pytest
from pebble import ProcessExpired

from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler import child
from profiler.device import why_no_gpu
from profiler.failures import explain
from profiler.gpu_errors import OutOfGpuMemory
from profiler.store import StoreError, list_runs, load
from profiler.worker import Job, JobStatus, Worker, worker_for
from profiler.workload import CPU, Workload, workloads
from tests.faults import REASON, break_flash, mend_flash

ROOT = Path(__file__).parents[1]
SMALL = AttentionProblem(1, 2, 1, 33, 40, 16, causal=True)
TILE = TileConfig(16, 16)
FLASH = workloads(("flash",), SMALL, TILE, CPU)
BOTH = workloads(("naive", "flash"), SMALL, TILE, CPU)
PATIENCE = 60.0


@pytest.fixture
def flash_fails(cpu_worker: Worker) -> Iterator[Worker]:
    """The worker, and flash in it mended afterwards."""
    yield cpu_worker
    cpu_worker.schedule(mend_flash).result(PATIENCE)


def wait(job: Job) -> JobStatus:
    status = job.wait(PATIENCE)
    assert status.is_over, status
    return status


def wait_for(job: Job, phase: str) -> JobStatus:
    end = time.monotonic() + PATIENCE
    while (status := job.status()).phase != phase:
        assert not status.is_over and time.monotonic() < end, status
        time.sleep(0.01)
    return status


def child_of(worker: Worker) -> int:
    return int(worker.schedule(os.getpid).result(PATIENCE))


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def assert_works(worker: Worker) -> None:
    status = wait(worker.submit(FLASH))
    assert (status.state, status.error) == ("done", "")


def test_naive_and_flash_end_to_end(cpu_worker: Worker, runs: Path) -> None:
    job = cpu_worker.submit(BOTH)
    seen = []
    while not (status := job.status()).is_over:
        seen.append(status)
        time.sleep(0.002)
    assert (status.state, status.error, status.phase) == ("done", "", "done")
    assert status.done == status.total > 0
    naive, flash = (load(runs / f"{run_id}.json")[0] for run_id in status.run_ids)
    assert (naive.workload, flash.workload) == BOTH
    assert naive.request == flash.request and naive.id != flash.id
    assert {path.stem for path in runs.iterdir()} == set(status.run_ids)
    order = ["waiting", "running", "done"]
    assert [order.index(s.state) for s in seen] == sorted(order.index(s.state) for s in seen)
    all_seen = [*seen, status]
    rising: dict[str, list[float]] = {
        "seconds": [s.seconds for s in all_seen],
        "part done": [s.done / s.total for s in all_seen],
        "runs": [len(s.run_ids) for s in all_seen],
    }
    for name, values in rising.items():
        assert values == sorted(values), name
    assert all(0 <= s.done <= s.total for s in seen)
    assert {"naive", "flash"} >= {s.kernel for s in seen}


@pytest.mark.parametrize(
    ("problem", "tile"),
    [
        (AttentionProblem(1, 1, 1, 1, 1, 1), TileConfig(1, 1)),
        (AttentionProblem(1, 1, 1, 5, 2, 3, "float32", causal=True), TileConfig(4, 4)),
        (AttentionProblem(1, 2, 2, 1, 20, 63, "bfloat16", True, 3), TileConfig(8, 8)),
        (AttentionProblem(1, 1, 1, 16, 16, 64), TileConfig(4, 4)),
    ],
    ids=str,
)
def test_odd_problems(cpu_worker: Worker, problem: AttentionProblem, tile: TileConfig) -> None:
    status = wait(cpu_worker.submit(workloads(("naive", "flash"), problem, tile, CPU)))
    assert (status.state, status.error) == ("done", "")
    for run in list_runs().runs:
        assert (run.value("relative_error") or 0.0) < 1e-2


def test_a_folder_in_any_script(cpu_worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "прогоны 実行 €"
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    assert_works(cpu_worker)
    assert len(list_runs(folder).runs) == 1


def test_two_jobs_wait_for_each_other(cpu_worker: Worker) -> None:
    first, second = cpu_worker.submit(BOTH), cpu_worker.submit(FLASH)
    assert wait(second).state == "done"
    assert wait(first).state == "done"
    ids = {*first.status().run_ids, *second.status().run_ids}
    assert len(ids) == 3 and {run.id for run in list_runs().runs} == ids


def test_the_child_stays_warm(cpu_worker: Worker) -> None:
    pid = child_of(cpu_worker)
    assert_works(cpu_worker)
    assert child_of(cpu_worker) == pid


def test_a_child_that_leaves_by_itself(cpu_worker: Worker) -> None:
    cpu_worker.schedule(break_flash, "exit").result(PATIENCE)
    status = wait(cpu_worker.submit(FLASH))
    assert status.state == "failed" and "the worker process left with exit code 3." in status.error
    assert_works(cpu_worker)


def test_stop(cpu_worker: Worker) -> None:
    pid = child_of(cpu_worker)
    cpu_worker.schedule(break_flash, "sleep").result(PATIENCE)
    job = cpu_worker.submit(BOTH)
    while job.status().kernel != "flash":
        time.sleep(0.01)
    wait_for(job, "interpret")
    queued = cpu_worker.submit(FLASH)
    queued.stop()
    begun = time.monotonic()
    job.stop()
    status = job.wait(2.0)
    assert status.state == "stopped" and time.monotonic() - begun < 2
    assert status.error == "Stopped. Runs that were finished are kept."
    assert len(status.run_ids) == len(list_runs().runs) == 1
    assert wait(queued).state == "stopped"
    assert_works(cpu_worker)
    assert not is_alive(pid)
    job.stop()
    assert job.status() == status


def test_when_a_stopped_job_is_over_nothing_of_it_goes_on(cpu_worker: Worker, runs: Path) -> None:
    """Whatever its process did when Stop came: no Run appears later of which the Job has not told, and no half one."""
    for step in range(7):
        pause = 0.05 * step
        job = cpu_worker.submit(FLASH)
        while job.status().state == "waiting":
            time.sleep(0.002)
        time.sleep(pause)
        job.stop()
        status = wait(job)
        there = {path.name for path in runs.iterdir()}
        time.sleep(0.3)
        assert {path.name for path in runs.iterdir()} == there, pause
        assert {f"{run_id}.json" for run_id in status.run_ids} <= there
        assert not any(name.endswith(".part") for name in there), pause


def test_an_error_in_a_kernel(flash_fails: Worker) -> None:
    flash_fails.schedule(break_flash, "raise").result(PATIENCE)
    pid = child_of(flash_fails)
    status = wait(flash_fails.submit(BOTH))
    assert status.state == "failed" and len(status.run_ids) == 1
    assert status.error == f"flash (phase: interpret) failed: ValueError: {REASON} and its second line"
    assert child_of(flash_fails) == pid
    assert wait(flash_fails.submit(workloads(("naive",), SMALL, TILE, CPU))).state == "done"


def test_one_refused_workload_stops_all_before_anything_runs(cpu_worker: Worker, runs: Path) -> None:
    slow = Workload("flash", AttentionProblem(1, 1, 1, 8192, 8192, 16), TileConfig(16, 16))
    status = wait(cpu_worker.submit((*BOTH, slow)))
    assert (status.state, status.run_ids) == ("refused", ())
    assert status.error.startswith("Without a GPU the kernel is interpreted")
    assert not runs.exists()


def test_a_folder_that_cannot_be_written(cpu_worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("BYTESCOPE_RUNS", str(tmp_path / "file"))
    status = wait(cpu_worker.submit(FLASH))
    assert (status.state, status.run_ids) == ("failed", ())
    assert status.error == f"Nothing could be written to {tmp_path / 'file'}: File exists."


def test_a_run_that_cannot_be_saved_is_kept_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk fills up while measuring: the folder was writable before."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"could not be saved in .*file: File exists\. The Run is kept in ") as fault:
        child.measure_and_save(FLASH[0], "request", str(tmp_path / "file"), str(tmp_path / "progress.json"))
    (kept,) = (tmp_path / "temporary" / f"bytescope-rescued-{os.geteuid()}").glob("*.json")
    assert str(kept) in str(fault.value) and load(kept)[0].workload == FLASH[0]


def test_a_full_disk_costs_the_progress_line_and_nothing_else(runs: Path, tmp_path: Path) -> None:
    run_id = child.measure_and_save(FLASH[0], "request", str(runs), str(tmp_path / "missing" / "progress.json"))
    assert load(runs / f"{run_id}.json")[0].workload == FLASH[0]


def test_nothing_is_left_in_the_temporary_folder(
    cpu_worker: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert_works(cpu_worker)
    cpu_worker.schedule(break_flash, "sleep").result(PATIENCE)
    job = cpu_worker.submit(FLASH)
    wait_for(job, "interpret")
    (folder,) = tmp_path.glob("bytescope-*")
    (folder / ".half.part").touch()  # what a child that is killed while it writes leaves
    job.stop()
    assert wait(job).state == "stopped"
    assert not list(tmp_path.glob("bytescope-*"))


@pytest.mark.skipif(why_no_gpu() is None, reason="There is a GPU here.")
def test_a_device_that_is_not_there() -> None:
    worker = Worker("cuda:0")
    try:
        assert worker.describe() is None and worker.why_not is None
        worker.start()
        status = wait(worker.submit(workloads(("naive",), SMALL, TILE, "cuda:0")))
        assert status.state == "refused"
        assert status.error == worker.why_not
        assert status.error == "There is no GPU cuda:0 here (0 found); choose device cpu, or open a recorded Run."
        assert worker.describe() is None
    finally:
        worker.stop()


@pytest.fixture
def broken_torch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Worker]]:
    """Makes a Worker in whose child `import torch` does what is said."""
    made: list[Worker] = []

    def make(body: str) -> Worker:
        write_torch(tmp_path / "broken", body)
        monkeypatch.syspath_prepend(tmp_path / "broken")
        made.append(Worker(CPU))
        return made[0]

    yield make
    for one in made:
        one.stop()


def write_torch(folder: Path, body: str) -> None:
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(body)


HANGS = "import time; time.sleep(600)"
NO_START = [
    (
        "import os; os.kill(os.getpid(), 9)",
        "The worker cannot start: while importing torch its process was killed by SIGKILL (the system may be out of "
        "memory). See who ends processes here, or free some memory, and run again.",
    ),
    (
        "import os; os.kill(os.getpid(), 15)",
        "The worker cannot start: while importing torch its process was killed by SIGTERM. See who ends processes "
        "here, or free some memory, and run again.",
    ),
    (
        "class E(BaseException): pass\nraise E()",
        "The worker cannot start: E, without a word; install the versions of requirements.txt.",
    ),
    (
        HANGS,
        "The worker did not start within 2 s: importing torch hangs; see whether `python -c 'import torch'` ends here, "
        "and install the versions of requirements.txt.",
    ),
    (
        "raise ImportError('libtorch.so:\\x1b[31m no\\nsuch file.')",
        "The worker cannot start: ImportError: libtorch.so:�[31m no such file; install the versions of "
        "requirements.txt.",
    ),
    (
        "class Odd(Exception):\n    def __init__(self, a, b): super().__init__('odd')\nraise Odd(1, 2)",
        "The worker cannot start: Odd: odd; install the versions of requirements.txt.",
    ),
    (
        "raise SystemExit(3)",
        "The worker cannot start: SystemExit: 3; install the versions of requirements.txt.",
    ),
    (
        "import ctypes; ctypes.string_at(0)",
        "The worker cannot start: importing torch failed, for the process was killed by SIGSEGV; install the versions "
        "of requirements.txt.",
    ),
]


@pytest.mark.parametrize(
    ("body", "sentence"),
    NO_START,
    ids=["is killed", "is ended", "is silent", "hangs", "raises", "raises oddly", "leaves", "crashes"],
)
def test_a_torch_that_cannot_be_imported(
    broken_torch: Callable[[str], Worker], monkeypatch: pytest.MonkeyPatch, body: str, sentence: str
) -> None:
    monkeypatch.setattr("profiler.job.START_TIMEOUT", 2.0)
    monkeypatch.setattr("profiler.worker.START_TIMEOUT", 2.0)
    worker = broken_torch(body)
    status = worker.submit(FLASH).wait(10.0)
    assert (status.state, status.error) == ("failed", sentence)
    worker.start()
    end = time.monotonic() + 10
    while worker.why_not is None:
        assert time.monotonic() < end
        time.sleep(0.02)
    assert worker.why_not == sentence and worker.describe() is None


def test_stop_while_the_child_starts(broken_torch: Callable[[str], Worker]) -> None:
    worker = broken_torch(HANGS)
    job, queued = worker.submit(FLASH), worker.submit(FLASH)
    time.sleep(2)  # into the import
    job.stop()
    queued.stop()
    assert (job.wait(2.0).state, queued.wait(2.0).state) == ("stopped", "stopped")
    begun = time.monotonic()
    worker.stop()
    assert time.monotonic() - begun < 5


def test_a_broken_torch_is_one_sentence_on_the_command_line(tmp_path: Path) -> None:
    write_torch(tmp_path, "raise ImportError('no libtorch')")
    words = [sys.executable, "-m", "profiler", "run", "--device", "cpu", "--seq-len", "16"]
    here = {**os.environ, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(words, cwd=ROOT, env=here, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "The worker cannot start: ImportError: no libtorch; install the versions of requirements.txt.\n"
    )


def test_the_cpu_describes_itself(cpu_worker: Worker) -> None:
    cpu_worker.start()
    child_of(cpu_worker)
    device = cpu_worker.describe()
    assert device is not None and device.device == CPU and device.compute_capability is None
    assert worker_for(CPU) is cpu_worker


def test_a_stopped_worker_ends_its_child_and_its_jobs() -> None:
    worker = Worker(CPU)
    pid = child_of(worker)
    worker.schedule(break_flash, "sleep").result(PATIENCE)
    job = worker.submit(FLASH)
    wait_for(job, "interpret")
    worker.stop()
    assert wait(job).state == "stopped"
    assert not is_alive(pid)
    assert wait(worker.submit(FLASH)).state == "stopped"


def test_the_child_ends_with_its_parent(tmp_path: Path) -> None:
    """A killed dashboard leaves nothing behind, even in the middle of a run."""
    script = """
import os, time
from profiler.worker import Worker
from tests.faults import break_flash
from tests.test_worker import FLASH
if __name__ == "__main__":
    worker = Worker("cpu")
    worker.schedule(break_flash, "sleep").result()
    print(worker.schedule(os.getpid).result(), flush=True)
    worker.submit(FLASH)
    time.sleep(600)
"""
    here = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=here, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert is_alive(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    end = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(pid)


@pytest.mark.parametrize(
    "body",
    [
        "import ctypes; ctypes.PyDLL(None).sleep(600)",  # with the GIL held, as a library's start may
        "import time; time.sleep(600)",
    ],
    ids=["holds the GIL", "lets it go"],
)
def test_a_child_that_hangs_in_its_import_ends_with_its_parent(tmp_path: Path, body: str) -> None:
    note = tmp_path / "pid"
    write_torch(tmp_path / "broken", f"import os; open({str(note)!r}, 'w').write(str(os.getpid()))\n{body}")
    script = """
import time
from profiler.worker import Worker
worker = Worker("cpu")
worker.start()
time.sleep(600)
"""
    here = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(tmp_path / "broken")}
    with subprocess.Popen([sys.executable, "-c", script], cwd=ROOT, env=here) as parent:
        end = time.monotonic() + 30
        while not (note.exists() and note.read_text()):
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(0.5)
        pid = int(note.read_text())
        assert is_alive(pid)
        parent.kill()
    end = time.monotonic() + 5
    while is_alive(pid) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(pid)


def test_a_child_outlives_the_thread_that_asked_for_it() -> None:
    worker = Worker(CPU)
    found: list[int] = []
    try:
        asker = threading.Thread(target=lambda: found.append(child_of(worker)))
        asker.start()
        asker.join()
        time.sleep(1.0)
        assert is_alive(found[0]) and child_of(worker) == found[0]
    finally:
        worker.stop()


def test_one_process_at_a_time_on_a_gpu(tmp_path: Path) -> None:
    """Two processes hold the lock of one GPU in turn; one of them dies with it in the end, and the other goes on."""
    script = """
import os, sys, time
from types import SimpleNamespace
import torch
from profiler import child
name, rounds, progress = sys.argv[1], int(sys.argv[2]), sys.argv[3]
torch.cuda.get_device_properties = lambda device: SimpleNamespace(uuid=name)
child.describe = lambda device: None
for turn in range(rounds):
    holder = child.lock("cuda:0", progress)
    begun = time.monotonic_ns()
    time.sleep(0.02)
    print(begun, time.monotonic_ns(), flush=True)
    if turn == 9:
        os._exit(9)
    child.unlock("cuda:0", holder)
"""
    words = [sys.executable, "-c", script, "a-gpu"]
    here = {**os.environ, "TMPDIR": str(tmp_path)}
    parts = [
        subprocess.Popen(
            [*words, rounds, str(tmp_path / rounds)], cwd=ROOT, env=here, stdout=subprocess.PIPE, text=True
        )
        for rounds in ("10", "9")
    ]
    said = [part.communicate(timeout=PATIENCE)[0] for part in parts]
    assert [part.returncode for part in parts] == [9, 0]
    spans = sorted(tuple(map(int, line.split())) for text in said for line in text.splitlines())
    assert len(spans) == 19
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (TimeoutError(), "flash (phase: time) was stopped after 120 s. Choose a smaller problem or a longer time-out."),
        (ProcessExpired("", code=70), "the worker process left with exit code 70. Run again: a fresh one takes over."),
        (ProcessExpired("", code=-11), "the worker process was killed by SIGSEGV. Run again: a fresh one takes over."),
        (ProcessExpired("", code=-99), "the worker process was killed by signal 99. Run again"),
        (
            OutOfGpuMemory("tried 4 GiB"),
            "ran out of GPU memory: tried 4 GiB. Choose a shorter sequence, fewer heads or",
        ),
        (
            MemoryError("tried 4 GiB"),
            "flash (phase: time) ran out of memory: tried 4 GiB. Choose a shorter sequence, f",
        ),
        (Refused("Choose another."), "Choose another."),
        (StoreError("No room."), "No room."),
        (KeyError("x" * 1000), "flash (phase: time) failed: KeyError: 'xxx"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_every_error_is_explained(error: BaseException, sentence: str) -> None:
    found = explain(error, 120.0, "time", "flash")
    assert sentence in found and len(found) < 400
