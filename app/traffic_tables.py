"""Tables of traffic: every Measurement of bytes as it was stored, and sources that measured the same side by side."""

from app.launch_chart import launch_title
from app.peak_check import above_peak, possible_hbm
from app.picture import Table
from app.selection import Comparison
from app.style import SOURCE_BADGE, seconds, traffic
from profiler.run import Measurement, Run

QUANTITIES = {
    "compulsory_bytes": "compulsory",
    "requested_read_bytes": "requested, read",
    "requested_write_bytes": "requested, written",
    "l2_sm_bytes": "L2↔SM",
    "hbm_read_bytes": "HBM, read",
    "hbm_write_bytes": "HBM, written",
    "hbm_bytes": "HBM, both",
    "gpu_time_seconds": "time",
}


def measurements(found: Comparison) -> Table:
    """Every Measurement of bytes, and of the time they took, with unit, source and note; dashes say why."""
    rows, reasons = [], []
    for name, run in zip(found.names, found.runs, strict=True):
        for part in run.measurements:
            if part.name not in QUANTITIES:
                continue
            flag = _flag(run, part)
            rows.append(_row(name, part, flag))
            reasons.append(("", "", "", part.note if part.value is None else flag, "", "", "", ""))
    columns = ("run", "quantity", "launch", "value", "exact", "20th to 80th percentile", "source", "note")
    caption = "As stored in the Runs; whole: the Run's launches together."
    return Table("Every measurement of traffic", caption, columns, tuple(rows), tuple(reasons))


def _row(name: str, part: Measurement, flag: str) -> tuple[str, ...]:
    spell = seconds if part.unit == "s" else traffic
    spread = f"{spell(part.spread[0])} to {spell(part.spread[1])}" if part.spread else ""
    exact = "" if part.value is None else f"{part.value:.6g} s" if part.unit == "s" else f"{part.value:,.0f} B"
    launch = launch_title(part.launch) if part.launch else "whole"
    value = f"{spell(part.value)}{' ⚠' if flag else ''}"
    return (name, QUANTITIES[part.name], launch, value, exact, spread, part.source, flag or part.note)


def _flag(run: Run, part: Measurement) -> str:
    """Why an HBM measurement, or the total that it is a half of, cannot be true; empty where it can."""
    if not part.name.startswith("hbm_") or part.value is None:
        return ""
    total = possible_hbm(run, part.launch)
    return above_peak(run, part.value, part.launch) or (total.reason if total.source == part.source else "")


def several_sources(found: Comparison) -> Table | None:
    """What more than one source answered, with the difference from the first; None where nothing was."""
    rows = []
    for name, run in zip(found.names, found.runs, strict=True):
        for quantity, answers in _answers(run).items():
            (first_source, first), *others = answers
            for source, value in others:
                apart = "equal" if value == first else f"{(value - first) / first:+.1%}" if first else "–"
                against = f"{traffic(first)} ({SOURCE_BADGE.get(first_source, first_source)})"
                rows.append((name, quantity, traffic(value), source, against, apart))
    columns = ("run", "quantity", "value", "source", "against", "difference")
    caption = "The same quantity by different means; a large difference is a reason to doubt one of them."
    return Table("Sources side by side", caption, columns, tuple(rows)) if rows else None


def _answers(run: Run) -> dict[str, list[tuple[str, float]]]:
    """(source, value) of each quantity of the whole Run that several sources answered; halves are added up."""
    table: dict[str, dict[str, float]] = {}
    for quantity, halves, whole in (
        ("requested", ("requested_read_bytes", "requested_write_bytes"), ""),
        ("HBM", ("hbm_read_bytes", "hbm_write_bytes"), "hbm_bytes"),
        ("L2↔SM", (), "l2_sm_bytes"),
    ):
        values = table.setdefault(quantity, {})
        for source in dict.fromkeys(m.source for m in run.measurements):
            ends = [end for half in halves if (end := run.find(half, source=source)) is not None]
            known = [end.value for end in ends if end.value is not None]
            total = run.find(whole, source=source) if whole else None
            if halves and len(known) == len(halves):
                values[source] = sum(known)
            elif total is not None and total.value is not None:
                values[source] = total.value
    return {quantity: list(values.items()) for quantity, values in table.items() if len(values) > 1}
