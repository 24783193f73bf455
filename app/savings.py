"""Why L2↔SM differs from requested: what L1 answered, and what was merged between the SMs and L2."""

from app.picture import Table
from app.selection import Comparison
from app.style import traffic
from profiler.run import Measurement

TITLE = "From requested to L2"
STAGES = ("requested_read_bytes", "l2_to_sm_bytes", "l2_sm_read_bytes")
COLUMNS = ("run", "requested, read", "answered by L1", "L2→SM", "merged on the way", "L2 reads")
CAPTION = (
    "Reads only. L1 answers what the SM has fetched before; requests of several SMs for the same bytes reach L2 as one "
    "(Hopper and newer). Requested counts a library's operands once, so its kernels may ask for more."
)


def savings(found: Comparison) -> Table | None:
    """One row for each Run with detail counters; None where no Run has them."""
    rows, reasons, sources = [], [], []
    for name, run in zip(found.names, found.runs, strict=True):
        stages = [run.find(stage) for stage in STAGES]
        if all(stage is None for stage in stages[1:]):
            continue
        asked, arrived, read = stages
        cells = (_cell(asked), _apart(asked, arrived), _cell(arrived), _apart(arrived, read), _cell(read))
        rows.append((name, *(text for text, _, _ in cells)))
        reasons.append(("", *(reason for _, reason, _ in cells)))
        sources.append(("", *(source for _, _, source in cells)))
    return Table(TITLE, CAPTION, COLUMNS, tuple(rows), tuple(reasons), tuple(sources)) if rows else None


def _cell(stage: Measurement | None) -> tuple[str, str, str]:
    """Text, reason and source."""
    if stage is None:
        return "–", "This Run holds no such count.", ""
    if stage.value is None:
        return "–", stage.note, ""
    return traffic(stage.value), "", stage.source


def _apart(before: Measurement | None, after: Measurement | None) -> tuple[str, str, str]:
    """What is gone between two stages, its share of the first on hover; or how much more came."""
    if before is None or after is None or before.value is None or after.value is None:
        return "–", "One of the two counts beside this is missing.", ""
    gone = before.value - after.value
    if gone < 0:
        return f"{traffic(-gone)} more", "More came than is on the left: a library's kernels read operands again.", ""
    return traffic(gone), f"{gone / before.value if before.value else 0.0:.0%} of what is on the left", ""
