"""Peak memory of one pass as torch's allocator and NVML see it, above a baseline taken after warm-up."""

from typing import Any

import torch

from kernels.run import Output
from profiler.bench import Load
from profiler.counter import Counter, Reading
from profiler.memory_names import Known, named
from profiler.memory_recorder import NotRecorded, Recorder, recording
from profiler.memory_trace import MemoryTrace
from profiler.process_memory import NAMES, process_memory
from profiler.run import DeviceInfo, Measurement

EVENTS = "allocator_events"


def measure(load: Load) -> Reading:
    """Baseline, peak and reserve of one pass, the allocator's events in it, and who holds the GPU's memory after it."""
    device = load.device.device
    load.synchronize()
    # Workspaces and segments that earlier kernels left behind are none of this pass's memory.
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats(device)
    baseline = torch.cuda.memory_allocated(device)
    with recording(device) as recorder:
        output = load.launch(recorder.launch)
        load.synchronize()
        peak, reserved = torch.cuda.max_memory_allocated(device), torch.cuda.max_memory_reserved(device)
        held = process_memory(load.device, torch.cuda.memory_reserved(device))
        recorder.stop()
    trace, events = _trace(recorder, load, output)
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
            events,
            *held,
        ),
        memory=trace,
    )


def _trace(recorder: Recorder, load: Load, output: Any) -> tuple[MemoryTrace | None, Measurement]:
    """The allocator's events with their tensors' names, and how many there are; or None with the reason."""
    try:
        trace = named(recorder.trace(), _known(recorder, load, output))
    except NotRecorded as reason:
        return None, Measurement(EVENTS, None, "1", "torch", str(reason))
    note = "allocations, frees and segments of the memory pass, as torch's memory history has them"
    return trace, Measurement(EVENTS, float(len(trace.events)), "1", "torch", note)


def _known(recorder: Recorder, load: Load, output: Any) -> Known:
    given = output.named() if isinstance(output, Output) else {}
    return Known(
        before={tensor.data_ptr(): name for name, tensor in load.tensors.before.items()},
        outputs={tensor.data_ptr(): name for name, tensor in given.items()},
        workspaces=recorder.workspaces,
        sizes=load.tensors.sizes,
        writes=load.tensors.writes,
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
        (EVENTS, "1", "torch"),
        *((name, "B", "nvml") for name in NAMES),
    ),
    unavailable=unavailable,
    measure=measure,
)
