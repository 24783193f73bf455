"""Brings every fault of a worker about, for real, and prints what the user is told and how soon the next Run is there.

python -m benchmarks.reliability [--device cpu|cuda:0] [--json FILE] [--blows N]

Faults take about a minute on a GPU or an idle CPU, and END_SECONDS at most. --blows adds as many blows at random
moments, each within a few seconds. Exit code 1 where anything was not as it should be.
"""

import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.worker_faults import FAULTS
from benchmarks.worker_scene import PATIENCE, Fault, NotHere, Scene, outcome_of
from benchmarks.worker_storm import next_run, storm
from profiler.present import default_device
from profiler.store import load
from profiler.worker import Worker
from profiler.workload import CPU

LIMIT_SECONDS = 130.0  # after which no further fault is begun
END_SECONDS = 145  # after which the one that was begun is given up
NEXT_SECONDS = 10.0  # in which the next Run should be there
COLUMNS = ("fault", "what was done", "the sentence that was seen", "s until the next good Run", "Runs lost")


@dataclass(frozen=True)
class Row:
    """What is printed of a fault; `seconds` and `runs_lost` are None where it was not brought about."""

    fault: str
    done: str
    sentence: str
    seconds: float | None = None
    runs_lost: int | None = None
    problems: tuple[str, ...] = ()

    def line(self) -> str:
        """As a line of a Markdown table."""
        sentence = self.sentence.replace("|", "\\|") or "no sentence, since nothing was lost"
        seconds = "–" if self.seconds is None else f"{self.seconds:.1f}"
        lost = "–" if self.runs_lost is None else str(self.runs_lost)
        return f"| {self.fault} | {self.done} | {sentence} | {seconds} | {lost} |"


def main(
    device: Annotated[str, typer.Option(help="cpu or cuda:0; the first GPU if there is one.")] = "",
    as_json: Annotated[Path | None, typer.Option("--json", help="File to write the rows to, too.")] = None,
    blows: Annotated[int, typer.Option(help="Blows at random moments, afterwards.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the random moments.")] = 0,
) -> None:
    """Print a line for each fault as it is over, then what was not as it should be."""
    begun = time.monotonic()
    signal.signal(signal.SIGALRM, lambda *_: sys.exit(f"A fault was not over after {END_SECONDS} s."))
    signal.alarm(END_SECONDS)
    with _stage(device or default_device()) as scene:
        facts = _facts(scene)
        print(", ".join(facts.values()), "\n", flush=True)
        print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
        rows = []
        for row in _rows(scene, begun):
            rows.append(row)
            print(row.line(), flush=True)
        signal.alarm(0)
        problems = [f"{row.fault}: {problem}" for row in rows for problem in row.problems]
        produced = [row for row in rows if row.seconds is not None]
        slowest = max((row.seconds or 0.0 for row in produced), default=0.0)
        took = time.monotonic() - begun
        print(f"\n{len(produced)} of {len(rows)} faults in {took:.0f} s, slowest next Run {slowest:.1f} s")
        if blows:
            problems += _blow(scene, blows, seed)
    if as_json is not None:
        document = {"facts": facts, "rows": [vars(row) for row in rows]}
        as_json.write_text(json.dumps(document, indent=1, ensure_ascii=False), encoding="utf-8")
    print("\n".join(problems) or "Everything was as it should be.")
    sys.exit(1 if problems else 0)


@contextmanager
def _stage(device: str) -> Iterator[Scene]:
    """A warm Worker with Runs of its own."""
    with tempfile.TemporaryDirectory(prefix="reliability-") as folder:
        runs, notes = Path(folder) / "runs", Path(folder) / "notes"
        notes.mkdir()
        os.environ["BYTESCOPE_RUNS"] = str(runs)
        tempfile.tempdir = str(notes)  # so that what is left there is this process's
        worker = Worker(device)
        try:
            scene = Scene(worker, runs, notes)
            first = scene.submit("naive", "flash").wait(PATIENCE)
            if first.state != "done":
                sys.exit(first.error or f"The first Run was not there after {PATIENCE:.0f} s.")
            yield scene
        finally:
            worker.stop()


def _rows(scene: Scene, begun: float) -> Iterator[Row]:
    for fault in FAULTS:
        if time.monotonic() - begun > LIMIT_SECONDS:
            yield Row(
                fault.name, fault.done, f"not brought about: {LIMIT_SECONDS:.0f} s were over", problems=("no time",)
            )
        else:
            yield _row(fault, scene)


def _row(fault: Fault, scene: Scene) -> Row:
    try:
        found = outcome_of(fault, scene)
    except NotHere as reason:
        return Row(fault.name, fault.done, f"not brought about here: {reason}")
    except Exception as error:  # the other rows are wanted all the same
        broke_off = f"{type(error).__name__}: {error}"
        return Row(fault.name, fault.done, f"it broke off ({broke_off})", problems=(broke_off,))
    late = (f"the next Run took {found.seconds:.1f} s",) if found.seconds > NEXT_SECONDS else ()
    return Row(fault.name, fault.done, found.sentence, found.seconds, found.runs_lost, (*found.problems, *late))


def _blow(scene: Scene, blows: int, seed: int) -> list[str]:
    """Print how so many Jobs ended, and return what was not as it should be."""
    found = list(storm(scene, blows, seed))
    ends = Counter(f"{one.blow}: {one.status.state}" for one in found)
    status, seconds = next_run(scene)
    told = ", ".join(f"{end} {count}" for end, count in sorted(ends.items()))
    print(f"{blows} blows at random moments, seed {seed}: {told}; the next Run: {status.state} after {seconds:.1f} s")
    return [f"a blow after {one.after:.2f} s: {problem}" for one in found for problem in one.problems]


def _facts(scene: Scene) -> dict[str, str]:
    """What the numbers may depend on."""
    run = load(next(scene.runs.glob("*.json")))[0]
    cores = f"{len(os.sched_getaffinity(0))} cores of {_processor()}"
    gpu = {"gpu": f"{run.device.name}, driver {run.device.driver}"} if scene.worker.device != CPU else {}
    versions = {name: f"{name} {run.environment[name]}" for name in ("torch", "triton", "python")}
    return {**gpu, "cores": cores, **versions, "created": run.created}


def _processor() -> str:
    with suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    typer.run(main)
