"""The peak of one Run part by part: as predicted, as measured, and why the two differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from app.memory_steps import peak, title
from app.style import capacity
from app.unpredicted import why_unpredicted
from profiler.memory_model import peak_tensors, placed
from profiler.memory_names import EITHER
from profiler.memory_trace import INPUTS, OTHER, OUTPUTS, WORKSPACE
from profiler.ncu_import import is_imported
from profiler.run import Run

INPUT_PART, OUTPUT_PART, TEMPORARIES, IN_PASS = "inputs", "outputs", "temporaries", "made in the pass"
ROUNDING, ALLOCATED, CACHED, RESERVED = "rounding", "allocated", "cached", "reserved"
CONTEXT, OTHERS, LEFT, DEVICE = "CUDA context", "other processes", "not told apart", "whole device"
CUBLAS = "cuBLAS workspace"
NO_HISTORY = "This Run holds no allocator history; measure it again on a GPU."
WHY = {
    INPUT_PART: "there before the pass: the baseline after warm-up",
    OUTPUT_PART: "what the pass gives back",
    TEMPORARIES: "made and freed by the pass, alive at its peak",
    IN_PASS: "outputs, temporaries and workspaces; only an allocator history tells them apart, and this Run has none",
    WORKSPACE: "cuBLAS takes it on its first product and keeps it; no closed form has it",
    OTHER: "allocations whose tensor is not known for certain",
    ROUNDING: "blocks are multiples of 512 B, and a rest of up to 1 MiB stays with a large block",
    ALLOCATED: "torch's allocated bytes at the peak",
    CACHED: "segments come as 2 MiB, 20 MiB or multiples of 2 MiB, and what is free in them stays with torch",
    RESERVED: "allocated and cached: what torch took from the driver",
    CONTEXT: "CUDA's own memory and loaded code: this process by NVML, less reserved",
    OTHERS: "what NVML lists beside this process",
    LEFT: "the whole device less all rows above: what driver and firmware keep, and what a dash above stands for",
    DEVICE: "what nvidia-smi shows as used, right after the pass",
}
UNPREDICTED = {
    WORKSPACE: "its size is the library's choice",
    OTHER: "what no closed form names",
    CONTEXT: "it depends on the driver, the GPU and the code that is loaded",
    OTHERS: "nothing here decides it",
    LEFT: "it is what NVML does not tell apart",
    DEVICE: "it holds parts that cannot be predicted",
}
SUMS = (ALLOCATED, RESERVED, DEVICE)


@dataclass(frozen=True)
class Part:
    """One part of the peak, in bytes; None where it is not known, then `reason` says why it was not measured.

    The tensors that each number is made of stand beside it, as far as they are known. `difference` says why the two
    numbers differ, `note` what is to be known of the measured one.
    """

    name: str
    predicted: float | None
    measured: float | None
    reason: str = ""
    predicted_tensors: Mapping[str, int] = field(default_factory=dict)
    measured_tensors: Mapping[str, int] = field(default_factory=dict)
    difference: str = ""
    note: str = ""


def split(run: Run) -> tuple[Part, ...]:
    """Every part of a Run's peak, SUMS among them, in the order in which they add up to the whole device."""
    parts = _split(run)
    if not why_unpredicted(run.workload.kernel):
        return parts
    # What it is given and gives back is known, unless it is not ours to call.
    known = () if is_imported(run.workload.kernel) else (INPUT_PART, OUTPUT_PART)
    return tuple(
        part if part.name in known else replace(part, predicted=None, predicted_tensors={}, difference="")
        for part in parts
    )


def _split(run: Run) -> tuple[Part, ...]:
    work = run.workload
    sizes = peak_tensors(work.attention_kernel, work.problem, work.tile)
    # O is made last, after whatever it is made of.
    fresh = placed([sizes[name] for name in sorted(sizes, key=lambda name: name == "o")])
    alive = None if run.memory is None else peak(run.memory).alive
    total, reserved = run.value("peak_allocated_bytes"), run.value("peak_reserved_bytes")
    reason = _reason(run, "peak_allocated_bytes")
    is_untold = alive is None and total is not None
    parts = _untold(run, sizes, total, reason) if is_untold else _tensors(sizes, alive, reason)
    if alive is not None:
        parts.append(_rounding(float(fresh.allocated - sum(sizes.values())), total, sum(alive.values()), reason))
    cached = None if total is None or reserved is None else reserved - total
    told = fresh.reserved - fresh.allocated
    context, others = run.value("context_bytes"), run.value("other_processes_bytes")
    device = _whole_device(run)
    return (
        *parts,
        Part(ALLOCATED, fresh.allocated, total, reason, difference=_more(fresh.allocated, total, alive)),
        Part(CACHED, told, cached, reason, difference=_more_cached(told, cached)),
        Part(RESERVED, fresh.reserved, reserved, reason),
        Part(CONTEXT, None, context, _reason(run, "context_bytes")),
        Part(OTHERS, None, others, _reason(run, "other_processes_bytes")),
        _left(device, [size for size in (reserved, context, others) if size is not None]),
        device,
    )


def group(name: str) -> str:
    """The part that a tensor of the history belongs to."""
    if name in (WORKSPACE, OTHER):
        return name
    first = name.partition(EITHER)[0]
    return INPUT_PART if first in INPUTS else OUTPUT_PART if first in OUTPUTS else TEMPORARIES


def largest_group(run: Run) -> tuple[float, list[str]]:
    """Bytes and tensors of the largest part at the peak; of the predicted one where there is no history."""
    work = run.workload
    predicted = peak_tensors(work.attention_kernel, work.problem, work.tile)
    sizes = predicted if run.memory is None else peak(run.memory).alive
    groups = _by_group(sizes) or _by_group(predicted)
    found = max(groups.values(), key=lambda tensors: sum(tensors.values()))
    return float(sum(found.values())), [spelled(name) for name in found]


def _tensors(sizes: Mapping[str, int], alive: Mapping[str, int] | None, reason: str) -> list[Part]:
    """The tensors by group, as predicted, and as a history has them; without one nothing was measured."""
    names = (INPUT_PART, OUTPUT_PART, TEMPORARIES, WORKSPACE, OTHER)
    told, seen = _by_group(sizes), _by_group(alive or {})
    return [
        Part(
            name,
            None if name in UNPREDICTED else float(sum(told.get(name, {}).values())),
            None if alive is None else float(sum(seen.get(name, {}).values())),
            reason,
            predicted_tensors=told.get(name, {}),
            measured_tensors=seen.get(name, {}),
        )
        for name in names
    ]


def _untold(run: Run, sizes: Mapping[str, int], total: float | None, reason: str) -> list[Part]:
    """Of a Run without history: its baseline, and what came on top of it as a whole."""
    before = run.value("baseline_allocated_bytes")
    inputs = _by_group(sizes)[INPUT_PART]
    made = {name: size for name, size in sizes.items() if name not in inputs}
    fresh = None if before is None or total is None else total - before
    return [
        Part(INPUT_PART, sum(inputs.values()), before, reason, inputs),
        Part(IN_PASS, sum(made.values()), fresh, reason, made),
    ]


def _rounding(predicted: float, total: float | None, asked: int, reason: str) -> Part:
    """What blocks have beyond the bytes that were asked for."""
    if total is not None and total < asked:
        return Part(ROUNDING, predicted, None, "The history holds more than torch counts, so one of the two is wrong.")
    return Part(ROUNDING, predicted, None if total is None else total - asked, reason)


def _whole_device(run: Run) -> Part:
    """Right after the pass; of older Runs the most that NVML saw during all of the measuring."""
    after, ever = run.value("device_memory_bytes"), run.value("nvml_memory_used_bytes")
    if after is None and ever is not None:
        return Part(DEVICE, None, ever, note="the most of the whole measuring, not right after the pass")
    return Part(DEVICE, None, after, _reason(run, "device_memory_bytes"))


def _left(device: Part, above: Sequence[float]) -> Part:
    """What the whole device holds beyond all that is known above: derived, and not where it was read another time."""
    if device.measured is None or device.note:
        return Part(LEFT, None, None, device.reason or f"The whole device is {device.note}.")
    left = device.measured - sum(above)
    if left < 0:
        return Part(LEFT, None, None, "NVML tells less for the whole device than for what is on it.")
    return Part(LEFT, None, left, note="derived: no source tells it by itself")


def _by_group(sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for name, size in sizes.items():
        if size:
            found.setdefault(group(name), {})[name] = size
    return found


def spelled(name: str) -> str:
    """A tensor's name, or that of what is none, as people write it."""
    none = {WORKSPACE: CUBLAS, OTHER: "tensors without a name"}
    return none.get(name) or (name if name in WHY else title(name))


def _more(predicted: float, measured: float | None, alive: Mapping[str, int] | None) -> str:
    """Why more was allocated than predicted."""
    if measured is None or measured == predicted:
        return ""
    size = capacity(abs(measured - predicted))
    if measured < predicted:
        return f"{size} less than predicted"
    made = [name for name in (WORKSPACE, OTHER) if alive and alive.get(name)]
    beyond = " and ".join(map(spelled, made)) or "workspaces and rounding, which are not predicted"
    return f"{size} more: {beyond}"


def _more_cached(predicted: float, measured: float | None) -> str:
    if measured is None or measured == predicted:
        return ""
    if measured > predicted:
        return f"{capacity(measured - predicted)} more: segments of earlier work that still hold something"
    return f"{capacity(predicted - measured)} less: a tensor found room in a segment that was there before"


def _reason(run: Run, name: str) -> str:
    measurement = run.find(name)
    return "This Run does not hold it." if measurement is None else measurement.note
