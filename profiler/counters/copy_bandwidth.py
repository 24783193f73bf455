"""What a plain copy reaches on this GPU, through HBM and within L2: the roofs that a kernel can hope for."""

import statistics
from functools import cache

import torch

from profiler.bench import HEAD_STARTS_CYCLES, Load
from profiler.copies import Copy, hbm_copy, l2_copy
from profiler.counter import Counter, Reading, Unavailable
from profiler.run import DeviceInfo, Measurement, spread_of

HBM_BYTES = (2**30, 2**28)  # of the source: the first that fits; the second is still far above every L2
L2_MOVED_BYTES = 2**31  # in one launch, so that what it takes to start it does not count
WARM_UP, PASSES = 3, 10


def measure(load: Load) -> Reading:
    """copy_bytes_per_second and l2_copy_bytes_per_second, bytes read and written together; once in a process."""
    return _measured(load.device)


@cache
def _measured(device: DeviceInfo) -> Reading:
    """Kept while the process lives: both are the GPU's, whatever the work. No memory is kept."""
    try:
        return Reading((_through_hbm(device), _within_l2(device)))
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


def _within_l2(device: DeviceInfo) -> Measurement:
    name = "l2_copy_bytes_per_second"
    if device.l2_bytes is None or device.sm_count is None:
        what = "the size of its L2" if device.l2_bytes is None else "the number of its SMs"
        return Measurement(name, None, "B/s", "cuda-event", f"{what} is not known of {device.name}")
    return _rate(name, l2_copy(device.l2_bytes, device.sm_count, L2_MOVED_BYTES, device.device))


def _rate(name: str, copy: Copy) -> Measurement:
    for _ in range(WARM_UP):
        copy.launch()
    torch.cuda._sleep(HEAD_STARTS_CYCLES[0])
    events = []
    for _ in range(PASSES):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        copy.launch()
        end.record()
        events.append((start, end))
    torch.cuda.synchronize()
    rates = tuple(copy.moved / (start.elapsed_time(end) * 1e-3) for start, end in events)
    note = f"{copy.words}; both ways together, median of {PASSES} after {WARM_UP} to warm up"
    return Measurement(name, statistics.median(rates), "B/s", "cuda-event", note, spread_of(rates))


def unavailable(device: DeviceInfo) -> str | None:
    """A roof of a GPU needs one."""
    return None if device.compute_capability else "no GPU here, so there is no HBM or L2 of one to copy in"


COUNTER = Counter(
    name="copy_bandwidth",
    title="Copy bandwidth",
    order=-10,  # before NVML begins to watch: memory and power of a copy are none of the Run's
    phase="roofs",
    quantities=(
        ("copy_bytes_per_second", "B/s", "cuda-event"),
        ("l2_copy_bytes_per_second", "B/s", "cuda-event"),
    ),
    unavailable=unavailable,
    measure=measure,
)
