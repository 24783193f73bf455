"""GPU facts: read through NVML where it answers, from one table for GPUs that are not here; free of torch."""

import os
import platform
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernels.base import GpuLimits
from profiler.architecture import ARCHITECTURES, Architecture
from profiler.nvml import NoGpu, ask, open_nvml, visible_gpus
from profiler.plausible import DEVICE_LIMITS, MAX_CAPABILITY, printable
from profiler.run import DeviceInfo

MiB = 2**20
DENSE = "datasheet, dense FP16 / BF16"
MOST_HBM = 1e15  # B/s; the fastest GPU has less than a hundredth of it
FIRST_BFLOAT16 = (8, 0)  # the compute capability from which tensor cores take bfloat16


@dataclass(frozen=True)
class GpuSpec:
    """A row of GPUS. Bytes, bytes/s and FLOP/s.

    flops are dense FP16 / BF16 tensor FLOP/s accumulated in float32; fp32_flops those of float32 without tensor cores.
    """

    title: str
    compute_capability: tuple[int, int]
    sm_count: int
    hbm_bytes_per_second: float
    l2_bytes: int
    flops_per_second: float
    fp32_flops_per_second: float
    nvml_names: tuple[str, ...]  # without the vendor's name in front

    @property
    def architecture(self) -> Architecture:
        """What each of its SMs has."""
        return ARCHITECTURES[self.compute_capability]

    @property
    def shared_memory_per_sm(self) -> int:
        """Bytes of shared memory that one SM has."""
        return self.architecture.shared_memory_per_sm

    @property
    def shared_memory_per_block(self) -> int:
        """Bytes of shared memory that one block may use."""
        return self.architecture.shared_memory_per_block

    @property
    def has_bfloat16(self) -> bool:
        """Tensor cores take bfloat16 from Ampere on."""
        return self.compute_capability >= FIRST_BFLOAT16

    @property
    def limits(self) -> GpuLimits:
        """What one CTA may use on it."""
        return GpuLimits(self.title, self.compute_capability, self.shared_memory_per_block)


# NVIDIA's datasheets and architecture whitepapers.
GPUS = {
    "v100": GpuSpec(
        "V100 SXM2", (7, 0), 80, 900e9, 6 * MiB, 125e12, 15.7e12, ("Tesla V100-SXM2-16GB", "Tesla V100-SXM2-32GB")
    ),
    "t4": GpuSpec("T4", (7, 5), 40, 320e9, 4 * MiB, 65e12, 8.1e12, ("Tesla T4",)),
    "a10": GpuSpec("A10", (8, 6), 72, 600e9, 6 * MiB, 125e12, 31.2e12, ("A10",)),
    "a100-40": GpuSpec("A100 SXM 40 GB", (8, 0), 108, 1555e9, 40 * MiB, 312e12, 19.5e12, ("A100-SXM4-40GB",)),
    "a100": GpuSpec("A100 SXM 80 GB", (8, 0), 108, 2039e9, 40 * MiB, 312e12, 19.5e12, ("A100-SXM4-80GB",)),
    "rtx3090": GpuSpec("RTX 3090", (8, 6), 82, 936e9, 6 * MiB, 71e12, 35.6e12, ("GeForce RTX 3090",)),
    "l4": GpuSpec("L4", (8, 9), 58, 300e9, 48 * MiB, 121e12, 30.3e12, ("L4",)),
    "l40s": GpuSpec("L40S", (8, 9), 142, 864e9, 96 * MiB, 362e12, 91.6e12, ("L40S",)),
    "rtx4090": GpuSpec("RTX 4090", (8, 9), 128, 1008e9, 72 * MiB, 165e12, 82.6e12, ("GeForce RTX 4090",)),
    "h100": GpuSpec("H100 SXM", (9, 0), 132, 3350e9, 50 * MiB, 989e12, 67e12, ("H100 80GB HBM3",)),
    "h200": GpuSpec("H200 SXM", (9, 0), 132, 4800e9, 60 * MiB, 989e12, 67e12, ("H200",)),
    "b200": GpuSpec("B200", (10, 0), 148, 8000e9, 126 * MiB, 2250e12, 80e12, ("B200",)),
    "rtx5090": GpuSpec("RTX 5090", (12, 0), 170, 1792e9, 96 * MiB, 209e12, 104.8e12, ("GeForce RTX 5090",)),
}


def find_spec(nvml_name: str) -> GpuSpec | None:
    """The row of exactly this product; a near name (H100 PCIe, A10G, a MIG instance) is another product."""
    name = nvml_name.removeprefix("NVIDIA ")
    return next((spec for spec in GPUS.values() if name in spec.nvml_names), None)


def as_in_table(device: DeviceInfo) -> DeviceInfo:
    """A GPU that is not here, with what the table knows of its name where it is not told; why no peak is known, else.

    What is told must fit the table: another capability or number of SMs is another product, or a part of one.
    """
    spec = find_spec(device.name)
    cc, sms = device.compute_capability, device.sm_count
    if spec is None or cc not in (None, spec.compute_capability) or sms not in (None, spec.sm_count):
        other = "is not" if spec is None else f"has other SMs than {spec.title}"
        reason = f"{device.name} {other} in the table of GPUs"
        return replace(device, peak_hbm_source=reason, peak_flops_source=reason)
    return replace(
        device,
        compute_capability=spec.compute_capability,
        sm_count=spec.sm_count,
        l2_bytes=device.l2_bytes or spec.l2_bytes,
        shared_memory_per_block=spec.shared_memory_per_block,
        shared_memory_per_sm=spec.shared_memory_per_sm,
        warps_per_sm=spec.architecture.warps_per_sm,
        peak_hbm_bytes_per_second=spec.hbm_bytes_per_second,
        peak_hbm_source="datasheet",
        peak_flops_per_second=spec.flops_per_second,
        peak_flops_source=DENSE,
    )


def compute_peak(device: DeviceInfo, dtype: str) -> tuple[float | None, str]:
    """The most FLOP/s that the device makes on inputs of a dtype, and from where; None and why.

    float32 means ieee float32, which tensor cores do not multiply.
    """
    if device.compute_capability is None:
        return None, f"{device.name} is no GPU, and no peak is known of it"
    spec = find_spec(device.name)
    if dtype == "float32":
        if spec is None:
            return None, f"{device.name} is not in the table of GPUs"
        return spec.fp32_flops_per_second, "datasheet, float32 without tensor cores"
    if dtype == "bfloat16" and device.compute_capability < FIRST_BFLOAT16:
        return None, f"the tensor cores of {device.name} take no bfloat16"
    return device.peak_flops_per_second, device.peak_flops_source or "the Run does not tell it"


def detect() -> tuple[DeviceInfo, ...]:
    """The GPUs that CUDA programs started here see, in CUDA's order with CUDA_DEVICE_ORDER=PCI_BUS_ID; may be none."""
    try:
        with open_nvml() as nvml:
            return tuple(describe(nvml, gpu, ordinal) for ordinal, gpu in enumerate(visible_gpus(nvml)))
    except NoGpu:
        return ()


def why_no_gpu() -> str | None:
    """A sentence on why `detect` finds none, or None where it finds some."""
    try:
        with open_nvml() as nvml:
            visible_gpus(nvml)
    except NoGpu as reason:
        return str(reason)
    return None


def cpu_device() -> DeviceInfo:
    """This machine's processor and memory."""
    name = platform.processor() or platform.machine()
    with suppress(OSError):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        name = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), name)
    memory = None
    with suppress(OSError, ValueError):
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return DeviceInfo("cpu", name, memory_bytes=memory)


def cpu_free_bytes() -> int | None:
    """Host memory that a new tensor could take; None where the system does not tell."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="utf-8").splitlines()
        available = next(line.split()[1] for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        return None
    return int(available) * 1024


def limits(device: DeviceInfo) -> GpuLimits | None:
    """What one CTA may use on the device; None on the CPU, and on a GPU whose limits are not known."""
    if device.compute_capability is None or device.shared_memory_per_block is None:
        return None
    return GpuLimits(device.name, device.compute_capability, device.shared_memory_per_block)


def gpu_handle(nvml: Any, device: DeviceInfo) -> Any:
    """The NVML handle of a detected GPU. Raises NoGpu."""
    gpus, ordinal = visible_gpus(nvml), int(device.device.removeprefix("cuda:"))
    if ordinal >= len(gpus):
        raise NoGpu(f"NVML sees {len(gpus)} GPUs; {device.device} is not among them.")
    return gpus[ordinal]


def describe(nvml: Any, gpu: Any, ordinal: int) -> DeviceInfo:
    """All facts of one GPU; None for what neither NVML nor the table knows, and for what no GPU has."""
    name = printable(ask(nvml, nvml.nvmlDeviceGetName, gpu)[0] or "") or "NVIDIA GPU without a name"
    memory, _ = ask(nvml, nvml.nvmlDeviceGetMemoryInfo, gpu)
    capability, _ = ask(nvml, nvml.nvmlDeviceGetCudaComputeCapability, gpu)
    if capability is not None and not (1 <= capability[0] <= MAX_CAPABILITY and 0 <= capability[1] <= MAX_CAPABILITY):
        capability = None
    spec, sm = find_spec(name), ARCHITECTURES.get(capability)
    peak, peak_source = _peak_hbm(nvml, gpu, spec)
    told = DeviceInfo(
        device=f"cuda:{ordinal}",
        name=name,
        memory_bytes=(memory and memory.total) or None,
        compute_capability=capability,
        sm_count=_sm_count(nvml, gpu, capability) or (spec.sm_count if spec else None),
        l2_bytes=spec.l2_bytes if spec else None,
        shared_memory_per_block=sm.shared_memory_per_block if sm else None,
        shared_memory_per_sm=sm.shared_memory_per_sm if sm else None,
        warps_per_sm=sm.warps_per_sm if sm else None,
        peak_hbm_bytes_per_second=peak,
        peak_hbm_source=peak_source,
        peak_flops_per_second=spec.flops_per_second if spec else None,
        peak_flops_source=DENSE if spec else f"{name} is not in the table of GPUs",
        driver=printable(ask(nvml, nvml.nvmlSystemGetDriverVersion)[0] or "") or None,
    )
    values = ((name, getattr(told, name), most) for name, most in DEVICE_LIMITS.items())
    impossible: dict[str, Any] = {name: None for name, value, most in values if value and not 1 <= value <= most}
    return replace(told, **impossible)


def _peak_hbm(nvml: Any, gpu: Any, spec: GpuSpec | None) -> tuple[float | None, str]:
    if ask(nvml, nvml.nvmlDeviceGetGpuInstanceId, gpu)[0] is not None:
        return None, "NVML does not tell a MIG instance's share of the bandwidth"
    megahertz, no_clock = ask(nvml, nvml.nvmlDeviceGetMaxClockInfo, gpu, nvml.NVML_CLOCK_MEM)
    bits, no_width = ask(nvml, nvml.nvmlDeviceGetMemoryBusWidth, gpu)
    if megahertz and bits and 2 * megahertz * 1e6 * bits / 8 <= MOST_HBM:
        # NVML tells the clock whose both edges carry data, for GDDR and HBM alike.
        return 2 * megahertz * 1e6 * bits / 8, f"NVML: 2 × {megahertz} MHz × {bits} bit / 8"
    if spec:
        return spec.hbm_bytes_per_second, "datasheet"
    return None, no_clock or no_width or "NVML tells no memory clock or bus width"


def _sm_count(nvml: Any, gpu: Any, capability: tuple[int, int] | None) -> int | None:
    attributes, _ = ask(nvml, nvml.nvmlDeviceGetAttributes, gpu)
    if attributes is not None:
        return int(attributes.multiprocessorCount)
    cores, _ = ask(nvml, nvml.nvmlDeviceGetNumGpuCores, gpu)
    if not cores or capability not in ARCHITECTURES:
        return None
    return int(cores) // ARCHITECTURES[capability].fp32_cores
