"""Times of several loads, launched one after the other in every round, so that they share the GPU's clock."""

import statistics
from collections.abc import Mapping
from typing import TypeVar

import torch

from kernels.base import AttentionKernel
from kernels.problem import LINEAR, LONGEST_FIRST, PERSISTENT, AttentionProblem
from profiler.bench import Load
from profiler.workload import Workload

Named = TypeVar("Named", str, Workload)


def fast_orders(kernel: AttentionKernel, problem: AttentionProblem) -> tuple[str, ...]:
    """The orders of a kernel that may be its fastest: long programs first under a causal mask, and persistent."""
    first = LONGEST_FIRST if problem.causal and LONGEST_FIRST in kernel.orders else LINEAR
    return (first, PERSISTENT) if PERSISTENT in kernel.orders else (first,)


def in_turn(
    loads: Mapping[Named, Load], device: str, rounds: int, warm_up: int, clocks: list[int]
) -> dict[Named, float]:
    """Median seconds of a pass of each, warmed up; `clocks` gets the SM clock of each round, in MHz."""
    for load in loads.values():
        for _ in range(warm_up):
            load.launch()
    times: dict[Named, list[float]] = {name: [] for name in loads}
    for _ in range(rounds):
        for name, load in loads.items():
            one = load.timed_pass()
            load.synchronize()
            times[name].append(one.seconds)
        clocks.append(torch.cuda.clock_rate(device))
    return {name: statistics.median(found) for name, found in times.items()}
