"""A sweep on its way: one worker for each device takes cell after cell until none is left."""

import os
import threading
import time
from collections.abc import Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Protocol

from kernels.problem import Refused
from kernels.shown import shown
from profiler import child
from profiler.compile_ahead import CompileAhead
from profiler.failures import KeptAnyway, explain
from profiler.grid import Cell
from profiler.run import DeviceInfo
from profiler.store import StoreError, require_writable
from profiler.sweep import Sweep
from profiler.timeout import require_possible_timeout
from profiler.turns import SweepStatus, Turns
from profiler.worker import DEFAULT_TIMEOUT, START_TIMEOUT, Job, Worker, worker_for
from profiler.workload import CPU, require_known

MOST_WORKERS = 1_024
HELD_SECONDS = 2.0  # how long a sweep keeps a GPU before others get their turn


class Executor(Protocol):
    """Whoever runs cells: the devices of this host, or a cluster.

    title names it; workers is how many cells it runs at once, as far as it is known, and on_gpu whether on GPUs.
    """

    title: str
    workers: int
    on_gpu: bool

    def run(self, turns: Turns) -> None:
        """Take cells until `turns` has none; returns once all that were taken are over. Raises for no cell's sake."""

    def stop(self) -> None:
        """End what is running now; it is neither done nor failed."""


class SweepJob:
    """A sweep that runs in threads of its own. Raises Refused where another process runs it."""

    def __init__(self, sweep: Sweep, executor: Executor, again: bool = False) -> None:
        self.sweep = sweep
        self._executor = executor
        self._held = sweep.held()
        self._held.__enter__()
        try:
            self._turns = Turns(sweep, again)
        except BaseException:
            self._held.__exit__(None, None, None)
            raise
        self.broken = tuple(self._turns.broken.values())
        self._thread = threading.Thread(target=self._follow, name="sweep", daemon=True)
        self._thread.start()

    def status(self) -> SweepStatus:
        """How far it is."""
        return self._turns.status()

    def stop(self) -> None:
        """End it; cells that are done stay, those that are running are left for the next time."""
        self._turns.stop()
        self._executor.stop()

    def wait(self, timeout: float | None = None) -> SweepStatus:
        """Block until it is over or `timeout` seconds have passed."""
        self._thread.join(timeout)
        return self.status()

    def _follow(self) -> None:
        try:
            self._executor.run(self._turns)
        except Exception as error:  # the thread's last line of defence: whatever it is becomes a sentence
            self._turns.give_up(f"The sweep cannot go on: {child.words_of(error)}")
        finally:
            self._held.__exit__(None, None, None)
            self._turns.end()


class LocalDevices:
    """The devices of this host, one worker each; on the CPU several, for nothing measured there disturbs another."""

    def __init__(
        self, devices: Sequence[str], cpu_workers: int | None = None, timeout: float = DEFAULT_TIMEOUT
    ) -> None:
        require_possible_timeout(timeout)
        for device in devices:
            require_known(device)
        count = len(os.sched_getaffinity(0)) if cpu_workers is None else cpu_workers
        if not 1 <= count <= MOST_WORKERS:
            raise Refused(f"The sweep has {shown(count)} workers; choose 1 to {MOST_WORKERS:,}.")
        self._timeout = timeout
        self.on_gpu = any(device != CPU for device in devices)
        self.title = ", ".join(f"cpu, {count} workers" if device == CPU else device for device in devices)
        # Not the CPU's usual worker: a Run that somebody waits for is not to stand behind a sweep.
        self.cpu_workers = [Worker(CPU) for _ in range(count if CPU in devices else 0)]
        self._workers = [*(worker_for(device) for device in devices if device != CPU), *self.cpu_workers]
        self.workers = len(self._workers)
        self._shares: list[Share] = []
        self._ahead = CompileAhead()
        self._guard = threading.Lock()

    def run(self, turns: Turns) -> None:
        """See Executor."""
        workers = self._workers[: len(turns.waiting)]
        if not any(cell.workload for cell in turns.sweep.cells):
            turns.take("nobody")  # which notes why each of them cannot be
            return
        with self._guard:
            self._shares = [
                Share(worker, turns, f"worker {i}", self._timeout, self._ahead) for i, worker in enumerate(workers)
            ]
        for share in self._shares:
            share.wait()
        self._ahead.stop()
        errors = [status.error for status in map(Job.status, self._shares) if status.state in ("failed", "refused")]
        if errors and turns.waiting:
            turns.give_up(errors[0])
        for worker in self.cpu_workers:
            worker.stop()

    def stop(self) -> None:
        """See Executor."""
        with self._guard:
            for share in self._shares:
                share.stop()


class Share(Job):
    """What one Worker does of a sweep. It fails only where its device does; a cell that fails is noted as that."""

    def __init__(self, worker: Worker, turns: Turns, name: str, timeout: float, ahead: CompileAhead) -> None:
        self._turns, self._name, self._ahead = turns, name, ahead
        self._held_since: float | None = None
        super().__init__(worker, tuple(cell.workload for cell in turns.sweep.cells if cell.workload)[:1], timeout)

    def _work(self) -> None:
        try:
            require_writable(self._turns.sweep.runs)
            self._ahead.start(self._turns.waiting, self._see_device().compute_capability)
            while (cell := self._turns.take(self._name)) is not None:
                self._do(cell)
        except StoreError as fault:
            # Nobody else could keep a Run either.
            self._turns.give_up(str(fault))
            raise
        self._update(state="done", phase="done")

    def _do(self, cell: Cell) -> None:
        """Measure one cell. Raises what says that the next one could not be measured or kept either."""
        try:
            self._measure(cell)
        except Refused as refusal:
            self._turns.failed(self._name, cell, str(refusal))
        except (CancelledError, StoreError, child.CannotStart):
            self._turns.give_back(self._name, cell)
            raise
        except Exception as error:  # noted as this cell's failure, and the sweep goes on
            self._turns.failed(self._name, cell, self._explain(error, self._timeout))
            self._held_since = None
            self._see_device()
        else:
            self._turns.done(self._name, cell)

    def _measure(self, cell: Cell) -> None:
        assert cell.workload is not None, "Turns hands out no other"
        workload, sweep = replace(cell.workload, device=self._worker.device), self._turns.sweep
        self._hold()
        self._ask(child.admit_all, (workload,), timeout=START_TIMEOUT)
        try:
            self._measure_into(sweep.runs, sweep.run_id(cell), workload, sweep.plan.id)
        except KeptAnyway:
            self._held_since = None
        self._forget_note()

    def _hold(self) -> None:
        """Keep others from the GPU, and give them their turn now and then."""
        device = self._worker.device
        if device == CPU:
            return
        if self._held_since is not None and time.monotonic() - self._held_since > HELD_SECONDS:
            self._let_go_of_gpu()
            self._held_since = None
            self._queue.let_others(self, self._is_stopping)
        if self._held_since is None:
            self._hold_gpu()
            self._held_since = time.monotonic()

    def _see_device(self) -> DeviceInfo:
        """Facts of the device. Raises where it is not there, or no process starts: then no cell can be measured."""
        try:
            found: DeviceInfo = self._ask(child.describe, self._worker.device, timeout=START_TIMEOUT)
        except (CancelledError, Refused, child.CannotStart):
            raise
        except Exception as error:
            reason = explain(error, START_TIMEOUT, "start", f"The worker of {self._worker.device}")
            raise child.CannotStart(reason) from None
        return found
