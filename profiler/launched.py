"""Which kernels a pass really launches, by the names that the driver knows: a library's choice included.

torch.profiler traces through CUPTI too, and may bring another copy of libcupti than profiler.cupti uses. The two ran
in one process on an H200, one after the other; never open a RangeProfiler while torch.profiler is at work.
"""

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, record_function, supported_activities

from profiler.bench import Load
from profiler.counter import Unavailable
from profiler.run import LaunchedKernel
from profiler.workload import CPU

MAX_NAME = 300  # characters; names of C++ templates run to thousands
LABEL = "bytescope launch "
COPIES = ("Memcpy ", "Memset ")


@dataclass(frozen=True)
class Activity:
    """Something that ran, and when; microseconds since the profile began."""

    name: str
    start: float
    end: float


def launched_kernels(load: Load) -> tuple[LaunchedKernel, ...]:
    """The kernels of one pass in the order in which they ran, each with its launch, "" outside any.

    What the driver does as a memcpy or memset is no kernel and left out, as in CUPTI's automatic ranges: a launch that
    only copies or fills may have none. Raises Unavailable where torch.profiler does not see the GPU.
    """
    if load.device.device == CPU:
        raise Unavailable("no GPU here, so no kernel runs on one")
    if ProfilerActivity.CUDA not in supported_activities():
        raise Unavailable(
            "this torch was built without CUPTI, so it cannot tell which kernels ran; install torch's CUDA wheel"
        )
    launches, kernels = profile_pass(load, (ProfilerActivity.CPU, ProfilerActivity.CUDA))
    if not kernels:
        raise Unavailable(
            "torch.profiler saw no kernel of this pass: ncu, nsys or another profiler may hold CUPTI; start without it"
        )
    return assign(kernels, launches)


def profile_pass(
    load: Load, activities: Iterable[ProfilerActivity]
) -> tuple[tuple[Activity, ...], tuple[Activity, ...]]:
    """One pass under torch.profiler: its launches, each until the GPU has done it, and the kernels on the GPU."""

    @contextmanager
    def named(launch: str) -> Iterator[None]:
        with record_function(LABEL + launch):
            yield
            load.synchronize()

    load.launch()  # what compiles, or is set up, at the first launch is none of the pass
    load.synchronize()
    with profile(activities=activities, acc_events=True) as profiler:
        load.launch(hook=named)
        load.synchronize()
    launches, kernels = [], []
    for event in profiler.events() or ():
        activity = Activity(event.name.removeprefix(LABEL), event.time_range.start, event.time_range.end)
        if event.device_type == DeviceType.CPU and event.name.startswith(LABEL):
            launches.append(activity)
        # Annotations come a second time, as the span of their kernels on the GPU.
        elif event.device_type == DeviceType.CUDA and not (event.is_user_annotation or event.name.startswith(COPIES)):
            kernels.append(activity)
    return tuple(launches), tuple(kernels)


def assign(kernels: Collection[Activity], launches: Collection[Activity]) -> tuple[LaunchedKernel, ...]:
    """Kernels by rising time, each with the innermost launch that holds it, "" where none does.

    The middle of a kernel counts: the clocks of GPU and host agree to about a microsecond only.
    """
    found = []
    for kernel in sorted(kernels, key=lambda kernel: (kernel.start, kernel.end)):
        middle = (kernel.start + kernel.end) / 2
        holding = [launch for launch in launches if launch.start <= middle <= launch.end]
        innermost = max(holding, key=lambda launch: (launch.start, -launch.end), default=None)
        found.append(LaunchedKernel(innermost.name if innermost else "", kernel.name[:MAX_NAME]))
    return tuple(found)
