"""Makes faults of the disk, of the driver and of the GPU's lock for real, and prints what was seen and what it took.

python -m benchmarks.reliability_disk

Each row: the fault, what was seen, and how long after its end until the next good Run (of the smallest problem, on the
CPU, by a worker that is warm) or, of the driver, until the next reading. Needs a C compiler, and root for the disks.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kernels.problem import AttentionProblem, TileConfig
from profiler import child
from profiler.gpu_feed import GpuFeed
from profiler.scratch import LOCK, remove_leftovers
from profiler.store import StoreError, list_runs, save
from profiler.worker import Worker
from profiler.workload import CPU, workloads
from tests.fake_runs import cpu_run
from tests.nvml_stub import DRIVER_NOT_LOADED, UNINITIALIZED, Driver, build
from tests.small_disk import SmallDisk, read_only_disk, small_disk

ROOT = Path(__file__).resolve().parent.parent
NAIVE = workloads(("naive",), AttentionProblem(1, 1, 1, 16, 16, 16), TileConfig(16, 16), CPU)
MOST_SECONDS = 120.0
WIDTH = 110


def main() -> None:
    """Print the rows."""
    with tempfile.TemporaryDirectory() as place, small_disk(Path(place) / "disk") as disk:
        os.environ["BYTESCOPE_RUNS"] = str(disk.folder / "runs")
        worker = Worker(CPU)
        _good_run(worker)
        for fault in (_full, _fills_up, _read_only, _half_written, _temporary_full):
            fault(worker, disk)
        _killed(worker)
        worker.stop()
        _driver(build(Path(tempfile.mkdtemp(dir=place))))


def _row(fault: str, seen: str, seconds: float, until: str = "Run") -> None:
    print(f"{fault}\n    {seen[:WIDTH]}\n    next {until} after {seconds:.2f} s", flush=True)


def _good_run(worker: Worker) -> float:
    """Seconds until a Run is measured and saved."""
    begun = time.monotonic()
    status = worker.submit(NAIVE).wait(MOST_SECONDS)
    if status.state != "done":
        sys.exit(f"No good Run: {status.error}")
    return time.monotonic() - begun


def _full(worker: Worker, disk: SmallDisk) -> None:
    disk.fill()
    seen = worker.submit(NAIVE).wait(MOST_SECONDS).error
    disk.free()
    _row("The disk of Runs is full", seen, _good_run(worker))


def _fills_up(worker: Worker, disk: SmallDisk) -> None:
    disk.fill()
    with tempfile.TemporaryDirectory() as other:
        before, tempfile.tempdir = tempfile.gettempdir(), other
        try:
            child.measure_and_save(NAIVE[0], "request", str(disk.folder / "runs"), str(Path(other) / "note.json"))
            sys.exit("The disk was not full.")
        except StoreError as fault:
            seen = str(fault)
        tempfile.tempdir = before
    disk.free()
    _row("It fills up while a Run is measured", seen.replace("The Run could not be saved in ", ""), _good_run(worker))


def _read_only(worker: Worker, disk: SmallDisk) -> None:
    with read_only_disk(disk):
        seen = worker.submit(NAIVE).wait(MOST_SECONDS).error
    _row("It is read-only", seen, _good_run(worker))


def _half_written(worker: Worker, disk: SmallDisk) -> None:
    folder = disk.folder / "cut"
    whole = save(cpu_run(), folder).read_bytes()
    lengths = range(0, len(whole) - 1, 64)
    for length in lengths:
        (folder / f"cut-{length}.json").write_bytes(whole[:length])
    found = list_runs(folder)
    seen = f"{len(found.faults)} of {len(lengths)} cut files are named, {len(found.runs)} of 1 Run is listed"
    shutil.rmtree(folder)
    _row("Runs are cut at every 64th byte", seen, _good_run(worker))


def _temporary_full(worker: Worker, disk: SmallDisk) -> None:
    before, tempfile.tempdir = tempfile.gettempdir(), str(disk.folder)
    os.environ["BYTESCOPE_RUNS"] = str(Path(before) / f"runs-{os.getpid()}")
    disk.fill()
    status = worker.submit(NAIVE).wait(MOST_SECONDS)
    disk.free()
    tempfile.tempdir = before
    seen = f"{status.state}; {status.error or 'nothing but progress is lost'}"
    _row("The folder for temporary files is full", seen, _good_run(worker))
    shutil.rmtree(os.environ["BYTESCOPE_RUNS"])
    os.environ["BYTESCOPE_RUNS"] = str(disk.folder / "runs")


def _killed(worker: Worker) -> None:
    """A command killed while it measures: its temporary folder is nobody's."""
    with tempfile.TemporaryDirectory() as place:
        words = "run --device cpu --kernel flash --heads 8 --seq-len 512 --head-dim 64 --block-m 16 --block-n 16"
        command = subprocess.Popen(
            [sys.executable, "-m", "profiler", *words.split()],
            cwd=ROOT,
            env=os.environ | {"TMPDIR": place},
            stderr=subprocess.DEVNULL,
        )
        _until(lambda: list(Path(place).glob("bytescope-*/progress.json")))
        command.kill()
        command.wait()
        (left,) = Path(place).glob("bytescope-*")
        os.utime(left / LOCK, (time.time() - 3600, time.time() - 3600))
        remove_leftovers(Path(place))
        seen = f"{len(list(Path(place).iterdir()))} temporary folders left once the next process has looked"
    _row("A command is killed by SIGKILL", seen, _good_run(worker))


def _driver(driver: Driver) -> None:
    os.environ |= driver.environment
    with _feed() as feed:
        for fault, words in (
            ("The GPU is lost", {"lost": 0}),
            ("The driver is unloaded", {"error": DRIVER_NOT_LOADED}),
            ("NVML says that it is not initialised", {"error": UNINITIALIZED}),
            ("NVML crashes its process", {"crash": 1}),
            ("NVML hangs for a while", {"hang": 1}),
        ):
            driver.set(**words)
            begun = time.monotonic()
            _until(lambda: feed.why_no_gpu is not None)
            seen = f"after {time.monotonic() - begun:.1f} s: {feed.why_no_gpu}"
            driver.set()
            _row(fault, seen, _until(lambda: feed.latest("cuda:0")), "reading")
        driver.set(hang=1)
        _until(lambda: "was stopped" in (feed.why_no_gpu or ""))
        seen = str(feed.why_no_gpu)
        driver.set()
        _row("NVML hangs for good", seen, _until(lambda: feed.latest("cuda:0")), "reading")


@contextmanager
def _feed() -> Iterator[GpuFeed]:
    feed = GpuFeed()
    _until(lambda: feed.latest("cuda:0"))
    try:
        yield feed
    finally:
        feed.close()


def _until(condition: Callable[[], object]) -> float:
    """Seconds until it holds."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > MOST_SECONDS:
            sys.exit("It did not come to that.")
        time.sleep(0.02)
    return time.monotonic() - begun


if __name__ == "__main__":
    main()
