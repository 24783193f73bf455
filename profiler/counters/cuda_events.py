"""Time of one pass, and of each of its launches, by CUDA events: median and percentiles after warm-up."""

import statistics
from collections.abc import Sequence

from profiler.bench import Load, TimedPass
from profiler.counter import Counter, Reading
from profiler.run import DeviceInfo, Measurement, spread_of

WARM_UP_PASSES, LAUNCH_PASSES = 3, 5


def measure(load: Load) -> Reading:
    """gpu_time_seconds: from before the first launch of a pass to after its last, L2 as the Workload asks.

    Of more than one launch each has its own, from passes of their own, since an event stands before and after it.
    """
    for _ in range(WARM_UP_PASSES):
        load.launch()
    passes = [load.timed_pass() for _ in range(load.repeats)]
    by_launch: dict[str, list[TimedPass]] = {}
    for _ in range(LAUNCH_PASSES if len(load.launch_names) > 1 else 0):
        for name, one in load.timed_launches()[1]:
            by_launch.setdefault(name, []).append(one)
    load.synchronize()
    samples = tuple(one.seconds for one in passes)
    launches = tuple(_median(ones, load, name) for name, ones in by_launch.items())
    return Reading((_median(passes, load), *launches), {"gpu_time_seconds": samples})


def _median(passes: Sequence[TimedPass], load: Load, launch: str | None = None) -> Measurement:
    seconds = tuple(one.seconds for one in passes)
    note = f"median of {len(passes)} passes after {WARM_UP_PASSES} to warm up, {load.l2} L2"
    if launch is not None:
        note += " at the first launch"
    if late := sum(one.waited for one in passes):
        note += f"; in {late} of them the GPU may have waited for the host"
    value = statistics.median(seconds)
    return Measurement("gpu_time_seconds", value, "s", "cuda-event", note, spread_of(seconds), launch)


def unavailable(device: DeviceInfo) -> str | None:
    """Events need a GPU: an interpreted kernel's time says nothing about one."""
    return None if device.compute_capability else "no GPU here; the interpreter's time says nothing about a GPU"


COUNTER = Counter(
    name="cuda_events",
    title="CUDA events",
    order=20,
    phase="time",
    quantities=(("gpu_time_seconds", "s", "cuda-event"),),
    unavailable=unavailable,
    measure=measure,
)
