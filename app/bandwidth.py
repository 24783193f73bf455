"""HBM bandwidth over time: the picture, and what it says in words."""

from app.bandwidth_chart import over_time
from app.bandwidth_panel import Row
from app.bandwidth_scale import hbm_scales
from app.picture import Picture, Table
from app.sampled import SOURCE, drawn, sampled
from app.selection import Comparison
from app.style import Theme, bandwidth, seconds, significant

TITLE = "HBM bandwidth over time"
MOST_ROWS = 4


def bandwidth_over_time(found: Comparison, theme: Theme) -> Picture | Table:
    """A row for each of the newest MOST_ROWS sampled Runs; where none was sampled, a card that only says why."""
    rows, reasons = _rows(found)
    if not rows:
        return Table(TITLE, _said(reasons, is_all=True), (), ())
    shown = rows[-MOST_ROWS:]
    words = [_averages(shown), *map(_flag, shown), _how(shown)]
    if len(shown) < len(rows):
        words.append(f"The newest {MOST_ROWS} of {len(rows)} sampled Runs.")
    words.append(_said(reasons, is_all=False))
    return Picture(TITLE, " ".join(filter(None, words)), over_time(shown, theme), (SOURCE,))


def _rows(found: Comparison) -> tuple[list[Row], dict[str, str]]:
    """The Runs that were sampled, and by name why the others were not."""
    rows: list[Row] = []
    reasons: dict[str, str] = {}
    for name, run in zip(found.names, found.runs, strict=True):
        samples = sampled(run)
        if isinstance(samples, str):
            reasons[name] = samples
        else:
            rows.append(Row(name, run.workload.kernel, samples, run.device.peak_hbm_source))
    return rows, reasons


def _said(reasons: dict[str, str], is_all: bool) -> str:
    """Why Runs have no row: each reason once, with the names that it holds for unless it holds for all Runs."""
    different = list(dict.fromkeys(reasons.values()))
    if is_all and len(different) == 1:
        return different[0]
    named = [(", ".join(name for name in reasons if reasons[name] == reason), reason) for reason in different]
    return " ".join(f"No row for {names}. {reason}" for names, reason in named)


def _averages(rows: list[Row]) -> str:
    """What each pass needs on average, such as: naive moves 2.03 TB/s through HBM for 6.40 ms, 42% of the peak."""
    rates, doubts = [], []
    for row in rows:
        found, ends = row.samples, row.samples.one_pass
        rate = None if ends is None else found.average_of_pass(found.hbm, *ends)
        if ends is None:
            continue
        if rate is None:
            doubts.append(f"No sample lies in the pass of {row.name}, so it has no average.")
        elif found.peak is not None and rate > found.peak:
            doubts.append(f"The average of {row.name} would be above the peak, so it is not told.")
        else:
            rates.append((row, rate, ends))
    told: list[str] = []
    for row, rate, ends in rates:
        verb, place = (" moves", " through HBM") if not told else ("", "")
        share = f", {_percent(rate / row.samples.peak)} of the peak" if row.samples.peak else ""
        missing = row.samples.missing(*ends)
        without = f" (without {missing:,} missing sample{'' if missing == 1 else 's'})" if missing else ""
        words = _in_one_unit(rate, max(rate for _, rate, _ in rates))
        told.append(f"{row.name}{verb} {words}{place} for {seconds(ends[1] - ends[0])}{share}{without}")
    return " ".join([*([f"On average {'; '.join(told)}."] if told else []), *doubts])


def _in_one_unit(rate: float, largest: float) -> str:
    """A bandwidth in the unit of the largest beside it, so that a reader compares digits."""
    unit = bandwidth(largest).rpartition(" ")[2]
    scaled = rate / {"TB/s": 1e12, "GB/s": 1e9, "MB/s": 1e6, "kB/s": 1e3, "B/s": 1.0}[unit]
    return f"{significant(scaled)} {unit}" if scaled >= 1e-3 else bandwidth(rate)


def _percent(share: float) -> str:
    return "0%" if share == 0 else "below 1%" if share < 0.01 else f"{share:.0%}"


def _flag(row: Row) -> str:
    """What to know of samples that cannot be true or are missing; empty where there are none."""
    found = row.samples
    above, missing = found.is_impossible, found.missing(*found.extent)
    words = []
    if above.any():
        words.append(
            f"{above.sum():,} of {len(above):,} samples of {row.name} are above the peak, up to "
            f"{bandwidth(float(found.hbm.max()))}: marked ▲ and not drawn, but part of averages and sums."
        )
    if missing:
        count = "1 sample" if missing == 1 else f"{missing:,} samples"
        words.append(f"{count} of {row.name} {'is' if missing == 1 else 'are'} missing: left blank, in no average.")
    return " ".join(words)


def _how(rows: list[Row]) -> str:
    """How it was obtained and how to read it."""
    intervals = " and ".join(dict.fromkeys(f"{row.samples.interval * 1e6:.4g} µs" for row in rows))
    words = [f"Read and written on top of each other, means over {intervals}, of the whole GPU."]
    most = max(int(drawn(row.samples).bins.size.max()) for row in rows)
    if most > 1:
        words.append(f"Drawn: means of up to {most} samples; grey, or a thin line, reaches to the highest of them.")
    if any(scale.magnified is not None for scale in hbm_scales([row.samples for row in rows])):
        words.append("A magnified panel has a scale of its own; a drain that is higher is cut off there (△).")
    if any(row.samples.drain for row in rows):
        words.append("Hatched and pale: the drain, which follows the pass and brings to HBM what it left in L2.")
    if unmarked := [row.name for row in rows if not row.samples.launches]:
        words.append(f"Launches of {', '.join(unmarked)} are not marked; time begins with the first sample at work.")
    if unknown := [row.name for row in rows if row.samples.peak is None]:
        words.append(f"The peak of {', '.join(unknown)} is not known.")
    return " ".join(words)
