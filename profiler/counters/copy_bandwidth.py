"""What plain copies and reads reach on this GPU, through HBM and within L2: the roofs that a kernel can hope for."""

import statistics
from collections.abc import Callable
from functools import cache

import torch

from profiler.bench import HEAD_STARTS_CYCLES, Load
from profiler.copies import Traffic, hbm_copy, l2_copy, l2_read
from profiler.counter import Counter, Reading, Unavailable
from profiler.run import DeviceInfo, Measurement, spread_of

HBM_BYTES = (2**30, 2**28)  # of the source: the first that fits; the second is still far above every L2
L2_MOVED_BYTES = 2**31  # in one launch, so that what it takes to start it does not count
WARM_UP, PASSES = 3, 10
WITHIN_L2 = {"l2_copy_bytes_per_second": l2_copy, "l2_read_bytes_per_second": l2_read}


def measure(load: Load) -> Reading:
    """copy_bytes_per_second, l2_copy_bytes_per_second and l2_read_bytes_per_second; once in a process.

    Of a copy, bytes read and bytes written count together.
    """
    return _measured(load.device)


@cache
def _measured(device: DeviceInfo) -> Reading:
    """Kept while the process lives: they are the GPU's, whatever the work. No memory is kept."""
    try:
        return Reading((_through_hbm(device), *(_within_l2(name, make, device) for name, make in WITHIN_L2.items())))
    finally:
        torch.cuda.empty_cache()


def _through_hbm(device: DeviceInfo) -> Measurement:
    for size in HBM_BYTES:
        try:
            return _rate("copy_bytes_per_second", hbm_copy(size, device.device))
        except torch.OutOfMemoryError:
            continue
    raise Unavailable(
        f"the GPU has no room for a copy of {HBM_BYTES[-1] >> 20} MiB beside the inputs; end other programs, or make "
        "the problem smaller"
    )


def _within_l2(name: str, make: Callable[[int, int, int, str], Traffic], device: DeviceInfo) -> Measurement:
    if device.l2_bytes is None or device.sm_count is None:
        what = "the size of its L2" if device.l2_bytes is None else "the number of its SMs"
        return Measurement(name, None, "B/s", "cuda-event", f"{what} is not known of {device.name}")
    return _rate(name, make(device.l2_bytes, device.sm_count, L2_MOVED_BYTES, device.device))


def _rate(name: str, traffic: Traffic) -> Measurement:
    for _ in range(WARM_UP):
        traffic.launch()
    torch.cuda._sleep(HEAD_STARTS_CYCLES[0])
    events = []
    for _ in range(PASSES):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        traffic.launch()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    rates = tuple(traffic.moved / (start.elapsed_time(end) * 1e-3) for start, end in events)
    note = f"{traffic.words}; median of {PASSES} after {WARM_UP} to warm up, once in a worker process"
    return Measurement(name, statistics.median(rates), "B/s", "cuda-event", note, spread_of(rates))


def unavailable(device: DeviceInfo) -> str | None:
    """A roof of a GPU needs one."""
    return None if device.compute_capability else "no GPU here, so there is no HBM or L2 of one to copy in"


COUNTER = Counter(
    name="copy_bandwidth",
    title="Copy bandwidth",
    order=-10,  # before NVML begins to watch: memory and power of a copy are none of the Run's
    phase="roofs",
    quantities=tuple((name, "B/s", "cuda-event") for name in ("copy_bytes_per_second", *WITHIN_L2)),
    unavailable=unavailable,
    measure=measure,
)
