"""What a comparison of two Runs says: the answer as a sentence, and the five figures behind it."""

from app import style
from app.answer import bytes_in_words, where
from app.peak_check import possible_hbm
from app.picture import Figure, Headline
from app.report_tables import spelled
from app.selection import title
from app.traffic_tables import flag
from kernels.own import is_own
from profiler.compare import Compared
from profiler.compare_row import SAME, WITHIN, WITHIN_ONE, Row
from profiler.compare_table import ratio
from profiler.own_kernel import needed_flops
from profiler.run import Run

# What is told first; of bytes the whole, else what a source tells instead.
FIGURES = {
    "hbm_bytes": "HBM bytes",
    "gpu_time_seconds": "time",
    "l2_sm_bytes": "L2↔SM bytes",
    "requested_bytes": "requested bytes",
    "peak_allocated_bytes": "peak memory",
    "relative_error": "relative error",
    "l2_hit_percent": "L2 hits",
}
MAX_FIGURES = 5
TIMES = 1.5  # from here on a change is told as a factor, below in percent
TO_BE_TOLD = 5e-4  # changes below are the same to three digits


def headline(compared: Compared) -> Headline:
    """What changed, in words, and below it what else is not alike."""
    one, other = (
        _title(run, name) for run, name in zip((compared.before, compared.after), compared.names, strict=True)
    )
    count = len(compared.differences)
    alike = f"{count} circumstance{'' if count == 1 else 's'} differ{'s' if count == 1 else ''}" if count else ""
    detail = f"{alike or 'Problem, kernel, tile, method, device and versions are the same'}. {_place(compared)}"
    if not compared.is_one_problem:
        return Headline(_of_two_problems(compared, one, other), " ".join((*compared.warnings, detail)))
    return Headline(_sentence(compared, one, other), " ".join((*compared.warnings, _faster(compared), detail)).strip())


def _title(run: Run, name: str) -> str:
    """What a Run is called in a sentence; a kernel that is not Bytescope's by its whole name."""
    return name if is_own(run.workload.kernel) else title(run, name)


def _sentence(compared: Compared, one: str, other: str) -> str:
    for quantity, verb, place in (("hbm_bytes", "moved", " through HBM"), ("requested_bytes", "requests", "")):
        row = compared.find(quantity)
        if row is None or row.before is None or row.after is None or not row.is_told or doubt(compared, row):
            continue
        sizes = [row.before.value or 0.0, row.after.value or 0.0]
        words = [bytes_in_words(size, max(sizes)) for size in sizes]
        return f"{one} {verb} {words[0]}{place}, {other} {words[1]}: {change(row)}."
    return f"{one} and {other}: neither HBM nor requested bytes are known of both."


def _of_two_problems(compared: Compared, one: str, other: str) -> str:
    """What can be told of two problems: HBM bytes as a multiple of what each must move."""
    shares = [hbm_share(run) for run in (compared.before, compared.after)]
    if None in shares:
        return f"{one} and {other} compute different problems: bytes and times are not compared."
    first, second = (ratio(share).removesuffix("×") for share in shares)
    return f"{one} moved {first} times its compulsory bytes through HBM, {other} {second} times."


def hbm_share(run: Run) -> float | None:
    """HBM bytes as a multiple of the compulsory bytes; None where they are not known or cannot be true."""
    moved = possible_hbm(run).value
    return None if moved is None else moved / run.workload.problem.compulsory_bytes


def flop_rate(run: Run) -> float | None:
    """FLOP per second of the operations that are needed; None where they are not known, or without a time."""
    time, flops = run.value("gpu_time_seconds"), needed_flops(run).value
    return flops / time if time and flops is not None else None


def _faster(compared: Compared) -> str:
    row = compared.find("gpu_time_seconds")
    if row is None or row.ratio is None:
        return ""
    if row.verdict == SAME:
        return "As fast."
    is_factor = max(row.ratio, 1 / row.ratio) >= TIMES
    words = change(row, "faster", "slower") if is_factor else f"{change(row)} time"
    return f"{words[0].upper()}{words[1:]}, {row.verdict}."


def _place(compared: Compared) -> str:
    places = dict.fromkeys(where(run) for run in (compared.before, compared.after))
    problem = f"{compared.before.workload.problem.label}, " if compared.is_one_problem else ""
    words = f"{problem}{' against '.join(places)}."
    return f"{words[0].upper()}{words[1:]}"


def change(row: Row, less: str = "less", more: str = "more") -> str:
    """A ratio in words: 97 times less, 3.1% more, the same."""
    if row.verdict == SAME:
        return "the same"
    if row.ratio is None:
        return "not comparable"
    word, factor = (more, row.ratio) if row.ratio > 1 else (less, 1 / row.ratio)
    if factor >= TIMES:
        return f"{f'{factor:,.0f}' if factor >= 9.95 else f'{factor:.1f}'} times {word}"
    share = abs(row.ratio - 1)
    return f"{style.significant(share * 100, 2)}% {word}" if share >= TO_BE_TOLD else f"the same to {TO_BE_TOLD:.2%}"


def figures(compared: Compared) -> tuple[Figure, ...]:
    """The change of the first quantities of FIGURES that either Run tells; a dash has its reason.

    Of two problems, what does not grow with them.
    """
    if not compared.is_one_problem:
        return _rates(compared)
    found = [(label, row) for name, label in FIGURES.items() if (row := compared.find(name)) is not None]
    told = [item for item in found if item[1].is_told]
    return tuple(_figure(label, row, doubt(compared, row)) for label, row in (told or found)[:MAX_FIGURES])


def _rates(compared: Compared) -> tuple[Figure, ...]:
    runs = (compared.before, compared.after)
    time = compared.after.find("gpu_time_seconds")
    found = [
        ("HBM / compulsory", [hbm_share(run) for run in runs], ratio, possible_hbm(compared.after).source),
        ("FLOP per second", [flop_rate(run) for run in runs], style.flop_rate, time.source if time else ""),
    ]
    needed = zip(compared.names, map(needed_flops, runs), strict=True)
    unknown = "; ".join(f"{name}: {part.note}" for name, part in needed if part.value is None)
    rates = [
        Figure(label, spell(values[1]), source, f"instead of {spell(values[0])}")
        for label, values, spell, source in found
        if None not in values
    ]
    if unknown:
        rates.append(Figure("FLOP per second", "–", "", reason=unknown))
    told = [(label, row) for name, label in FIGURES.items() if (row := compared.find(name)) and row.ratio is not None]
    return (*rates, *(_figure(label, row, doubt(compared, row)) for label, row in told))[:MAX_FIGURES]


def doubt(compared: Compared, row: Row) -> str:
    """Why HBM bytes of one of both Runs cannot be true, so that they are not told as a fact; empty where they can."""
    both = ((compared.before, row.before), (compared.after, row.after))
    flags = [flag(run, side) for run, side in both if side is not None and side.value is not None]
    return next(filter(None, flags), "")


def _figure(label: str, row: Row, doubt: str) -> Figure:
    values = " → ".join(
        spelled(row.name, row.unit, None if side is None else side.value) for side in (row.before, row.after)
    )
    source = row.sources[0] if len(row.sources) == 1 else ""
    if doubt:
        return Figure(label, "–", source, reason=doubt)
    if row.verdict == SAME:
        return Figure(label, "the same", source, values)
    if row.ratio is None:
        return Figure(label, "–", source, reason=f"{values}: {row.reason}")
    sources = f", {' against '.join(row.sources)}" if len(row.sources) > 1 else ""
    return Figure(label, _short(change(row)), source, f"{values}, {row.verdict}{sources}")


def _short(words: str) -> str:
    return words.replace(" times", "×").removesuffix(f" to {TO_BE_TOLD:.2%}")


def judged(row: Row) -> str:
    """Better, worse, or empty where neither can be said: no direction, no ratio, or within the spread."""
    if not row.better or row.worsening is None or row.verdict in (SAME, WITHIN, WITHIN_ONE):
        return ""
    return "worse" if row.worsening > 1 else "better"
