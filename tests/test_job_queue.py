"""The queue of one device: who has the turn, who waits where, and that nobody waits behind one who has left."""

import threading
import time
from concurrent.futures import CancelledError
from itertools import pairwise
from pathlib import Path

from kernels.problem import AttentionProblem, TileConfig
from profiler.job_queue import JobQueue
from profiler.store import list_runs
from profiler.worker import Worker
from profiler.workload import CPU, workloads
from tests.faults import break_flash, mend_flash

SMALL, TILE = AttentionProblem(1, 1, 1, 32, 32, 16), TileConfig(16, 16)
FLASH = workloads(("flash",), SMALL, TILE, CPU)
BOTH = workloads(("naive", "flash"), SMALL, TILE, CPU)
PATIENCE = 60.0


def never() -> bool:
    return False


def test_first_come_first_served() -> None:
    queue, order = JobQueue(), list[str]()
    for name in "abc":
        queue.join(name)
    assert [queue.ahead(name) for name in "abc"] == [0, 1, 2] and len(queue) == 3

    def work(name: str) -> None:
        queue.wait(name, never)
        order.append(name)
        queue.leave(name)

    threads = [threading.Thread(target=work, args=(name,)) for name in "cba"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    assert order == ["a", "b", "c"] and len(queue) == 0


def test_who_is_stopped_leaves_and_the_others_move_up() -> None:
    queue, stopped = JobQueue(), threading.Event()
    for name in "abc":
        queue.join(name)
    found = list[str]()

    def work() -> None:
        try:
            queue.wait("b", stopped.is_set)
        except CancelledError:
            found.append("cancelled")

    thread = threading.Thread(target=work)
    thread.start()
    stopped.set()
    queue.wake()
    thread.join(PATIENCE)
    assert found == ["cancelled"] and queue.ahead("c") == 1
    assert not queue.leave("b"), "it has left"


def test_a_turn_that_is_given_away_comes_back() -> None:
    queue = JobQueue()
    queue.join("sweep")
    queue.let_others("sweep", never)  # nobody else is there
    queue.join("run")
    seen = threading.Event()

    def run() -> None:
        queue.wait("run", never)
        seen.set()
        queue.leave("run")

    thread = threading.Thread(target=run)
    thread.start()
    queue.let_others("sweep", never)
    assert seen.is_set() and queue.ahead("sweep") == 0
    thread.join(PATIENCE)


def test_jobs_of_a_worker_stand_in_line_and_never_interleave(cpu_worker: Worker) -> None:
    cpu_worker.schedule(mend_flash).result(PATIENCE)
    jobs = [cpu_worker.submit(BOTH) for _ in range(3)]
    assert [job.status().ahead for job in jobs[1:]] in ([1, 2], [0, 1])
    assert [job.wait(PATIENCE).state for job in jobs] == ["done"] * 3
    runs = sorted(list_runs().runs, key=lambda run: run.measured_at or (0, 0))
    assert [run.id for run in runs] == [run_id for job in jobs for run_id in job.status().run_ids]
    spans = [run.measured_at for run in runs]
    assert all(before and after and before[1] <= after[0] for before, after in pairwise(spans))


def test_nobody_waits_behind_a_dead_one(cpu_worker: Worker) -> None:
    """The first hangs and is stopped, the second is stopped while it waits, the third works."""
    cpu_worker.schedule(break_flash, "sleep").result(PATIENCE)
    first, second, third = (cpu_worker.submit(FLASH) for _ in range(3))
    while first.status().phase != "interpret":
        time.sleep(0.01)
    begun = time.monotonic()
    second.stop("Nobody wants it.")
    status = second.wait(2.0)
    assert (status.state, status.error) == ("stopped", "Nobody wants it.") and time.monotonic() - begun < 2
    assert third.status().ahead == 1
    first.stop()
    assert first.wait(2.0).state == "stopped"
    assert third.wait(PATIENCE).state == "done"
    assert len(cpu_worker.queue) == 0


def test_no_module_of_the_app_hides_one_of_pythons() -> None:
    """Streamlit puts app/ before everything else that is searched for modules."""
    import sys

    app = Path(__file__).resolve().parent.parent / "app"
    assert not {path.stem for path in app.glob("*.py")} & (sys.stdlib_module_names - {"__init__"})
