"""Time of one forward pass by CUDA events: median and percentiles over repeats after warm-up."""

import statistics

from profiler.bench import Load
from profiler.counter import Counter, Reading
from profiler.run import DeviceInfo, Measurement, spread_of

WARM_UP_PASSES = 3


def measure(load: Load) -> Reading:
    """gpu_time_seconds: from before the first launch of a pass to after its last, L2 as the Workload asks."""
    repeats = load.repeats
    for _ in range(WARM_UP_PASSES):
        load.launch()
    pairs = []
    for _ in range(repeats):
        load.prepare_l2()
        pairs.append(load.timed_launch())
    load.synchronize()
    samples = tuple(start.elapsed_time(end) * 1e-3 for start, end in pairs)
    note = f"median of {repeats} passes after {WARM_UP_PASSES} to warm up, {load.l2} L2"
    measurement = Measurement(
        "gpu_time_seconds", statistics.median(samples), "s", "cuda-event", note, spread_of(samples)
    )
    return Reading((measurement,), {"gpu_time_seconds": samples})


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
