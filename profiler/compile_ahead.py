"""Compiles a sweep's cells while others are measured, so that a GPU does not wait for the compiler."""

import os
import threading
from collections.abc import Sequence
from contextlib import suppress

from kernels.problem import Refused
from profiler.compile_job import CompileJob
from profiler.grid import Cell
from profiler.resources import Configuration, configurations

MOST_PROCESSES = 8


class CompileAhead:
    """One CompileJob for each compute capability that measures; what it compiles, Triton finds in its cache."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[int, int], CompileJob] = {}
        self._guard = threading.Lock()

    def start(self, cells: Sequence[Cell], capability: tuple[int, int] | None) -> None:
        """Begin with the cells in their order; nothing for what has no compute capability, or has begun."""
        with self._guard:
            if capability is not None and capability not in self._jobs:
                chosen = configurations_of(cells, capability)
                # The workers and this process want cores too.
                processes = min(MOST_PROCESSES, max(1, len(os.sched_getaffinity(0)) - 2))
                self._jobs[capability] = CompileJob(chosen, processes)

    def stop(self) -> None:
        """Compile nothing more."""
        with self._guard:
            for job in self._jobs.values():
                job.stop()


def configurations_of(cells: Sequence[Cell], capability: tuple[int, int]) -> tuple[Configuration, ...]:
    """What of some cells there is to compile: tiles of our own Triton kernels, each once."""
    found: dict[Configuration, None] = {}
    for cell in cells:
        workload = cell.workload
        if workload is None or workload.tile is None or not workload.attention_kernel.is_triton:
            continue
        # What cannot be compiled, the cell's own worker refuses with the same sentence.
        with suppress(Refused):
            found |= dict.fromkeys(configurations(workload.kernel, workload.problem, [workload.tile], [capability]))
    return tuple(found)
