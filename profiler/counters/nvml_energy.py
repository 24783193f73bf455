"""Energy of one pass, by NVML's energy counter of the whole board around many passes of a steady load."""

from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import torch

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.device import gpu_handle
from profiler.neighbours import neighbours
from profiler.nvml import NoGpu, open_nvml
from profiler.run import DeviceInfo, Measurement
from profiler.steady_load import borders

LEAD_SECONDS = 0.1  # of load before the window, for clocks and power to settle
WINDOW_SECONDS = 0.3
POLL_SECONDS = 0.002  # between two looks at the counter, and
POLL_TIMES = 5  # times as long as a look takes, some milliseconds: else the host falls behind, and the GPU waits
REFRESH_SECONDS = 0.1  # the slowest that drivers refresh the counter
REFRESHES = 10  # that a window holds, where passes are too long to see the counter step
STUCK_SECONDS = 2.0
HOST_BOUND = 1.3  # times as long as a pass that was queued beforehand: clocks fall under load too, but not so far


@dataclass(frozen=True)
class Window:
    """Whole passes between two steps of the energy counter: how many, their GPU seconds, and the joules."""

    passes: int
    seconds: float
    joules: float


def measure(load: Load) -> Reading:
    """energy_joules of a pass = energy between two steps of the counter / passes between them.

    Raises Unavailable where NVML does not count energy.
    """
    try:
        with open_nvml() as nvml:
            gpu = gpu_handle(nvml, load.device)
            found = energy_window(load, lambda: nvml.nvmlDeviceGetTotalEnergyConsumption(gpu) * 1e-3)
            others = neighbours(nvml, gpu)
            alone = load.timed_pass()
            load.synchronize()
    except NoGpu as reason:
        raise Unavailable(str(reason)) from reason
    late = found.seconds / found.passes > HOST_BOUND * alone.seconds
    host = "; the host launches passes slower than the GPU runs them, and the GPU's wait counts" if late else ""
    note = (
        f"{found.joules:.4g} J over {found.passes} passes in {found.seconds * 1e3:.0f} ms "
        f"({found.joules / found.seconds:.0f} W); the whole board, idle power included; passes run back to back, so L2 "
        f"as each leaves it to the next{host}{others and f'; {others}'}"
    )
    return Reading((Measurement("energy_joules", found.joules / found.passes, "J", "nvml", note),))


def energy_window(load: Load, read_joules: Callable[[], float]) -> Window:
    """Keep the GPU busy, and count passes from one step of the counter to another WINDOW_SECONDS later or more.

    The counter steps some tens of times a second, so that a window from step to step loses nothing at its ends. Where
    a pass is longer than that, it is seen late by up to a step, and the window is longer for it.
    Raises Unavailable where the counter stands still.
    """
    begin = perf_counter()
    first: tuple[torch.cuda.Event, float, float] | None = None  # border, joules, when
    last, passes = read_joules(), 0
    looked, took = begin, perf_counter() - begin
    for border in borders(load):
        passes += 1
        now = perf_counter()
        if now - begin < LEAD_SECONDS or now - looked < max(POLL_SECONDS, POLL_TIMES * took):
            continue
        joules, blind, looked = read_joules(), now - looked, perf_counter()
        took = looked - now
        has_stepped, last = joules > last, joules
        since = begin if first is None else first[2]
        if not has_stepped and now - since > STUCK_SECONDS:
            load.synchronize()
            raise Unavailable(f"NVML's energy counter stood still for {STUCK_SECONDS:.0f} s of load")
        if not has_stepped:
            continue
        if first is None:
            first, passes = (border, joules, now), 0
        elif passes and now - first[2] >= WINDOW_SECONDS + REFRESHES * min(blind, REFRESH_SECONDS):
            load.synchronize()
            return Window(passes, float(first[0].elapsed_time(border)) * 1e-3, joules - first[1])
    raise AssertionError("borders never end")


def unavailable(device: DeviceInfo) -> str | None:
    """NVML knows GPUs only; older ones than Volta count no energy, and say so when they are asked."""
    return None if device.compute_capability else "no GPU here, so NVML has no energy to tell"


COUNTER = Counter(
    name="nvml_energy",
    title="NVML energy",
    order=60,
    phase="energy",
    quantities=(("energy_joules", "J", "nvml"),),
    unavailable=unavailable,
    measure=measure,
    is_detail=True,  # it takes half a second of load, a quarter of what everything else takes together
)
