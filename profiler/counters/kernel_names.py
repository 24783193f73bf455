"""Which kernels a pass really launches: a library's choice, by the name that the driver knows."""

from dataclasses import replace

from profiler.bench import Load
from profiler.counter import Counter, Reading
from profiler.launched import launched_kernels
from profiler.plausible import MAX_LAUNCHES, printable
from profiler.run import DeviceInfo, Measurement


def measure(load: Load) -> Reading:
    """kernels_launched, the kernels of one pass, and their names by launch; names beyond MAX_LAUNCHES are left out."""
    found = launched_kernels(load)
    note = "kernels of one pass as torch.profiler lists them; copies and fills by the driver are none"
    if len(found) > MAX_LAUNCHES:
        note += f"; the first {MAX_LAUNCHES} are named"
    named = tuple(replace(kernel, kernel=printable(kernel.kernel)) for kernel in found)
    count = Measurement("kernels_launched", float(len(found)), "1", "torch", note)
    return Reading((count,), kernels=named[:MAX_LAUNCHES])


def unavailable(device: DeviceInfo) -> str | None:
    """The interpreter launches nothing."""
    return None if device.compute_capability else "no GPU here, so no kernel runs on one"


COUNTER = Counter(
    name="kernel_names",
    title="Names of kernels (torch.profiler)",
    order=60,  # the last: torch.profiler sets the clock by which CUPTI tells time
    phase="names",
    quantities=(("kernels_launched", "1", "torch"),),
    unavailable=unavailable,
    measure=measure,
    is_detail=True,
)
