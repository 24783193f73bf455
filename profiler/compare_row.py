"""One quantity of two Runs: both values, their ratio where it means something, and whether it is beyond the spread."""

from dataclasses import dataclass

from profiler.run import MEASURED, Measurement

BEYOND = "beyond the spread"  # the percentile ranges of the repeats do not overlap
WITHIN = "within the spread"
BEYOND_ONE = "beyond the one spread"  # the other value was measured once
WITHIN_ONE = "within the one spread"
SAME = "the same"
EXACT = "differs, exact"  # a closed form, a schedule, a trace and a list of kernels have no spread
ONCE = "differs, measured once"  # nothing says how far a repeat would be off
MISSING = "missing"
UNRELATED = "not compared"

LESS, MORE = "less is better", "more is better"
BETTER = {"B": LESS, "s": LESS, "J": LESS, "B/s": MORE}  # by unit
BETTER_BY_NAME = {"_error": LESS, "_hit_percent": MORE}  # by the end of the name, where the unit tells nothing
# What grows with the problem: of two problems, its ratio says how they differ and not how the kernels do.
EXTENSIVE = ("B", "s", "FLOP", "J")
NO_ZERO = "°C"  # its zero is arbitrary, so that a ratio means nothing
COUNTED_EXACTLY = ("interpreter", "cupti-callback")
WHICH = ("first", "second")


@dataclass(frozen=True)
class Row:
    """One quantity of both Runs, of one launch or of the whole Run.

    `ratio` is after / before, or None; `reason` says why, or what else to know. A side is None where that Run does
    not hold the quantity at all.
    """

    name: str
    launch: str | None
    unit: str
    before: Measurement | None
    after: Measurement | None
    ratio: float | None
    verdict: str
    reason: str = ""

    @property
    def better(self) -> str:
        """LESS, MORE, or empty where neither is better in itself."""
        by_name = (better for end, better in BETTER_BY_NAME.items() if self.name.endswith(end))
        return next(by_name, BETTER.get(self.unit, ""))

    @property
    def worsening(self) -> float | None:
        """How many times worse the second Run is: the ratio, turned over where more is better; None without one."""
        return self.ratio if self.ratio is None or self.better != MORE else 1 / self.ratio

    @property
    def sources(self) -> tuple[str, ...]:
        """Who told the values, or else gave the reasons, each once."""
        sides = [side for side in (self.before, self.after) if side is not None]
        told = [side.source for side in sides if side.value is not None]
        return tuple(dict.fromkeys(told or [side.source for side in sides]))

    @property
    def is_told(self) -> bool:
        """Whether both Runs have a value."""
        return all(side is not None and side.value is not None for side in (self.before, self.after))


def row(
    name: str, launch: str | None, before: Measurement | None, after: Measurement | None, is_one_problem: bool
) -> Row:
    """The Row of two Measurements, of which one at least is there."""
    unit = next(side.unit for side in (before, after) if side is not None)
    if before is None or after is None or before.value is None or after.value is None:
        return Row(name, launch, unit, before, after, None, MISSING, _why_missing(before, after))
    verdict = _verdict(before, after)
    ratio, reason = None, ""
    if before.unit != after.unit:
        verdict, reason = UNRELATED, f"one is in {before.unit}, the other in {after.unit}"
    elif unit in EXTENSIVE and not is_one_problem:
        verdict, reason = UNRELATED, "it grows with the problem, and the problems differ"
    elif unit == NO_ZERO:
        reason = "degrees Celsius have no ratio"
    elif before.value == 0 or after.value == 0:
        reason = "both are 0" if before.value == after.value else "there is no ratio to 0"
    else:
        ratio = after.value / before.value
    sources = f"by {before.source} against {after.source}" if before.source != after.source else ""
    return Row(name, launch, unit, before, after, ratio, verdict, "; ".join(filter(None, (reason, sources))))


def _why_missing(before: Measurement | None, after: Measurement | None) -> str:
    reasons = []
    for which, side in zip(WHICH, (before, after), strict=True):
        if side is None:
            reasons.append(f"the {which} Run does not hold it")
        elif side.value is None:
            reasons.append(f"the {which} Run: {side.note.rstrip('.')} ({side.source})")
    return "; ".join(reasons)


def _verdict(before: Measurement, after: Measurement) -> str:
    """Whether a change is more than repeats differ."""
    if before.value == after.value:
        return SAME
    if before.spread is None and after.spread is None:
        is_exact = all(side.source not in MEASURED or side.source in COUNTED_EXACTLY for side in (before, after))
        return EXACT if is_exact else ONCE
    (low, high), (other_low, other_high) = map(_range, (before, after))
    is_beyond = other_low > high or low > other_high
    if before.spread is None or after.spread is None:
        return BEYOND_ONE if is_beyond else WITHIN_ONE
    return BEYOND if is_beyond else WITHIN


def _range(side: Measurement) -> tuple[float, float]:
    value = side.value or 0.0
    return side.spread or (value, value)
