"""What can be measured here, what cannot, and why."""

from rich.table import Table

from profiler.counter import all_counters
from profiler.device import cpu_device, detect, why_no_gpu
from profiler.run import DeviceInfo
from profiler.workload import CPU


def default_device() -> str:
    """The first GPU, else the CPU."""
    return next((device.device for device in detect()), CPU)


def answers(device: DeviceInfo) -> list[tuple[str, str | None]]:
    """(title, None or the reason why not) of every source of numbers on one device."""
    return [(counter.title, counter.unavailable(device)) for counter in all_counters()]


def table() -> Table:
    """One row for each device and source, after what needs neither GPU nor permission."""
    result = Table("Device", "Source", "Available", "Why not, and what would allow it")
    result.add_row("any", "schedule: requested bytes, tile steps", "yes", "")
    result.add_row("any", "softmax state, errors against float64", "yes", "")
    found = detect()
    if not found:
        result.add_row("cpu", "requested bytes as Triton's interpreter sees them", "yes", "")
    for device in found or (cpu_device(),):
        for title, reason in answers(device):
            result.add_row(f"{device.device} {device.name}", title, "no" if reason else "yes", reason or "")
    if not found:
        result.caption = f"{why_no_gpu()} Kernels are interpreted; recorded Runs show a GPU."
    return result
