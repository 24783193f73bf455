"""What the Memory page says: who holds how much at the peak, what most of it is, and where a GPU is full."""

from app.answer import Pair, compared, pair, where
from app.growth_chart import tokens
from app.memory_growth import full_at
from app.memory_split import largest_group
from app.picture import Figure, Headline
from app.selection import Comparison, title
from app.style import capacity
from kernels.own import is_own
from profiler.memory_model import peak_tensors
from profiler.run import Run

PEAK, BASELINE = "peak_allocated_bytes", "baseline_allocated_bytes"
HOW = "torch's allocator in one pass, above a baseline taken after warm-up"


def headline(found: Comparison) -> Headline:
    """The peaks in words: measured where both are, else predicted."""
    two = pair(found)
    named = shown(two)
    is_measured = all(run.value(PEAK) is not None for _, run in named)
    verb = "holds" if is_measured else "needs at least" if any(map(_is_untold, named)) else "needs"
    words = [f"{title(run, name)} {verb} {capacity(_peak(run, is_measured))} at its peak" for name, run in named]
    words[0] += f", {_mostly(named[0][1])}"
    if len(named) == 2:
        less = compared(_peak(named[0][1], is_measured), _peak(named[1][1], is_measured))
        words[1] += f": {less}"
    how = HOW if is_measured else f"Predicted from the tensors' sizes; not measured: {_why_not(named)}"
    problem = two.subject.workload.problem.label
    return Headline(f"{'. '.join(words)}.", f"{problem}, {where(two.subject)}. {how}. {found.note}".strip())


def _is_untold(named: tuple[str, Run]) -> bool:
    """Of a kernel of the user's own, inputs and O alone are known beforehand."""
    return is_own(named[1].workload.kernel)


def _why_not(named: list[tuple[str, Run]]) -> str:
    found = next(run.find(PEAK) for _, run in named if run.value(PEAK) is None)
    return "the Run does not hold its peak" if found is None else found.note


def shown(two: Pair) -> list[tuple[str, Run]]:
    """The Runs that the page is about, the baseline first."""
    before = [] if two.baseline is None else [(two.baseline_name, two.baseline)]
    return [*before, (two.name, two.subject)]


def _peak(run: Run, is_measured: bool) -> float:
    measured = run.value(PEAK)
    if is_measured and measured is not None:
        return measured
    work = run.workload
    return float(sum(peak_tensors(work.attention_kernel, work.problem, work.tile).values()))


def _mostly(run: Run) -> str:
    """The largest group of tensors."""
    size, names = largest_group(run)
    joined = names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
    return f"{capacity(size)} of it {joined}"


def figures(found: Comparison) -> tuple[Figure, ...]:
    """Peaks, the baseline, and the sequence length at which each kernel fills its GPU."""
    two = pair(found)
    peaks = tuple(_peak_figure(name, run) for name, run in shown(two))
    ends = tuple(figure for name, run in shown(two) if (figure := _full_figure(name, run)) is not None)
    return (*peaks, _baseline(two.subject, two.name), *ends)[:5]


def _peak_figure(name: str, run: Run) -> Figure:
    measurement, predicted = run.find(PEAK), capacity(_peak(run, False))
    if measurement is None or measurement.value is None:
        detail = "inputs and O alone, not measured" if _is_untold((name, run)) else "not measured"
        return Figure(f"peak, {name}", predicted, "model", detail)
    detail = "not predicted" if _is_untold((name, run)) else f"predicted {predicted}"
    return Figure(f"peak, {name}", capacity(measurement.value), measurement.source, detail)


def _baseline(run: Run, name: str) -> Figure:
    label, measurement = f"baseline, {name}", run.find(BASELINE)
    if measurement is None or measurement.value is None:
        return Figure(label, "–", "", reason="not held" if measurement is None else measurement.note)
    return Figure(label, capacity(measurement.value), measurement.source, "there before the pass")


def _full_figure(name: str, run: Run) -> Figure | None:
    limit = run.device.memory_bytes
    if limit is None or _is_untold((name, run)):
        return None
    end = full_at(run.workload, limit)
    value, fills = ("beyond 16M", "nothing fills") if end is None else (tokens(end), f"S = {end:,} fills")
    return Figure(f"full at S, {name}", value, "model", f"{fills} {capacity(limit)}")
