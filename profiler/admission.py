"""What a Workload needs, and whether this device can give it: every refusal that depends on the device at hand."""

from collections.abc import Mapping
from dataclasses import dataclass

from kernels.base import GpuLimits
from kernels.problem import Refused, TileConfig
from profiler.memory_model import peak_tensors
from profiler.run import DeviceInfo
from profiler.workload import Workload

GIB = 2**30
INTERPRETED_STEP_SECONDS = 0.006  # of one 64×64 tile at head_dim 64, trace included, on a busy core
MAX_INTERPRETED_STEPS = 18_000
MAX_CPU_FLOPS = 200_000_000_000


@dataclass(frozen=True)
class Needs:
    """Bytes that a Workload allocates at its peak, by tensor, and the work it does."""

    tensors: Mapping[str, int]
    tile_steps: int
    flops: int  # computed, hidden scores included where the kernel computes them

    @property
    def total_bytes(self) -> int:
        """Bytes of all tensors together."""
        return sum(self.tensors.values())


def needs(workload: Workload) -> Needs:
    """Inputs, O and temporaries as the kernel predicts them; the flush buffer and libraries come on top."""
    kernel, problem = workload.attention_kernel, workload.problem
    tile = workload.tile or TileConfig()
    steps = kernel.schedule(problem, tile).tile_steps
    all_scores = problem.batch * problem.heads * problem.seq_len_q * problem.seq_len_kv
    products = 7 if problem.backward else 2
    flops = problem.flops if kernel.is_tiled else 2 * products * all_scores * problem.head_dim
    return Needs(peak_tensors(kernel, problem, tile), steps, flops)


def admit(workload: Workload, device: DeviceInfo, limits: GpuLimits | None, free_bytes: int | None) -> None:
    """Raise Refused, with a sentence that says what to change, if `workload` cannot run on `device` now.

    free_bytes is the memory that the device has left; None where it is not known, then memory is not checked. limits
    is None on the CPU, and for a GPU that no table holds: then only the worker, which asks torch, can check them.
    """
    if workload.on_gpu and device.compute_capability is None:
        raise Refused(f"There is no GPU {workload.device} here; choose device cpu, or open a recorded Run.")
    kernel, problem = workload.attention_kernel, workload.problem
    if limits is not None or not workload.on_gpu:
        kernel.refuse(problem, workload.tile or TileConfig(), limits)
    need = needs(workload)
    if free_bytes is not None and need.total_bytes > free_bytes:
        raise Refused(
            f"{kernel.title} needs {need.total_bytes / GIB:.1f} GiB ({_largest(need)}) but {device.name} has "
            f"{free_bytes / GIB:.1f} GiB free; choose a shorter sequence, fewer heads or only flash."
        )
    if not workload.on_gpu and need.tile_steps > MAX_INTERPRETED_STEPS:
        raise Refused(
            f"Without a GPU the kernel is interpreted, about {INTERPRETED_STEP_SECONDS * 1e3:.0f} ms a tile step; "
            f"{need.tile_steps:,} steps would take {need.tile_steps * INTERPRETED_STEP_SECONDS / 60:,.0f} minutes. "
            f"Stay below {MAX_INTERPRETED_STEPS:,}: choose a shorter sequence, fewer heads or larger tiles."
        )
    if not workload.on_gpu and need.flops > MAX_CPU_FLOPS:
        raise Refused(
            f"Without a GPU this problem's {need.flops / 1e9:,.0f} GFLOP would take minutes; "
            "choose a shorter sequence, fewer heads, or open a recorded H200 run."
        )


def _largest(need: Needs) -> str:
    name, size = max(need.tensors.items(), key=lambda item: item[1])
    return f"{name.upper()} alone {size / GIB:.1f}"
