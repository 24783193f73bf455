"""Which GPUs are here, asked by a process of its own: a driver's library may crash or hang whoever loads it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kernels.problem import Refused
from profiler.codec import NotARun, decode
from profiler.run import DeviceInfo
from profiler.throwaway import NoAnswer, throwaway
from profiler.workload import CPU

ASK = ("-m", "profiler.gpu_sample", "--once")
SECONDS = 60.0  # a driver of many GPUs that nobody uses may take half of it to start


def present_gpus() -> tuple[tuple[DeviceInfo, ...], str]:
    """The GPUs that CUDA programs started here see, and why there is none, empty where there is one.

    Raises Refused where the driver's library crashes or hangs: nobody knows then.
    """
    try:
        said = _answer()
        devices = decode(tuple[DeviceInfo, ...], said.get("devices"), "devices")
        return devices, str(said.get("why_no_gpu") or "")
    except (NoAnswer, NotARun) as fault:
        raise Refused(f"Whether there is a GPU here is not known. {fault} Or name a device, such as cpu.") from fault


def default_device() -> str:
    """The first GPU, else the CPU. Raises Refused where nobody knows."""
    devices, _ = present_gpus()
    return devices[0].device if devices else CPU


def _answer() -> dict[str, Any]:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(_ask())
    # Whoever asks has an event loop already, as a notebook has.
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, _ask()).result()


async def _ask() -> dict[str, Any]:
    async with throwaway(ASK, "NVML") as process:
        return await process.hear(SECONDS)
