"""Kernels that this server runs: Bytescope's, and of the user's own those that the project file named at start."""

from collections.abc import Sequence
from functools import cache

from kernels.base import AttentionKernel, all_kernels
from kernels.own import is_own, kernel_named
from profiler.device import limits
from profiler.own_kernel import Permit
from profiler.project import FILE, project
from profiler.run import DeviceInfo
from profiler.workload import CPU, Workload


@cache
def offered() -> dict[str, AttentionKernel]:
    """What the form offers, by name."""
    return {**all_kernels(), **{name: kernel_named(name) for name in project().own}}


def run_on(device: DeviceInfo) -> dict[str, AttentionKernel]:
    """Those of them of which something may run on a device."""
    gpu = limits(device)
    if gpu is None and device.device != CPU:  # what one CTA may use on it is not known
        return offered()
    return {name: kernel for name, kernel in offered().items() if not kernel.why_not_on(gpu)}


def titles() -> dict[str, str]:
    """Of each kernel that is offered its title; of own ones with the same title their whole names."""
    found = {name: kernel.title for name, kernel in offered().items()}
    return {name: title if [*found.values()].count(title) == 1 else name for name, title in found.items()}


def permit() -> Permit:
    """What a worker may import for this server; nothing that came from a browser or from a Run's file is in it."""
    return Permit.here(*project().own)


def refusal(workloads: Sequence[Workload]) -> str:
    """Why one of the Workloads may not be run by this server, as a sentence; empty if all may."""
    for workload in workloads:
        if is_own(workload.kernel) and workload.kernel not in project().own:
            return (
                f"{workload.kernel} is not named in {FILE}, so nothing of it is imported here. Name it under [kernels] "
                "own and start Bytescope again, or run it from the command line."
            )
    return ""
