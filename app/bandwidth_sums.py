"""Bytes under the curves of bandwidth over time, all samples of them, beside what other counters counted."""

from dataclasses import dataclass, replace

import numpy as np

from app.picture import Table
from app.resample import FloatArray
from app.sampled import SOURCE, Sampled, sampled
from app.selection import Comparison
from app.style import traffic
from profiler.run import TRUST, Measurement, Run
from profiler.workload import LADDER

# Title, the Sampled's field, the Measurement that counts the same, and whether what the drain moves is the pass's.
QUANTITIES = (
    ("HBM, read", "read", "hbm_read_bytes", False),
    ("HBM, written", "write", "hbm_write_bytes", True),
    ("L2↔SM", "l2_sm", "l2_sm_bytes", False),
)
IMPOSSIBLE = "Holds samples above the peak, which cannot be true."
UNMARKED = "The drain is not marked, so what it moved cannot be told apart."


def under_the_curve(found: Comparison) -> Table | None:
    """Bytes of all samples, whose they are, and what was counted beside them; None where nothing was sampled."""
    rows, reasons, sources = [], [], []
    for run_name, run in zip(found.names, found.runs, strict=True):
        samples = sampled(run)
        if isinstance(samples, str):
            continue
        for title, field, name, is_drained in QUANTITIES:
            values, counted = getattr(samples, field), _counted(run, found.runs, name)
            cells = _cells(samples, values, is_drained, run.workload.drain, counted)
            rows.append((run_name, title, *(cell.text for cell in cells)))
            reasons.append(("", "", *(cell.reason for cell in cells)))
            sources.append(("", "", *(cell.source for cell in cells)))
    if not rows:
        return None
    columns = ("run", "quantity", "under the curve", "in the drain", "of the pass", "counted", "difference")
    counters = " or ".join(dict.fromkeys(source for *_, source, _ in sources if source))
    caption = (
        f"Under the curve: every sample of {SOURCE}, those before and after the pass too. Of the pass: without what "
        "the drain reads, with what it writes, since the pass left that in L2."
    )
    if counters:
        caption += f" Counted: by {counters}, in passes of its own."
    return Table("Bytes under the curve", caption, columns, tuple(rows), tuple(reasons), tuple(sources))


@dataclass(frozen=True)
class _Cell:
    text: str = "–"
    reason: str = ""
    source: str = ""


def _cells(
    found: Sampled, values: FloatArray | None, is_drained: bool, has_drain: bool, counted: Measurement | None
) -> tuple[_Cell, _Cell, _Cell, _Cell, _Cell]:
    """Under the curve, in the drain, of the pass, counted, difference; is_drained: the drain's share is the pass's."""
    beside = _Cell(reason=f"Not counted. Open a Run with the same settings, counted by {LADDER[0]}, beside this one.")
    if counted is not None:
        beside = _Cell(traffic(counted.value), f"{counted.source}: {counted.note}".rstrip(": "), counted.source)
    if values is None:
        gone = _Cell(reason="L2↔SM was not sampled.")
        return gone, gone, gone, beside, gone
    is_hbm = values is not found.l2_sm
    flag = _flag(found, is_hbm)
    mark = " ⚠" if flag else ""
    total, in_drain = found.total(values), found.between(values, found.drain_from, np.inf)
    whole = _Cell(f"{traffic(total)}{mark}", flag, SOURCE)
    doubt = is_hbm and bool(found.is_impossible[found.seconds + found.lasting > found.drain_from].any())
    drained = _Cell(f"{traffic(in_drain)}{' ⚠' if doubt else ''}", IMPOSSIBLE if doubt else "")
    if found.drain is None:
        drained = _Cell(reason=UNMARKED if has_drain else "This Run was made without a drain.")
    elif lost := found.missing(found.drain.start, found.drain.end):
        drained = _Cell(reason=f"{_lost(lost)} in the drain.")
    if lost := found.missing(*found.extent):
        gone = _Cell(reason=f"{_lost(lost)}, and nobody knows what moved meanwhile.")
        return whole, drained, gone, beside, gone
    if found.drain is None and has_drain and not is_drained:
        return whole, drained, _Cell(reason=UNMARKED), beside, _Cell(reason=UNMARKED)
    own = total if is_drained else total - in_drain
    difference = _Cell(reason="There is nothing to compare with.")
    if counted is not None and counted.value:
        difference = _Cell(_apart(own, counted.value))
    return whole, drained, _Cell(f"{traffic(own)}{mark}", flag), beside, difference


def _flag(found: Sampled, is_hbm: bool) -> str:
    """What makes the sum of all samples less, or more, than what moved; empty where nothing does."""
    words = []
    if lost := found.missing(*found.extent):
        words.append(f"{_lost(lost)}, and their bytes with them.")
    if is_hbm and found.is_impossible.any():
        words.append(IMPOSSIBLE)
    return " ".join(words)


def _lost(samples: int) -> str:
    return "1 sample is missing" if samples == 1 else f"{samples:,} samples are missing"


def _counted(run: Run, runs: tuple[Run, ...], name: str) -> Measurement | None:
    """The most trusted value that does not come from samples: of this Run, else of the newest that differs in counters.

    Who chooses the sampler gets no other counter in the same Run.
    """
    for one in (run, *reversed(runs)):
        alike = replace(one.workload, counters=run.workload.counters) == run.workload and one.device == run.device
        others = [m for m in one.measurements if (m.name, m.launch) == (name, None) and m.source != SOURCE]
        known = [m for m in others if m.value is not None]
        if alike and known:
            return min(known, key=lambda m: TRUST.index(m.source))
    return None


def _apart(value: float, reference: float) -> str:
    percent = round((value / reference - 1) * 100, 1)
    return f"{percent:+.1f}%".replace("-", "−") if percent else "<0.1%"
