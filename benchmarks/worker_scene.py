"""A Worker that meets a fault for real, and what is left: the sentence, the Runs, the time until the next good one."""

import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernels.problem import AttentionProblem, TileConfig
from profiler.job import Job, JobStatus
from profiler.worker import Worker
from profiler.workload import CPU, Workload, workloads
from tests.faults import break_flash_once

PATIENCE = 60.0  # seconds until anything of this must be over, on a machine that has much else to do


class NotHere(RuntimeError):
    """A fault that cannot be brought about on this machine; the message says why."""


@dataclass
class Scene:
    """A Worker with a folder of Runs, and a folder for notes."""

    worker: Worker
    runs: Path
    notes: Path
    count: int = 0

    @property
    def on_gpu(self) -> bool:
        """Whether its faults are those of a GPU."""
        return self.worker.device != CPU

    def workloads(self, *kernels: str) -> tuple[Workload, ...]:
        """Small ones, of these kernels."""
        problem, tile = AttentionProblem(1, 2, 1, 33, 40, 16, causal=True), TileConfig(16, 16)
        if self.on_gpu:
            problem, tile = AttentionProblem(1, 4, 4, 1024, 1024, 64, "bfloat16"), TileConfig(64, 64)
        return workloads(kernels, problem, tile, self.worker.device, repeats=2)

    def submit(self, *kernels: str, timeout: float = PATIENCE) -> Job:
        """A Job of these kernels."""
        return self.worker.submit(self.workloads(*kernels), timeout)

    def ask(self, function: Callable[..., object], *arguments: object) -> object:
        """Do something in the worker's process."""
        return self.worker.schedule(function, *arguments).result(PATIENCE)

    @property
    def pid(self) -> int:
        """The worker's process."""
        return int(str(self.ask(os.getpid)))

    def broken(self, fault: str, *kernels: str, timeout: float = PATIENCE) -> tuple[Job, Path]:
        """A Job whose flash meets one of tests.faults.FAULTS, and the file that is there when it does."""
        self.count += 1
        note = self.notes / str(self.count)
        self.ask(break_flash_once, fault, str(note))
        return self.submit(*kernels or ("flash",), timeout=timeout), note


@dataclass(frozen=True)
class Fault:
    """A fault. `act` brings it about and returns how the Job that met it ended, None without one.

    `told` is a pattern of the one sentence that the user sees; empty where nothing was lost, and nothing is said.
    """

    name: str
    done: str
    told: str
    act: Callable[[Scene], JobStatus | None]
    is_kept: bool = False  # whether the Run that met it is kept all the same


@dataclass(frozen=True)
class Outcome:
    """What was seen of a fault. `seconds` is from its end to the next good Run, that Run included."""

    fault: Fault
    sentence: str
    seconds: float
    runs_lost: int
    problems: tuple[str, ...] = ()


def outcome_of(fault: Fault, scene: Scene) -> Outcome:
    """Bring a fault about and look at what is left. Raises NotHere."""
    before = contents(scene.runs)
    status = fault.act(scene) or JobStatus("done")
    begun = time.monotonic()
    following = scene.submit("flash").wait(PATIENCE)
    seconds = time.monotonic() - begun
    after = contents(scene.runs)
    named = {*before, *status.run_ids, *following.run_ids}
    lost = [run_id for run_id in named if run_id not in after or before.get(run_id, after[run_id]) != after[run_id]]
    problems = (
        *(["the Job is not over"] if not status.is_over else []),
        *([f"the Job is {status.state}"] if (status.state == "done") == bool(fault.told) else []),
        *([f"unexpected: {status.error!r}"] if not re.fullmatch(fault.told, status.error) else []),
        *(["the Run that met it is not counted"] if fault.is_kept and not status.run_ids else []),
        *([f"the next Run: {following.state} {following.error}"] if following.state != "done" else []),
        *(["a Run is there that nobody was told of"] if after.keys() - named else []),
        *([f"{len(lost)} Runs are lost or changed"] if lost else []),
        *(["a half-written file is left"] if list(scene.runs.glob(".*.part")) else []),
    )
    return Outcome(fault, status.error, seconds, len(lost), problems)


def contents(runs: Path) -> dict[str, bytes]:
    """Every Run file, byte for byte, by its id."""
    return {path.stem: path.read_bytes() for path in runs.glob("*.json")}


def wait_for(what: Callable[[], bool]) -> None:
    """Raises TimeoutError."""
    end = time.monotonic() + PATIENCE
    while not what():
        if time.monotonic() > end:
            raise TimeoutError
        time.sleep(0.01)
