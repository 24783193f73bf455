"""The kernels of a pass as a Reading."""

from collections.abc import Sequence

from profiler.counter import Reading
from profiler.plausible import MAX_LAUNCHES, printable
from profiler.run import LaunchedKernel, Measurement

KERNELS = ("kernels_launched", "1", "cupti-callback")
MAX_NAME = 300  # characters; names of C++ templates run to thousands


def names_of(kernels: Sequence[tuple[str, str]]) -> Reading:
    """kernels_launched, and the names, from (launch, kernel) in order; names beyond MAX_LAUNCHES are left out."""
    note = "kernels of one pass as the driver launches them; its copies and fills are none"
    if len(kernels) > MAX_LAUNCHES:
        note += f"; the first {MAX_LAUNCHES} are named"
    name, unit, source = KERNELS
    count = Measurement(name, float(len(kernels)), unit, source, note)
    named = tuple(LaunchedKernel(launch, shortened(kernel)) for launch, kernel in kernels[:MAX_LAUNCHES])
    return Reading((count,), kernels=named)


def shortened(kernel: str) -> str:
    """A kernel's name as one line of at most MAX_NAME characters, the last of them … where more is left out."""
    name = printable(kernel, MAX_NAME + 1)
    return name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…"
