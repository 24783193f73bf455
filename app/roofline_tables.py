"""Tables of a roofline: which roof limits each Run and launch, and what the roofs are."""

from collections.abc import Sequence

from app.level_table import percent
from app.picture import Table
from app.roofline_work import Work
from app.roofs import COMPUTE, HBM, L2, Roof, why_other_peak
from app.style import bandwidth, flop_rate, seconds, significant
from profiler.own_kernel import has_own_reference
from profiler.roofline import ridge
from profiler.run import Run

BEYOND = 1.02  # of a copy's bandwidth: what two timings of the same may differ by
WITHOUT_COMPUTE = "Of the roofs of memory alone: without FLOP nothing is known of compute."
NO_ENERGY = "Measured with the detail counters (--detail); this Run is without."


def limits(found: Sequence[Work], title: str) -> Table:
    """A row for each Run and launch: FLOP, intensities, FLOP/s, the lowest roof over it and the share of it reached."""
    rows = [_row(work) for work in found]
    columns = (
        *("run", "launch", "time", "FLOP", "HBM, FLOP/B", "L2↔SM, FLOP/B", "reached", "limited by", "share of it"),
        "energy",
    )
    own = [work.name for work in found if work.launch is None and has_own_reference(work.run)]
    counted = f" Of {', '.join(own)}, which is not attention: those counted on tensor cores, if any." if own else ""
    caption = (
        "FLOP of a Run: those that its problem needs, without hidden scores; of a launch: those that it makes."
        f"{counted} Limited "
        "by: the lowest roof at these intensities; far below it something else holds the work back, such as latency or "
        "exponentials."
    )
    return Table(
        title, caption, columns,
        tuple(texts for texts, _, _, _ in rows), tuple(reasons for _, reasons, _, _ in rows),
        tuple(sources for _, _, sources, _ in rows), tuple(fills for _, _, _, fills in rows),
    )  # fmt: skip


Row = tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], tuple[float | None, ...]]


def _row(work: Work) -> Row:
    time = work.run.find("gpu_time_seconds", work.launch)
    at = {level: work.intensity(level) for level in (HBM, L2)}
    whys = {level: "" if at[level] is not None else _why_no_intensity(work, level) for level in (HBM, L2)}
    limited = work.limited
    roof, share = ("–", None) if limited is None else (limited[0].name, limited[1])
    spent, no_energy = (None, "") if work.launch else energy(work.run)
    texts = (
        work.name,
        "whole" if work.launch is None else work.title,
        seconds(work.seconds),
        "–" if work.flops is None else _flop(work.flops),
        *("–" if at[level] is None else significant(at[level] or 0.0) for level in (HBM, L2)),
        flop_rate(work.reached) if work.reached != 0 else "–",
        roof,
        "–" if share is None else f"{percent(share)}{' ⚠' if share > BEYOND else ''}",
        "" if work.launch else joules(spent),
    )
    no_time = "" if work.seconds else "This Run holds no time." if time is None else time.note
    no_flops = work.why_no_flops
    made = work.run.value("tensor_flops", work.launch)
    executed = (
        "" if made is None else f"Its tensor cores executed {_flop(made)}, as counted: masked tiles and padding too."
    )
    reached = "" if work.reached else work.doubt or no_time or no_flops or "It makes no FLOP: it moves bytes."
    reasons = (
        *("", "", no_time, no_flops or executed, whys[HBM], whys[L2], reached),
        (no_flops and WITHOUT_COMPUTE) if limited is not None else no_time or "No roof of this GPU is known.",
        _beyond(work),
        no_energy,
    )
    sources = ("", "", "", work.flops_source, "", "", "", "", "", "" if spent is None else "nvml")
    return texts, reasons, sources, (*(None,) * 8, share if share is None or share > BEYOND else min(share, 1.0), None)


def _flop(value: float) -> str:
    return flop_rate(value).removesuffix("/s") if value else "0"


def _why_no_intensity(work: Work, level: str) -> str:
    part = work.moved[level]
    if part.value is None:
        return part.reason
    return work.why_no_flops or "No bytes were counted."


def _beyond(work: Work) -> str:
    """What a share above a roof that was measured means; a peak that is passed has made its number doubtful before."""
    if work.limited is None or work.limited[1] <= BEYOND:
        return ""
    return f"More than {work.limited[0].in_words}, which is what was tried and no limit of nature."


def energy(run: Run) -> tuple[float | None, str]:
    """Joules of a pass of a Run, or None and why."""
    found = run.find("energy_joules")
    if found is None:
        return None, "This Run does not hold it: run it again." if run.workload.detail else NO_ENERGY
    return found.value, "" if found.value is not None else found.note


def joules(value: float | None) -> str:
    """Energy: 0.61 J, 12.3 mJ."""
    if value is None:
        return "–"
    if value >= 1:
        return f"{significant(value)} J"
    return f"{significant(value * 1e3)} mJ" if value >= 1e-3 else f"{significant(value * 1e6)} µJ"


def roof_table(roofs: Sequence[Roof], runs: Sequence[Run], title: str) -> Table:
    """A row for each roof: its rate, from which intensity on compute is lower, and how it was obtained."""
    peaks = [roof.rate for roof in roofs if roof.level == COMPUTE and roof.rate]
    rows, reasons = [], []
    for roof in roofs:
        spell = flop_rate if roof.level == COMPUTE else bandwidth
        meets = ""
        if roof.level != COMPUTE:
            meets = "–" if roof.rate is None or not peaks else significant(ridge(roof.rate, max(peaks)))
        told = roof.told[:1].upper() + roof.told[1:]
        rows.append((roof.name, spell(roof.rate), meets, told, roof.source))
        reasons.append(("", told if roof.rate is None else "", "", "", ""))
    others = "".join(f" {run.workload.kernel}: {why}." for run in runs if (why := why_other_peak(run)))
    caption = (
        "Of a copy, bytes read and written together. Copies and reads were timed on this GPU; peaks are what pins and "
        f"vendor allow.{others}"
    )
    columns = ("roof", "rate", "ridge, FLOP/B", "how it was obtained", "source")
    return Table(title, caption, columns, tuple(rows), tuple(reasons))
