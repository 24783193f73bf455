"""The peak of one Run part by part: as predicted, as measured, and why the two differ."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.memory_steps import peak, title
from app.style import capacity
from profiler.memory_model import peak_tensors, placed
from profiler.memory_names import EITHER
from profiler.memory_trace import INPUTS, OTHER, OUTPUTS, WORKSPACE
from profiler.run import Run

INPUT_PART, OUTPUT_PART, TEMPORARIES, IN_PASS = "inputs", "O and LSE", "temporaries", "made in the pass"
ROUNDING, ALLOCATED, CACHED, RESERVED = "rounding", "allocated", "cached", "reserved"
CONTEXT, OTHERS, DEVICE = "CUDA context", "other processes", "whole device"
CUBLAS = "cuBLAS workspace"
NO_HISTORY = "This Run holds no allocator history; measure it again on a GPU."
WHY = {
    INPUT_PART: "there before the pass: the baseline after warm-up",
    OUTPUT_PART: "what the pass gives back",
    TEMPORARIES: "made and freed by the pass, alive at its peak",
    IN_PASS: "O, LSE, temporaries and workspaces; only an allocator history tells them apart, and this Run has none",
    WORKSPACE: "cuBLAS takes it on its first product and keeps it; no closed form has it",
    OTHER: "allocations whose tensor is not known for certain",
    ROUNDING: "blocks are multiples of 512 B, and a rest of up to 1 MiB stays with a large block",
    ALLOCATED: "torch's allocated bytes at the peak",
    CACHED: "segments come as 2 MiB, 20 MiB or multiples of 2 MiB, and what is free in them stays with torch",
    RESERVED: "allocated and cached: what torch took from the driver",
    CONTEXT: "CUDA's own memory and loaded code: this process by NVML, less reserved",
    OTHERS: "what NVML lists beside this process",
    DEVICE: "what nvidia-smi shows as used, right after the pass",
}
UNPREDICTED = {
    WORKSPACE: "its size is the library's choice",
    OTHER: "what no closed form names",
    CONTEXT: "it depends on the driver, the GPU and the code that is loaded",
    OTHERS: "nothing here decides it",
    DEVICE: "it holds parts that cannot be predicted",
}
SUMS = (ALLOCATED, RESERVED, DEVICE)


@dataclass(frozen=True)
class Part:
    """One part of the peak, in bytes; None where it is not known, then `reason` says why it was not measured.

    `tensors` spells what it is made of, `label` names it by them; `difference` says why the two numbers differ,
    `note` what is to be known of the measured one.
    """

    name: str
    predicted: float | None
    measured: float | None
    reason: str = ""
    tensors: str = ""
    label: str = ""
    difference: str = ""
    note: str = ""


def split(run: Run) -> tuple[Part, ...]:
    """Every part of a Run's peak, SUMS among them, in the order in which they add up to the whole device."""
    work = run.workload
    sizes = peak_tensors(work.attention_kernel, work.problem, work.tile)
    # O is made last, after whatever it is made of.
    fresh = placed([sizes[name] for name in sorted(sizes, key=lambda name: name == "o")])
    alive = None if run.memory is None else peak(run.memory).alive
    total, reserved = run.value("peak_allocated_bytes"), run.value("peak_reserved_bytes")
    reason = _reason(run, "peak_allocated_bytes")
    parts = _untold(run, sizes, total, reason) if alive is None else _tensors(sizes, alive)
    if alive is not None:
        measured = None if total is None else max(0.0, total - sum(alive.values()))
        parts.append(Part(ROUNDING, float(fresh.allocated - sum(sizes.values())), measured, reason))
    cached = None if total is None or reserved is None else reserved - total
    told = fresh.reserved - fresh.allocated
    return (
        *parts,
        Part(ALLOCATED, fresh.allocated, total, reason, difference=_more(fresh.allocated, total, alive)),
        Part(CACHED, told, cached, reason, label="cached by torch", difference=_more_cached(told, cached)),
        Part(RESERVED, fresh.reserved, reserved, reason),
        Part(CONTEXT, None, run.value("context_bytes"), _reason(run, "context_bytes")),
        Part(OTHERS, None, run.value("other_processes_bytes"), _reason(run, "other_processes_bytes")),
        _whole_device(run),
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
    groups: dict[str, list[str]] = {}
    for name in sizes:
        groups.setdefault(group(name), []).append(name)
    found = max(groups.values(), key=lambda names: sum(sizes[name] for name in names))
    return float(sum(sizes[name] for name in found)), [_spelled(name) for name in found]


def _tensors(sizes: Mapping[str, int], alive: Mapping[str, int]) -> list[Part]:
    names = (INPUT_PART, OUTPUT_PART, TEMPORARIES, WORKSPACE, OTHER)
    predicted, measured = dict.fromkeys(names, 0.0), dict.fromkeys(names, 0.0)
    for name, size in sizes.items():
        predicted[group(name)] += size
    for name, size in alive.items():
        measured[group(name)] += size
    return [
        Part(
            name,
            None if name in UNPREDICTED else predicted[name],
            measured[name],
            tensors=_list(sizes, name),
            label=_label(sizes, name),
        )
        for name in names
    ]


def _untold(run: Run, sizes: Mapping[str, int], total: float | None, reason: str) -> list[Part]:
    """Of a Run without history: its baseline, and what came on top of it as a whole."""
    before = run.value("baseline_allocated_bytes")
    inputs = sum(size for name, size in sizes.items() if group(name) == INPUT_PART)
    made = {name: size for name, size in sizes.items() if group(name) != INPUT_PART}
    spelled = ", ".join(f"{title(name)} {capacity(size)}" for name, size in made.items())
    fresh = None if before is None or total is None else total - before
    return [
        Part(INPUT_PART, inputs, before, reason, _list(sizes, INPUT_PART), _label(sizes, INPUT_PART)),
        Part(IN_PASS, sum(made.values()), fresh, reason, spelled, IN_PASS),
    ]


def _whole_device(run: Run) -> Part:
    """Right after the pass; of older Runs the most that NVML saw during all of the measuring."""
    after, ever = run.value("device_memory_bytes"), run.value("nvml_memory_used_bytes")
    if after is None and ever is not None:
        return Part(DEVICE, None, ever, note="the most of the whole measuring, not right after the pass")
    return Part(DEVICE, None, after, _reason(run, "device_memory_bytes"))


def _list(sizes: Mapping[str, int], part: str) -> str:
    return ", ".join(f"{title(name)} {capacity(size)}" for name, size in sizes.items() if group(name) == part)


def _label(sizes: Mapping[str, int], part: str) -> str:
    return ", ".join(title(name) for name in sizes if group(name) == part) or part


def _spelled(name: str) -> str:
    return {WORKSPACE: CUBLAS, OTHER: "tensors without a name"}.get(name) or title(name)


def _more(predicted: float, measured: float | None, alive: Mapping[str, int] | None) -> str:
    """Why more was allocated than predicted."""
    if measured is None or measured == predicted:
        return ""
    size = capacity(abs(measured - predicted))
    if measured < predicted:
        return f"{size} less than predicted"
    made = [name for name in (WORKSPACE, OTHER) if alive and alive.get(name)]
    beyond = " and ".join(map(_spelled, made)) or "workspaces and rounding, which are not predicted"
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
