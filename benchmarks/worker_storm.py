"""Blows at random moments to a Worker's process while a Job runs, and whether anything is lost that should not be."""

import os
import random
import re
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from benchmarks.worker_scene import PATIENCE, Scene, contents
from profiler.job import Job, JobStatus
from profiler.store import load

BLOWS = (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP, None)  # None is the Stop button
LATEST = 3.0  # seconds after its Job was asked for that a blow falls, at most: it may find a process that still starts
HOW = r"was killed by SIGKILL \(the system may be out of memory\)|was stopped by a signal and had not gone on after 2 s"
TOLD = {
    "failed": re.compile(
        rf"(naive|flash) \(phase: [A-Za-z ]+\) ended: the worker process ({HOW})\. Run again: a fresh one takes over\.|"
        rf"The worker cannot start: while importing torch its process ({HOW})\. See who ends processes here, or free "
        r"some memory, and run again\.|"
        rf"The Run of (naive|flash) is kept, but then the worker process ({HOW}); a fresh one takes over\. Run again "
        r"what is missing\."
    ),
    "stopped": re.compile(re.escape(Job.STOPPED)),
    "done": re.compile(""),
}


@dataclass(frozen=True)
class Blow:
    """What fell when, and how the Job ended; `problems` are what should not be."""

    blow: str
    after: float  # seconds
    status: JobStatus
    problems: tuple[str, ...]


def storm(scene: Scene, rounds: int, seed: int) -> Iterator[Blow]:
    """One blow in each round, and what came of it; the random numbers are those of the seed."""
    dice = random.Random(seed)
    calm = scene.submit("naive", "flash").wait(PATIENCE).seconds
    before = contents(scene.runs)
    for _ in range(rounds):
        # Half of them while a warm process measures.
        blow, after = dice.choice(BLOWS), dice.uniform(0.0, dice.choice((min(calm, LATEST), LATEST)))
        job = scene.submit("naive", "flash")
        job.wait(after)
        _strike(scene, job, blow)
        status = job.wait(PATIENCE)
        now = contents(scene.runs)
        yield Blow(blow.name if blow else "Stop", after, status, tuple(_problems(scene.runs, before, status, now)))
        before = now


def _strike(scene: Scene, job: Job, blow: signal.Signals | None) -> None:
    if blow is None:
        job.stop()
        return
    process = scene.worker._process
    with suppress(ProcessLookupError):
        if process is not None:
            os.kill(process.pid, blow)


def _problems(runs: Path, before: dict[str, bytes], status: JobStatus, now: dict[str, bytes]) -> Iterator[str]:
    if not status.is_over:
        yield f"the Job is not over: {status}"
        return
    told = TOLD.get(status.state)
    if told is None or not told.fullmatch(status.error):
        yield f"{status.state}: {status.error}"
    if status.state == "done" and len(status.run_ids) != 2:
        yield f"done with {len(status.run_ids)} Runs"
    if any(now.get(run_id) != content for run_id, content in before.items()):
        yield "an earlier Run is lost or changed"
    if missing := set(status.run_ids) - now.keys():
        yield f"{len(missing)} Runs are told and not there"
    # Who presses Stop as a Run ends is not told of it.
    if len(now.keys() - before.keys() - set(status.run_ids)) > (status.state == "stopped"):
        yield "a Run is there that nobody was told of"
    for run_id in now.keys() - before.keys():
        load(runs / f"{run_id}.json")
    if left := list(Path(tempfile.gettempdir()).glob("bytescope-*")):
        yield f"{len(left)} temporary folders are left"
    if left := list(runs.glob(".*.part")):
        yield f"{len(left)} half-written files are left"


def next_run(scene: Scene) -> tuple[JobStatus, float]:
    """The next Run, and the seconds until it is there."""
    begun = time.monotonic()
    return scene.submit("flash").wait(PATIENCE), time.monotonic() - begun
