"""A source of numbers whose library breaks down: tests.faults.plant_source puts it among the others of a process."""

import ctypes

from profiler.bench import Load
from profiler.counter import Counter, Reading
from profiler.cupti.library import find


def measure(load: Load) -> Reading:
    """Let libcupti, or libc where there is none, write to an address that nobody may write to."""
    path = next(iter(find()), None)
    if path is None:
        ctypes.memset(8, 0, 1)
    else:
        ctypes.CDLL(str(path)).cuptiGetVersion(ctypes.c_void_p(8))
    raise AssertionError("it wrote where nobody may")


COUNTER = Counter(
    name="crashing",
    title="a source that breaks down",
    order=1,
    phase="crash",
    quantities=(("power_watts", "W", "nvml"),),
    unavailable=lambda device: None,
    measure=measure,
)
