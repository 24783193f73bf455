"""Peak memory of one forward pass as torch's allocator sees it, above a baseline taken after warm-up."""

import torch

from profiler.bench import Load
from profiler.counter import Counter, Reading
from profiler.run import DeviceInfo, Measurement


def measure(load: Load) -> Reading:
    """baseline_allocated_bytes, peak_allocated_bytes, peak_reserved_bytes of one pass."""
    device = load.device.device
    load.synchronize()
    # Workspaces and segments that earlier kernels left behind are none of this pass's memory.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    baseline = torch.cuda.memory_allocated(device)
    output = load.launch()
    load.synchronize()
    peak, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
    del output
    return Reading(
        (
            Measurement(
                "baseline_allocated_bytes", baseline, "B", "torch", "inputs (and a prepared mask), after warm-up"
            ),
            Measurement(
                "peak_allocated_bytes",
                peak,
                "B",
                "torch",
                "tensors and library workspaces alive at once during one pass",
            ),
            Measurement("peak_reserved_bytes", reserved, "B", "torch", "what the allocator took from the driver"),
        )
    )


def unavailable(device: DeviceInfo) -> str | None:
    """The caching allocator exists on GPUs only."""
    return None if device.compute_capability else "no GPU here; torch counts allocations on GPUs only"


COUNTER = Counter(
    name="torch_memory",
    title="torch allocator",
    order=10,
    phase="memory",
    quantities=(
        ("baseline_allocated_bytes", "B", "torch"),
        ("peak_allocated_bytes", "B", "torch"),
        ("peak_reserved_bytes", "B", "torch"),
    ),
    unavailable=unavailable,
    measure=measure,
)
