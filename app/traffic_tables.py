"""Tables of traffic: every Measurement of bytes as it was stored, and sources that measured the same side by side."""

from app.launch_chart import launch_title
from app.peak_check import above_peak, possible_hbm
from app.picture import Table
from app.requested_formula import passes
from app.selection import Comparison
from app.style import SOURCE_BADGE, seconds, traffic
from app.subject import known_schedule
from app.tensor_names import tensor_title
from profiler.run import TRUST, Measurement, Run

QUANTITIES = {
    "compulsory_bytes": "compulsory",
    "requested_read_bytes": "requested, read",
    "requested_write_bytes": "requested, written",
    "l2_sm_bytes": "L2↔SM",
    "hbm_read_bytes": "HBM, read",
    "hbm_write_bytes": "HBM, written",
    "hbm_bytes": "HBM, both",
    "gpu_time_seconds": "time",
    "l2_to_sm_bytes": "L2→SM",
    "l2_sm_read_bytes": "L2 reads",
    "spill_read_bytes": "spills, read",
    "spill_write_bytes": "spills, written",
}
# Names whose values add up to a quantity, or the one name that holds it whole.
SUMS = {
    "requested": (("requested_read_bytes", "requested_write_bytes"),),
    "L2↔SM": (("l2_sm_bytes",),),
    "HBM": (("hbm_read_bytes", "hbm_write_bytes"), ("hbm_bytes",)),
}


def measurements(found: Comparison) -> Table:
    """Every Measurement of bytes, and of the time they took, with unit, source and note; dashes say why."""
    rows, reasons = [], []
    for name, run in zip(found.names, found.runs, strict=True):
        for part in run.measurements:
            if part.name not in QUANTITIES:
                continue
            doubt = flag(run, part)
            rows.append(_row(name, part, doubt))
            reasons.append(("", "", "", part.note if part.value is None else doubt, "", "", "", ""))
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


def flag(run: Run, part: Measurement) -> str:
    """Why an HBM measurement, or the total that it is a half of, cannot be true; empty where it can."""
    if not part.name.startswith("hbm_") or part.value is None:
        return ""
    total = possible_hbm(run, part.launch)
    return above_peak(run, part.value, part.launch) or (total.reason if total.source == part.source else "")


def several_sources(found: Comparison) -> Table | None:
    """What more than one source answered, with the difference from the most trusted; None where nothing was."""
    rows, reasons = [], []
    for name, run in zip(found.names, found.runs, strict=True):
        for quantity, answers in _answers(run).items():
            (best, reference, _), *others = answers
            for source, value, note in others:
                against = f"{traffic(reference)} ({SOURCE_BADGE.get(best, best)})"
                rows.append((name, quantity, traffic(value), source, against, _apart(value, reference)))
                reasons.append(("", "", note, "", "", ""))
    columns = ("run", "quantity", "value", "source", "against", "difference")
    caption = "The same quantity by different means; how each was taken is on hover."
    return Table("Sources side by side", caption, columns, tuple(rows), tuple(reasons)) if rows else None


def _apart(value: float, reference: float) -> str:
    if value == reference:
        return "equal"
    if not reference:
        return "–"
    percent = round((value - reference) / reference * 100, 1)
    return f"{percent:+.1f}%".replace("-", "−") if percent else "<0.1%"


def _answers(run: Run) -> dict[str, list[tuple[str, float, str]]]:
    """(source, value, note) of each quantity of the whole Run that several sources answered, most trusted first."""
    table: dict[str, list[tuple[str, float, str]]] = {}
    for quantity, alternatives in SUMS.items():
        answers = []
        for source in TRUST:
            for names in alternatives:
                parts = [part for name in names if (part := run.find(name, source=source)) is not None]
                values = [part.value for part in parts if part.value is not None]
                if len(values) == len(names):
                    answers.append((source, sum(values), parts[0].note))
                    break
        if len(answers) > 1:
            table[quantity] = answers
    return table


def spelled_out(found: Comparison) -> Table:
    """How often each tensor is asked for, with its size as a product."""
    rows = tuple(
        (
            name,
            tensor_title(part.tensor),
            part.size_formula,
            traffic(part.size),
            traffic(part.read),
            traffic(part.written),
            f"{part.times:.4g}",
            "schedule",
        )
        for name, run in zip(found.names, found.runs, strict=True)
        if (plan := known_schedule(run)) is not None
        for part in passes(plan)
    )
    columns = ("run", "tensor", "batch · heads · rows · columns · bytes", "size", "read", "written", "times", "source")
    caption = "times: bytes read and written as a multiple of the tensor's size"
    return Table("Requested bytes, spelled out", caption, columns, rows)
