"""An Audit summed up: what became of each limit, and what was not checked, once for each reason."""

from collections.abc import Sequence
from dataclasses import dataclass

from profiler.audit import FAIL, NOT_CHECKED, PASS, Audit, AuditRow

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
    "counting_seconds": "counting",
    "audit_seconds": "audit",
}


@dataclass(frozen=True)
class LimitResult:
    """The rows of one limit, which differ in their subjects only."""

    rows: tuple[AuditRow, ...]

    def count(self, verdict: str) -> int:
        """Rows of a verdict."""
        return sum(row.verdict == verdict for row in self.rows)

    @property
    def furthest(self) -> AuditRow | None:
        """The checked row that is furthest from its referee, or has the largest value where it has none."""
        checked = [row for row in self.rows if row.verdict in (PASS, FAIL) and row.value is not None]
        with_referee = [row for row in checked if row.difference is not None]
        if with_referee:
            return max(with_referee, key=lambda row: abs(row.difference or 0.0))
        return max((row for row in checked if not row.referee_source), key=lambda row: row.value or 0.0, default=None)


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
    """The rows that were not checked, by their reason; the reason that most share comes first."""
    found: dict[str, list[AuditRow]] = {}
    for row in audit.rows:
        if row.verdict == NOT_CHECKED:
            found.setdefault(row.note, []).append(row)
    ordered = sorted(found.items(), key=lambda item: -len(item[1]))
    return {reason: tuple(rows) for reason, rows in ordered}


def of_subjects(rows: Sequence[AuditRow]) -> str:
    """How many shapes rows are of, or which one."""
    subjects = {f"{row.kernel} {row.subject}".strip() for row in rows}
    return f"{len(subjects)} shapes" if len(subjects) > 1 else next(iter(subjects))
