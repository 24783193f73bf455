"""A GPU to compile for and to count CTAs on: one of the table by its name, or the present one by its facts."""

from dataclasses import dataclass, replace

from kernels.base import GpuLimits
from kernels.problem import Refused
from profiler.architecture import ARCHITECTURES, Architecture
from profiler.device import GPUS
from profiler.run import DeviceInfo


@dataclass(frozen=True)
class GpuTarget:
    """What decides how many programs a GPU holds at once. `name` is what --gpu takes, or a device such as cuda:0."""

    name: str
    title: str
    compute_capability: tuple[int, int]
    sm_count: int
    sm: Architecture

    @property
    def limits(self) -> GpuLimits:
        """What one CTA may use on it."""
        return GpuLimits(self.title, self.compute_capability, self.sm.shared_memory_per_block)


def gpu_target(name: str) -> GpuTarget:
    """The GPU of that name in profiler.device.GPUS. Raises Refused with the names that are known."""
    spec = GPUS.get(name.lower())
    if spec is None:
        raise Refused(f"GPU {name[:40]!r} is not known; choose {', '.join(GPUS)}.")
    return GpuTarget(name.lower(), spec.title, spec.compute_capability, spec.sm_count, spec.architecture)


def target_of(device: DeviceInfo) -> tuple[GpuTarget | None, str]:
    """The GPU that these facts describe, or None with the reason; what they tell goes before the table."""
    capability = device.compute_capability
    if capability is None:
        return None, f"{device.name} is no NVIDIA GPU whose compute capability is known"
    table = ARCHITECTURES.get(capability)
    if table is None:
        return None, f"how many CTAs an SM of compute capability {spell(capability)} holds is not known"
    if device.sm_count is None:
        return None, f"how many SMs {device.name} has is not known"
    sm = replace(
        table,
        shared_memory_per_sm=device.shared_memory_per_sm or table.shared_memory_per_sm,
        shared_memory_per_block=device.shared_memory_per_block or table.shared_memory_per_block,
        warps_per_sm=device.warps_per_sm or table.warps_per_sm,
    )
    return GpuTarget(device.device, device.name, capability, device.sm_count, sm), ""


def spell(capability: tuple[int, int]) -> str:
    """A compute capability as people write it, such as 9.0."""
    return f"{capability[0]}.{capability[1]}"
