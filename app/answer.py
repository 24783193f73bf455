"""The answer that a comparison of Runs gives: one sentence, the line of what and how, and five figures at most."""

from dataclasses import dataclass

from app.asked import conditions
from app.four_kinds import compulsory, requested
from app.peak_check import possible_hbm
from app.picture import Figure, Headline
from app.selection import Comparison, title
from app.style import capacity, error, flop_rate, ratio, seconds, significant, traffic
from kernels.own import is_own
from profiler.admission import needs
from profiler.once_each import once_each
from profiler.own_kernel import has_own_reference, needed_flops, why_spoiled
from profiler.run import Measurement, Run
from profiler.wrong_output import WRONG, is_wrong, largest_error, why_wrong

MAX_FIGURES = 5
SPILLS_TOLD = 0.05  # of HBM bytes; spills below that explain nothing
SAME_ANSWER = 2e-2  # relative error up to which two outputs are called the same: 5 steps of bfloat16


@dataclass(frozen=True)
class Pair:
    """The Run that the page is about and the one it is held against, if there are two."""

    subject: Run
    name: str
    baseline: Run | None = None
    baseline_name: str = ""


def pair(comparison: Comparison) -> Pair:
    """The newest flash (else the newest that is not naive) against the newest naive.

    Without a naive one, against the oldest other of the same kernel, else the one that moved most through HBM. Who
    brings a kernel of their own asks of that: the newest whose bytes are known is held against the newest flash.
    """
    named = list(zip(comparison.runs, comparison.names, strict=True))
    naive = [item for item in named if item[0].workload.kernel == "naive"]
    others = [item for item in named if item[0].workload.kernel != "naive"]
    flash = [item for item in others if item[0].workload.kernel == "flash"]
    own = [item for item in others if is_own(item[0].workload.kernel)]
    told = [item for item in own if any(kind(item[0]).value is not None for kind in (possible_hbm, requested))]
    subject = (told or own or flash or others or naive)[-1]
    rest = [item for item in others if item is not subject]
    alike = [item for item in rest if item[0].workload.kernel == subject[0].workload.kernel]
    first = flash[-1:] + naive[-1:] if own else naive[-1:]
    against = [item for item in first if item is not subject] or alike[:1] or sorted(rest, key=_hbm_bytes)[-1:]
    return Pair(*subject, *against[0]) if against else Pair(*subject)


def _hbm_bytes(item: tuple[Run, str]) -> float:
    return possible_hbm(item[0]).value or 0.0


def headline(comparison: Comparison) -> Headline:
    """What was found, in words, first of outputs that are wrong; and below it of what and how it was measured."""
    two = pair(comparison)
    wrong = [why_wrong(run, title(run, name)) for run, name in zip(comparison.runs, comparison.names, strict=True)]
    return Headline(
        " ".join(filter(None, (*wrong, _sentence(two)))),
        " ".join(part for part in (_achieved(two), _settings(two), comparison.note) if part),
    )


def figures(comparison: Comparison) -> tuple[Figure, ...]:
    """HBM bytes first, missing or not; then what the Run knows of the rest."""
    two = pair(comparison)
    run, name = two.subject, two.name
    candidates = (_time(run, name), _peak_memory(run, name), _requested(two, comparison), _error(two), _compulsory(run))
    return (_hbm(two), *(figure for figure in candidates if figure.value != "–"))[:MAX_FIGURES]


def kind_in_words(comparison: Comparison) -> str:
    """Which kind of bytes the headline tells: HBM where every Run of it has them, else requested."""
    two = pair(comparison)
    return "HBM" if all(possible_hbm(run).value is not None for run in _both_runs(two)) else "requested"


def bytes_in_words(value: float, largest: float) -> str:
    """Bytes in the unit of the largest one beside it, so that a reader compares digits: 13.09 GB and 0.135 GB.

    Two decimals or three digits, whichever is more: the ratio beside them can then be checked.
    """
    unit = traffic(largest).rpartition(" ")[2]
    scaled = value / {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "B": 1.0}[unit]
    if scaled < 1e-3:
        return traffic(value)
    return f"{significant(scaled, 4 if 10 <= scaled < 100 else 3)} {unit}"


def compared(baseline: float, subject: float, less: str = "less", more: str = "more") -> str:
    """How two positive amounts relate, in words: 97 times less, 5.0 times less, about the same."""
    if min(baseline, subject) <= 0:
        return "not comparable"
    factor = baseline / subject
    if 0.95 < factor < 1.05:
        return "about the same"
    word, factor = (less, factor) if factor > 1 else (more, 1 / factor)
    return f"{_times(factor)} {word}"


def _times(factor: float) -> str:
    return f"{factor:,.0f} times" if factor >= 9.95 else f"{factor:.1f} times"


def _sentence(two: Pair) -> str:
    """HBM bytes where every Run has them, else requested bytes; the verb tells which."""
    runs = _both_runs(two)
    named = zip(runs, (two.baseline_name, two.name) if two.baseline else (two.name,), strict=True)
    names = [title(run, name) for run, name in named]
    for kind, verb, place in ((possible_hbm, "moved", " through HBM"), (requested, "requests", "")):
        sizes = [size for run in runs if (size := kind(run).value) is not None]
        if len(sizes) < len(runs):
            continue
        words = [bytes_in_words(size, max(sizes)) for size in sizes]
        if len(runs) == 2:
            relation = compared(sizes[0], sizes[1])
            return f"{names[0]} {verb} {words[0]}{place}. {names[1]} {verb} {words[1]}: {relation}."
        least = compulsory(two.subject).value
        beside = f": {_times(sizes[0] / least)} the compulsory bytes" if least else ""
        return f"{names[0]} {verb} {words[0]}{place}{beside}."
    return f"{names[-1]} ran, but its bytes are not known."


def _both_runs(two: Pair) -> list[Run]:
    return [two.subject] if two.baseline is None else [two.baseline, two.subject]


def _achieved(two: Pair) -> str:
    parts = []
    runs = _both_runs(two)
    errors = [largest_error(run)[1] for run in runs if run.value("relative_error") is not None]
    if len(errors) == len(runs):
        # Two that compute different things give no same answer, however close each is to its own.
        is_same = two.baseline is not None and max(errors) < SAME_ANSWER and not any(map(has_own_reference, runs))
        same = "Same answer to a relative error of" if is_same else "Relative error up to"
        parts.append(f"{same} {error(max(errors))} ({two.subject.workload.problem.dtype} against float64)")
    if two.baseline is not None:
        times = _both(two, "gpu_time_seconds")
        if times:
            parts.append(compared(times[0], times[1], "faster", "slower").replace("about the same", "about as fast"))
        peaks = _both(two, "peak_allocated_bytes")
        if peaks and capacity(peaks[0]) != capacity(peaks[1]):
            parts.append(f"{capacity(peaks[1])} of peak memory instead of {capacity(peaks[0])}")
    sentences = [", ".join(parts)] if parts else []
    sentences += [spoiled.rstrip(".") for run in runs if (spoiled := why_spoiled(run))]
    for run, name in ((two.subject, two.name), (two.baseline, two.baseline_name)):
        if run is not None and (spilled := _spilled(run)) > SPILLS_TOLD * (possible_hbm(run).value or 0.0) > 0:
            sentences.append(f"{title(run, name)} ran out of registers and spilled {traffic(spilled)}")
    if any(possible_hbm(run).value is None for run in runs):
        sentences.append("HBM bytes were not measured; requested bytes are what loads and stores ask for")
    return "".join(f"{sentence}. " for sentence in sentences).rstrip()


def _spilled(run: Run) -> float:
    """Bytes spilled and read back, where a Run with detail counters tells."""
    return (run.value("spill_read_bytes") or 0.0) + (run.value("spill_write_bytes") or 0.0)


def _both(two: Pair, name: str) -> tuple[float, float] | None:
    assert two.baseline is not None
    before, after = two.baseline.value(name), two.subject.value(name)
    return None if before is None or after is None else (before, after)


def _settings(two: Pair) -> str:
    run = two.subject
    parts = [run.workload.problem.label, conditions(run.workload), where(run)]
    if two.baseline is not None and (two.baseline.device.name, two.baseline.workload.l2) != (
        run.device.name,
        run.workload.l2,
    ):
        parts.append(f"{two.baseline_name} {two.baseline.workload.l2} L2 on {where(two.baseline)}: not alike")
    return f"{', '.join(filter(None, parts))}."


def where(run: Run) -> str:
    """The device a Run was made on, and that it was recorded elsewhere if it was."""
    if not run.recorded:
        return run.device.name
    driver = f", driver {run.device.driver}" if run.device.driver else ""
    return f"recorded on {run.device.name}{driver}, {run.created[:10]}"


def _hbm(two: Pair) -> Figure:
    run, found = two.subject, possible_hbm(two.subject)
    label = f"HBM bytes, {two.name}"
    if found.value is None:
        return Figure(label, "–", found.source, reason=found.reason)
    other = possible_hbm(two.baseline).value if two.baseline is not None else None
    least = compulsory(run).value
    detail = f"{ratio(found.value / least)} compulsory" if least else ""
    return Figure(label, bytes_in_words(found.value, max(found.value, other or 0)), found.source, detail)


def _time(run: Run, name: str) -> Figure:
    label, found = f"time, {name}", run.find("gpu_time_seconds")
    if found is None or found.value is None:
        return Figure(label, "–", "", reason=_reason(found, "gpu_time_seconds"))
    needed, peak = needed_flops(run), run.device.peak_flops_per_second
    if needed.value is None:
        return Figure(label, seconds(found.value), found.source, f"FLOP/s –: {needed.note}")
    rate = needed.value / found.value if found.value > 0 else None
    # The peak is that of the matrix units in 16 bits; ieee float32 does not run on them.
    share = f", {rate / peak:.0%} of peak" if rate and peak and run.workload.problem.element_bytes == 2 else ""
    return Figure(label, seconds(found.value), found.source, f"{flop_rate(rate)}{share}")


def _peak_memory(run: Run, name: str) -> Figure:
    label, found = f"peak memory, {name}", run.find("peak_allocated_bytes")
    if found is None or found.value is None:
        return Figure(label, "–", "", reason=_reason(found, "peak_allocated_bytes"))
    told = run.find("predicted_peak_bytes")
    is_untold = told is not None and told.value is None
    predicted = "" if is_untold else f"predicted {capacity(needs(run.workload).total_bytes)}"
    return Figure(label, capacity(found.value), found.source, predicted)


def _requested(two: Pair, comparison: Comparison) -> Figure:
    found, least = requested(two.subject), compulsory(two.subject).value
    detail = f"{ratio(found.value / least)} compulsory" if found.value is not None and least else ""
    text = traffic(found.value)
    if found.value is not None and kind_in_words(comparison) == "requested":
        text = bytes_in_words(found.value, max(requested(run).value or 0.0 for run in _both_runs(two)))
    return Figure(f"requested, {two.name}", text, found.source, detail, found.reason)


def _error(two: Pair) -> Figure:
    found = two.subject.find("relative_error")
    label = f"relative error, {two.name}"
    if found is None or found.value is None:
        return Figure(label, "–", "", reason=_reason(found, "relative_error"))
    if is_wrong(two.subject):
        return Figure(label, error(found.value), found.source, f"wrong: rounding explains no more than {WRONG:g}")
    other = two.baseline.value("relative_error") if two.baseline is not None else None
    detail = f"{two.baseline_name} {error(other)}" if other is not None else "against float64"
    return Figure(label, error(found.value), found.source, detail)


def _compulsory(run: Run) -> Figure:
    found = compulsory(run)
    return Figure("compulsory", traffic(found.value), found.source, once_each(run.workload.problem), found.reason)


def _reason(found: Measurement | None, name: str) -> str:
    return found.note if found is not None else f"This Run holds no {name}."
