"""Peaks that were measured for a problem at any sequence length: of the Runs on show, and of all that are saved."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from app.answer import where
from app.block_measured import saved_folders, workload_of
from app.memory_growth import Measured, length_of
from kernels.problem import AttentionProblem, Refused
from profiler.catalogue import catalogue
from profiler.codec import NotARun
from profiler.run import Run
from profiler.workload import Workload

PEAK = "peak_allocated_bytes"


def of_runs(runs: Sequence[Run], problem: AttentionProblem) -> list[Measured]:
    """One for each Run of the problem at some length whose peak is known."""
    found = [(run.workload, run.value(PEAK), where(run)) for run in runs]
    return _points([(work, peak, place) for work, peak, place in found if peak is not None], problem)


def stored(problem: AttentionProblem, kernels: Sequence[str]) -> list[Measured]:
    """The same of saved Runs of some kernels, sweeps among them; files are read again once they change."""
    known = [one for one in _stored(saved_folders()) if one[0].kernel in kernels]
    return _points(known, problem)


def _points(found: Sequence[tuple[Workload, float, str]], problem: AttentionProblem) -> list[Measured]:
    """Sorted by kernel and length, one for each pair of them, for the peak depends on hardly anything else."""
    points = {
        (work.kernel, length): Measured(work.kernel, length, peak, place)
        for work, peak, place in found
        if (length := length_of(problem, work.problem)) is not None
    }
    return [points[key] for key in sorted(points)]


@lru_cache(maxsize=2)
def _stored(folders: tuple[tuple[Path, int], ...]) -> tuple[tuple[Workload, float, str], ...]:
    with catalogue([folder for folder, _ in folders]) as opened:
        if PEAK not in opened.columns:
            return ()
        rows = opened.where(f"{PEAK} IS NOT NULL").project(f"workload, {PEAK}, device_name").fetchall()
    found = []
    for text, peak, device in rows:
        try:
            found.append((workload_of(text), float(peak), str(device)))
        except (NotARun, Refused, ValueError):
            continue  # opening its file says what is wrong with it
    return tuple(found)
