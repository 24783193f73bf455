"""What can be measured on here: the GPUs that NVML tells of, then the CPU, and the memory each has free now."""

from functools import cache

import streamlit as st

from profiler.device import cpu_device, cpu_free_bytes
from profiler.gpu_feed import GpuFeed
from profiler.run import DeviceInfo
from profiler.workload import CPU

FIRST_ANSWER_SECONDS = 3.0  # NVML may start slowly; after this the page opens on the CPU


@st.cache_resource(show_spinner=False)
def feed() -> GpuFeed:
    """The server's one source of live GPU readings; the first caller waits for its first word."""
    source = GpuFeed()
    source.wait_for_answer(FIRST_ANSWER_SECONDS)
    return source


def devices() -> dict[str, DeviceInfo]:
    """Every device by the name that a Workload uses, GPUs first."""
    return {info.device: info for info in (*feed().devices(), _cpu())}


def why_no_gpu() -> str | None:
    """Why nothing can be measured on a GPU here; None where something can."""
    return None if feed().devices() else feed().why_no_gpu or "NVML names no GPU."


def free_bytes(device: str) -> int | None:
    """Memory that a new tensor could take; None where it cannot be read."""
    if device != CPU:
        sample = feed().latest(device)
        return None if sample is None else sample.memory_free_bytes
    return cpu_free_bytes()


def device_line(device: str, is_running: bool) -> str:
    """One line on a device: its name, whether it runs our Job or is busy otherwise, and how much memory is used."""
    info = devices().get(device)
    if info is None:
        return f"{device} is not here"
    sample = feed().latest(device) if device != CPU else None
    busy = None if sample is None else sample.gpu_busy_percent
    doing = "running" if is_running else f"busy {busy:.0f}%" if busy is not None and busy >= 1 else "idle"
    if sample is None or sample.memory_used_bytes is None or sample.memory_total_bytes is None:
        return f"{info.name} · {doing}"
    used, total = sample.memory_used_bytes / 2**30, sample.memory_total_bytes / 2**30
    return f"{info.name} · {doing} · {used:.0f} of {total:.0f} GiB used"


@cache
def _cpu() -> DeviceInfo:
    return cpu_device()
