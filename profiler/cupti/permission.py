"""Says, without running anything, why this process could not read the GPU's counters."""

import os
from collections.abc import Mapping
from pathlib import Path

from profiler.cupti.library import CuptiError, load
from profiler.cupti.ranges import cuda_driver

DRIVER_PARAMS = Path("/proc/driver/nvidia/params")
PROCESS_STATUS = Path("/proc/self/status")
CAP_SYS_ADMIN = 21

# What nsys, ncu, and any tool that CUDA itself loads, leave in the environment of the program they start.
PROFILER_VARIABLES = ("NSYS_PROFILING_SESSION_ID", "NV_NSIGHT_INJECTION", "CUDA_INJECTION64_PATH")


def why_not() -> str | None:
    """The first reason why GPU counters cannot be read here, with how to mend it; None if none is visible.

    None is no promise: another program may hold the counters, or the GPU may forbid them. CuptiError says so then.
    """
    try:
        cuda_driver()
        load()
    except CuptiError as error:
        return str(error)
    return under_profiler(os.environ) or restricted(DRIVER_PARAMS, PROCESS_STATUS)


def under_profiler(environment: Mapping[str, str]) -> str | None:
    """Set where the environment shows that ncu, nsys or the like started this process."""
    for name in environment:
        if name.startswith(PROFILER_VARIABLES):
            return f"No GPU counters: another profiler started this process ({name} is set). Start it without ncu or nsys."
    return None


def restricted(params: Path, status: Path) -> str | None:
    """Set where the driver keeps counters for administrators and this process is none.

    `params` is the driver's list of settings, `status` the kernel's account of the process; a missing list says
    nothing.
    """
    if _field(params, "RmProfilingAdminOnly") != "1":
        return None
    if int(_field(status, "CapEff") or "0", 16) >> CAP_SYS_ADMIN & 1:
        return None
    return (
        "No GPU counters: the driver lets only administrators read GPU counters (RmProfilingAdminOnly is 1), and this process lacks "
        "CAP_SYS_ADMIN. Run it as root; in Docker, add `--cap-add SYS_ADMIN`; or open the counters to every user: "
        "load the driver with `NVreg_RestrictProfilingToAdminUsers=0`."
    )


def _field(file: Path, name: str) -> str | None:
    lines = file.read_text().splitlines() if file.is_file() else []
    return next((value.strip() for key, _, value in (line.partition(":") for line in lines) if key == name), None)
