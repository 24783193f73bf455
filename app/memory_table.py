"""Memory in numbers: predicted against measured, part by part, and the longest sequences that fit."""

from collections.abc import Mapping, Sequence

from app.memory_growth import full_at
from app.memory_split import CONTEXT, DEVICE, LEFT, OTHERS, SUMS, UNPREDICTED, WHY, Part, spelled, split
from app.picture import Table
from app.style import capacity
from app.unpredicted import why_unpredicted
from kernels.problem import MAX_SEQ_LEN
from profiler.run import Run

TITLE = "Predicted and measured"
CAPTION = (
    "From the tensors up to the whole device; rows with = add up what is above. Predicted: the tensors' sizes, and "
    "where torch's caching allocator puts them if it starts empty."
)
NO_END = f"nothing up to S = {MAX_SEQ_LEN:,} fills it"
USUAL_GIB = (16, 24, 40, 80)
GIB = 2**30
BY_NVML = (CONTEXT, OTHERS, LEFT, DEVICE)


def predicted_and_measured(named: list[tuple[str, Run]]) -> Table:
    """A row for each part, two columns for each Run, and what the part is and why the numbers differ."""
    # Two Runs may bear one name, as when nothing that is told differs.
    splits = [(name, {part.name: part for part in split(run)}) for name, run in named]
    untold = [why_unpredicted(run.workload.kernel) for _, run in named]
    # In the order of WHY, which is that of every split.
    parts = [name for name in WHY if any(name in one for _, one in splits)]
    rows, reasons, sources = [], [], []
    for name in parts:
        cells = [
            cell for (_, one), reason in zip(splits, untold, strict=True) for cell in _cells(one.get(name), reason)
        ]
        rows.append((f"= {name}" if name in SUMS else name, *(text for text, *_ in cells), _why(name, splits)))
        reasons.append(("", *(reason for _, reason, _ in cells), ""))
        sources.append(("", *(source for *_, source in cells), ""))
    columns = [f"{name}, {kind}" for name, _ in named for kind in ("predicted", "measured")]
    return Table(TITLE, CAPTION, ("part", *columns, "what it is"), tuple(rows), tuple(reasons), tuple(sources))


def where_it_ends(named: list[tuple[str, Run]]) -> Table:
    """The longest S of each kernel on GPUs of usual sizes, and on the one that it ran on."""
    own = dict.fromkeys((run.device.name, run.device.memory_bytes) for _, run in named if run.device.memory_bytes)
    sizes = {f"{gib} GiB": gib * GIB for gib in USUAL_GIB} | {
        f"{capacity(size)}, {name}": size for name, size in own if size is not None
    }
    rows, reasons = [], []
    for name, run in named:
        ends = [full_at(run.workload, size) for size in sizes.values()]
        untold = why_unpredicted(run.workload.kernel)
        rows.append((name, *(f"{end:,}" if end is not None else "–" for end in ends), "" if untold else "model"))
        reasons.append(("", *("" if end is not None else untold or NO_END for end in ends), ""))
    caption = "The longest sequence whose tensors fit, context and workspaces left out. A dash says why on hover."
    return Table("Where memory ends", caption, ("kernel", *sizes, "source"), tuple(rows), tuple(reasons))


def _why(name: str, splits: Sequence[tuple[str, Mapping[str, Part]]]) -> str:
    told = [f"{run}: {one[name].difference}" for run, one in splits if name in one and one[name].difference]
    return ". ".join((WHY[name], *told))


def _cells(part: Part | None, untold: str) -> tuple[tuple[str, str, str], tuple[str, str, str]]:
    """Text, what is on hover, and source of the predicted and of the measured number; `untold` is why none is."""
    if part is None:
        return (("", "", ""), ("", "", ""))
    told, seen = (_list(tensors) for tensors in (part.predicted_tensors, part.measured_tensors))
    predicted = _cell(part.predicted, told, UNPREDICTED.get(part.name) or untold, "model")
    return predicted, _cell(part.measured, part.note or seen, part.reason, "nvml" if part.name in BY_NVML else "torch")


def _list(tensors: Mapping[str, int]) -> str:
    """The tensors of a part with their sizes, where there are several."""
    return ", ".join(f"{spelled(name)} {capacity(size)}" for name, size in tensors.items()) if len(tensors) > 1 else ""


def _cell(value: float | None, detail: str, reason: str, source: str) -> tuple[str, str, str]:
    return (capacity(value), detail, source) if value is not None else ("–", reason, "")
