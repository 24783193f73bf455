"""Who holds a GPU's memory, as NVML tells it: this process, the others, the device as a whole."""

import os
from dataclasses import dataclass
from typing import Any

from profiler.device import gpu_handle
from profiler.nvml import NoGpu, ask, open_nvml
from profiler.run import DeviceInfo, Measurement

NAMES = ("process_memory_bytes", "context_bytes", "other_processes_bytes", "device_memory_bytes")
WHEN = "right after the memory pass, its output still held"


@dataclass(frozen=True)
class Held:
    """Bytes of this process, of all others and of the device, None where NVML does not tell; `reason` says why."""

    own: int | None
    others: int | None
    device: int | None
    reason: str = ""
    device_reason: str = ""


def who_holds(nvml: Any, gpu: Any) -> Held:
    """What NVML says now. In a container it may know this process by another number."""
    memory, no_memory = ask(nvml, nvml.nvmlDeviceGetMemoryInfo, gpu, nvml.nvmlMemory_v2)
    device = None if memory is None else int(memory.used)
    processes, reason = ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, gpu)
    if processes is None:
        return Held(None, None, device, reason, no_memory)
    if not processes:
        reason = "NVML lists no process on this GPU, as in a container that hides them, though this one is there"
        return Held(None, None, device, reason, no_memory)
    own = [process for process in processes if process.pid == os.getpid()]
    # Where one process is listed it is this one, whatever its number: it has a context here.
    own = own or (processes if len(processes) == 1 else [])
    if not own:
        reason = (
            f"NVML lists {len(processes)} processes by numbers of outside this container; which is this one is unknown"
        )
        return Held(None, None, device, reason, no_memory)
    if any(process.usedGpuMemory is None for process in processes):
        return Held(None, None, device, "NVML does not tell how much memory each process holds here", no_memory)
    used = int(own[0].usedGpuMemory)
    return Held(used, sum(int(process.usedGpuMemory) for process in processes) - used, device, "", no_memory)


def process_memory(device: DeviceInfo, reserved: int) -> tuple[Measurement, ...]:
    """NAMES as Measurements, now, where torch holds `reserved` bytes; each has a value or a reason."""
    try:
        with open_nvml() as nvml:
            held = who_holds(nvml, gpu_handle(nvml, device))
    except NoGpu as error:
        held = Held(None, None, None, str(error), str(error))
    context = None if held.own is None else held.own - reserved
    reason = held.reason
    if context is not None and context < 0:
        context, reason = None, "NVML tells less for this process than torch's allocator has reserved"
    return (
        _measurement("process_memory_bytes", held.own, f"this process, {WHEN}", held.reason),
        _measurement(
            "context_bytes", context, "CUDA context and loaded code: this process less torch's reserve", reason
        ),
        _measurement("other_processes_bytes", held.others, f"all other processes, {WHEN}", held.reason),
        _measurement("device_memory_bytes", held.device, f"the whole device, {WHEN}", held.device_reason),
    )


def _measurement(name: str, value: int | None, note: str, reason: str) -> Measurement:
    return Measurement(
        name, None if value is None else float(value), "B", "nvml", note if value is not None else reason
    )
