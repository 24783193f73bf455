"""Says, without running anything, why this process could not read the GPU's counters."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.cupti.driver import cuda_driver
from profiler.cupti.library import PERMIT, CuptiError, load

if TYPE_CHECKING:
    from profiler.run import DeviceInfo

DRIVER_PARAMS = Path("/proc/driver/nvidia/params")
PROCESS_STATUS = Path("/proc/self/status")
CAP_SYS_ADMIN = 21

# What nsys, ncu, and any tool that CUDA itself loads, leave in the environment of the program they start.
PROFILER_VARIABLES = ("NSYS_PROFILING_SESSION_ID", "NV_NSIGHT_INJECTION", "CUDA_INJECTION64_PATH")


def why_not() -> str | None:
    """The first reason why GPU counters cannot be read here, with how to mend it; None if none is visible.

    None is no promise: another program may hold the counters, or the GPU may forbid them. CuptiError says so.
    """
    try:
        cuda_driver()
        load()
    except CuptiError as error:
        return str(error)
    return under_profiler(os.environ) or restricted(DRIVER_PARAMS, PROCESS_STATUS)


def unavailable(device: "DeviceInfo") -> str | None:
    """Why a device's counters cannot be read: no GPU, no library or no permission, each with what would allow it."""
    return why_not() if device.compute_capability else "no GPU here, so there is no hardware counter to read"


def under_profiler(environment: Mapping[str, str]) -> str | None:
    """Set where the environment shows that ncu, nsys or the like started this process."""
    for name in environment:
        if name.startswith(PROFILER_VARIABLES):
            return f"No GPU counters: {name} shows another profiler at work. Start without ncu or nsys."
    return None


def restricted(params: Path, status: Path) -> str | None:
    """Set where the driver keeps counters for administrators and this process is none.

    `params` is the driver's list of settings, `status` the kernel's account of the process.
    """
    if _field(params, "RmProfilingAdminOnly") != "1":
        return None
    if int(_field(status, "CapEff") or "0", 16) >> CAP_SYS_ADMIN & 1:
        return None
    return f"No GPU counters: the driver keeps them for administrators, and this process is none. {PERMIT}"


def _field(file: Path, name: str) -> str | None:
    """The value of the line `name: value`."""
    for line in file.read_text().splitlines() if file.is_file() else ():
        key, _, value = line.partition(":")
        if key == name:
            return value.strip()
    return None
