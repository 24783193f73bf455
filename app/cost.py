"""What a request will cost, before it is started: bytes by kind, memory, interpreted steps; and whether it may run."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from app import own_kernels
from kernels.own import is_own
from kernels.problem import Refused, TileConfig
from profiler.admission import INTERPRETED_STEP_SECONDS, admit, needs
from profiler.device import limits
from profiler.run import DeviceInfo
from profiler.workload import Workload


@dataclass(frozen=True)
class Cost:
    """Bytes of the problem, and by kernel title what is requested, None of a library, and what is allocated.

    Of the user's own kernels neither is known beforehand. interpreted_seconds is None where no tile is interpreted.
    """

    compulsory_bytes: int
    score_bytes: int
    requested_bytes: Mapping[str, int | None]
    memory_bytes: Mapping[str, int | None]
    interpreted_seconds: float | None


@lru_cache(maxsize=64)
def cost(workloads: tuple[Workload, ...]) -> Cost:
    """The cost of Workloads on one problem; closed forms and schedules only."""
    problem = workloads[0].problem
    titles, steps = own_kernels.titles(), 0
    requested: dict[str, int | None] = {}
    memory: dict[str, int | None] = {}
    for workload in workloads:
        kernel = workload.attention_kernel
        schedule = kernel.schedule(problem, workload.tile or TileConfig())
        need = needs(workload)
        asked = schedule.requested_read_bytes + schedule.requested_write_bytes
        title = titles.get(kernel.name, kernel.title)
        requested[title] = asked if kernel.tells_requests else None
        memory[title] = None if is_own(kernel.name) else need.total_bytes
        steps += need.tile_steps
    interpreted = None if workloads[0].on_gpu or not steps else steps * INTERPRETED_STEP_SECONDS
    return Cost(problem.compulsory_bytes, problem.score_bytes, requested, memory, interpreted)


def refusal(workloads: tuple[Workload, ...], device: DeviceInfo, free_bytes: int | None) -> str:
    """Why one of the Workloads cannot run on the device now, as a sentence; empty if all can."""
    if reason := own_kernels.refusal(workloads):
        return reason
    try:
        for workload in workloads:
            admit(workload, device, limits(device), free_bytes)
    except Refused as refused:
        return str(refused)
    return ""
