"""An Audit summed up: what became of each limit, and what was not checked, once for each reason."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from profiler.audit import FAIL, NOT_CHECKED, PASS, Audit, AuditRow
from profiler.audit_limits import GPU_LIMITS, INTERPRETER_LIMITS, KNOWN_LIMITS, WRITE_LIMITS, Agreement

# Short words for what rows are about.
TITLES = {
    "hbm_read_bytes": "HBM read",
    "hbm_write_bytes": "HBM write",
    "hbm_bytes": "HBM total",
    "l2_sm_bytes": "L2↔SM",
    "l2_to_sm_bytes": "L2→SM",
    "requested_read_bytes": "requested read",
    "requested_write_bytes": "requested write",
    "gpu_time_seconds": "GPU time",
    "counting_seconds": "counting a launch",
    "audit_seconds": "the whole grid",
}


LIMITS = {
    (limit.quantity, limit.source, limit.against, limit.sentence): limit
    for limit in (*GPU_LIMITS, *KNOWN_LIMITS, *WRITE_LIMITS, *INTERPRETER_LIMITS)
    if isinstance(limit, Agreement)
}
PERCENT = re.compile(r"[\d.]+%")


@dataclass(frozen=True)
class LimitResult:
    """The rows of one limit, which differ in their subjects only."""

    rows: tuple[AuditRow, ...]

    def count(self, verdict: str) -> int:
        """Rows of a verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def furthest(self) -> AuditRow | None:
        """The checked row that comes nearest to its limit, or has the largest value where it has no referee."""
        checked = [row for row in self.rows if row.verdict in (PASS, FAIL) and row.value is not None]
        with_referee = [row for row in checked if row.difference is not None]
        if with_referee:
            return max(with_referee, key=share_of_limit)
        return max((row for row in checked if not row.referee_source), key=lambda row: row.value or 0.0, default=None)


def share_of_limit(row: AuditRow) -> float:
    """How far a row is from its referee, as a share of what its limit allows; of an unknown limit, of the referee."""
    if row.value is None or row.referee_value is None:
        return 0.0
    limit = LIMITS.get((row.quantity, row.source, row.referee_source, row.limit))
    allowed = limit.allowed(row.referee_value) if limit else row.referee_value
    apart = abs(row.value - row.referee_value)
    return apart / allowed if allowed else float(apart > 0)


def title(quantity: str) -> str:
    """A quantity in short words; as it is where there are none."""
    return TITLES.get(quantity, quantity)


def spell_difference(row: AuditRow) -> str:
    """In percent of the referee's value, such as +0.12%; equal where it is, a dash where there is none."""
    if row.value is not None and row.value == row.referee_value:
        return "equal"
    return "–" if row.difference is None else f"{row.difference:+.2%}".replace("-", "−")


def by_limit(audit: Audit) -> tuple[LimitResult, ...]:
    """Every limit of the audit with its rows, in the order in which they come."""
    found: dict[tuple[str, ...], list[AuditRow]] = {}
    for row in audit.rows:
        found.setdefault((row.quantity, row.source, row.referee_source, row.limit), []).append(row)
    return tuple(LimitResult(tuple(rows)) for rows in found.values())


def unchecked(audit: Audit) -> dict[str, tuple[AuditRow, ...]]:
    """The rows that were not checked, by their reason; the reason that most share comes first.

    Reasons that differ in their first percentage only are one, with the least and the most of it.
    """
    found: dict[tuple[str, str], list[AuditRow]] = {}
    for row in audit.rows:
        if row.verdict == NOT_CHECKED:
            before, _, after = _around_percentage(row.note)
            found.setdefault((before, after), []).append(row)
    ordered = sorted(found.values(), key=lambda rows: -len(rows))
    return {_shared_reason(rows): tuple(rows) for rows in ordered}


def _shared_reason(rows: Sequence[AuditRow]) -> str:
    before, _, after = _around_percentage(rows[0].note)
    shares = sorted((_around_percentage(row.note)[1] for row in rows), key=_number)
    return rows[0].note if shares[0] == shares[-1] else f"{before}{shares[0]} to {shares[-1]}{after}"


def _around_percentage(note: str) -> tuple[str, str, str]:
    found = PERCENT.search(note)
    return (note[: found.start()], found[0], note[found.end() :]) if found else (note, "", "")


def _number(percentage: str) -> float:
    return float(percentage.removesuffix("%") or 0)


def of_subjects(rows: Sequence[AuditRow]) -> str:
    """How many shapes rows are of, or which one."""
    subjects = {f"{row.kernel} {row.subject}".strip() for row in rows}
    return f"{len(subjects)} shapes" if len(subjects) > 1 else next(iter(subjects))
