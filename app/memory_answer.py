"""What the Memory page says: who holds how much at the peak, what most of it is, and where a GPU is full."""

from app.answer import Pair, compared, pair, where
from app.memory_growth import full_at
from app.memory_split import largest_group
from app.picture import Figure, Headline
from app.selection import Comparison, title
from app.style import capacity
from app.unpredicted import why_unpredicted
from kernels.problem import MAX_SEQ_LEN
from profiler.memory_model import peak_tensors
from profiler.run import Run

PEAK, BASELINE = "peak_allocated_bytes", "baseline_allocated_bytes"
HOW = "torch's allocator in one pass, above a baseline taken after warm-up"


def headline(found: Comparison) -> Headline:
    """The peaks in words: measured where all that can be known are, else predicted; and whose peak is not known."""
    two = pair(found)
    named = shown(two)
    told = [(name, run) for name, run in named if not _is_untold(run)]
    is_measured = all(run.value(PEAK) is not None for _, run in told)
    peaks = [_peak(run, is_measured) for _, run in told]
    words = [
        f"{title(run, name)} {'needs' if _is_predicted(run, is_measured) else 'holds'} {capacity(peak)} at its peak"
        for (name, run), peak in zip(told, peaks, strict=True)
    ]
    if told:
        words[0] += _mostly(told[0][1])
    if len(told) == 2 and len({_is_predicted(run, is_measured) for _, run in told}) == 1:
        words[1] += f": {compared(peaks[0], peaks[1])}"
    words += [f"What {title(run, name)} holds at its peak is not known" for name, run in named if _is_untold(run)]
    problem = two.subject.workload.problem.label
    how = _how(named, told, is_measured)
    return Headline(f"{'. '.join(words)}.", f"{problem}, {where(two.subject)}. {how} {found.note}".strip())


def _how(named: list[tuple[str, Run]], told: list[tuple[str, Run]], is_measured: bool) -> str:
    """Where the numbers come from, and why there is none of the others."""
    sentences = [HOW] if any(not _is_predicted(run, is_measured) for _, run in told) else []
    if not is_measured:
        sentences.append(f"Predicted from the tensors' sizes; not measured: {_why_not(told)}")
    for name, run in named:
        if _is_untold(run):
            untold = why_unpredicted(run.workload.kernel)
            sentences.append(f"{title(run, name)}: not measured: {_why_not([(name, run)])}; not predicted: {untold}")
    return "".join(f"{sentence.rstrip('.')}. " for sentence in sentences).rstrip()


def _is_untold(run: Run) -> bool:
    """Whether a peak was neither measured nor can be predicted."""
    return run.value(PEAK) is None and bool(why_unpredicted(run.workload.kernel))


def _is_predicted(run: Run, is_measured: bool) -> bool:
    return not is_measured and not why_unpredicted(run.workload.kernel)


def _why_not(named: list[tuple[str, Run]]) -> str:
    found = next(run.find(PEAK) for _, run in named if run.value(PEAK) is None)
    return "the Run does not hold its peak" if found is None else found.note


def shown(two: Pair) -> list[tuple[str, Run]]:
    """The Runs that the page is about, the baseline first."""
    before = [] if two.baseline is None else [(two.baseline_name, two.baseline)]
    return [*before, (two.name, two.subject)]


def _peak(run: Run, is_measured: bool) -> float:
    measured = run.value(PEAK)
    if measured is not None and not _is_predicted(run, is_measured):
        return measured
    work = run.workload
    return float(sum(peak_tensors(work.attention_kernel, work.problem, work.tile).values()))


def _mostly(run: Run) -> str:
    """The largest group of tensors, where it is known."""
    if run.memory is None and why_unpredicted(run.workload.kernel):
        return ""
    size, names = largest_group(run)
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f", {capacity(size)} of it {joined}"


def figures(found: Comparison) -> tuple[Figure, ...]:
    """Peaks, the baseline, and the sequence length at which each kernel fills its GPU."""
    two = pair(found)
    peaks = tuple(_peak_figure(name, run) for name, run in shown(two))
    ends = tuple(figure for name, run in shown(two) if (figure := _full_figure(name, run)) is not None)
    return (*peaks, _baseline(two.subject, two.name), *ends)[:5]


def _peak_figure(name: str, run: Run) -> Figure:
    label, measurement, untold = f"peak, {name}", run.find(PEAK), why_unpredicted(run.workload.kernel)
    if measurement is not None and measurement.value is not None:
        detail = "not predicted" if untold else f"predicted {capacity(_peak(run, False))}"
        return Figure(label, capacity(measurement.value), measurement.source, detail)
    if untold:
        return Figure(label, "–", "", reason=f"not measured, and {untold}")
    return Figure(label, capacity(_peak(run, False)), "model", "not measured")


def _baseline(run: Run, name: str) -> Figure:
    label, measurement = f"baseline, {name}", run.find(BASELINE)
    if measurement is None or measurement.value is None:
        return Figure(label, "–", "", reason="not held" if measurement is None else measurement.note)
    return Figure(label, capacity(measurement.value), measurement.source, "there before the pass")


def _full_figure(name: str, run: Run) -> Figure | None:
    limit, label = run.device.memory_bytes, f"full at S, {name}"
    if untold := why_unpredicted(run.workload.kernel):
        return Figure(label, "–", "", reason=untold)
    if limit is None:
        return None
    end = full_at(run.workload, limit)
    if end is None:
        return Figure(label, f"beyond {MAX_SEQ_LEN:,}", "model", f"the longest tried does not fill {capacity(limit)}")
    return Figure(label, f"{end:,}", "model", f"fills {capacity(limit)}")
