"""Who else works on a GPU, as NVML sees it: device-wide sources count their traffic too."""

import os
import time
from typing import Any

from profiler.nvml import ask

GIB = 2**30
LOOK_BACK_SECONDS = 1.0


def neighbours(nvml: Any, gpu: Any) -> str:
    """A clause for the note of a device-wide source; empty where NVML lists this process alone."""
    processes, reason = ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, gpu)
    if processes is None:
        return f"other processes' traffic, if there is any, is included: NVML does not list them ({reason})"
    others = [process for process in processes if process.pid != os.getpid()]
    # In a container NVML may know this process, which has a context here, by another number.
    count = len(processes) - 1
    if count < 1:
        return ""
    found = [f"NVML lists {count} other process{'es' if count > 1 else ''} on this GPU"]
    if len(others) == count:
        found += [*_memory(others), *_busy(nvml, gpu, {process.pid for process in others})]
    return f"{', '.join(found)}: their traffic is included"


def _memory(others: list[Any]) -> list[str]:
    sizes = [process.usedGpuMemory for process in others]
    return [] if None in sizes else [f"holding {sum(sizes) / GIB:.1f} GiB"]


def _busy(nvml: Any, gpu: Any, pids: set[int]) -> list[str]:
    since = int((time.time() - LOOK_BACK_SECONDS) * 1e6)
    samples, reason = ask(nvml, nvml.nvmlDeviceGetProcessUtilization, gpu, since)
    if samples is None:
        return [f"how busy they keep it is not told ({reason})"]
    # One sample a process, the newest within the time asked for; who did nothing has none.
    percent = sum(sample.smUtil for sample in samples if sample.pid in pids)
    return [f"keeping the SMs busy for {percent}% of the last second"]
