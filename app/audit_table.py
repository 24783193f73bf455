"""What the page of the last audit says: its answer, what became of each limit, differences by shape, and reasons."""

from collections.abc import Iterator, Sequence

from app.picture import Figure, Headline, Table
from app.style import seconds, traffic
from profiler.audit import FAIL, NOT_CHECKED, PASS, Audit, AuditRow
from profiler.audit_limits import REFEREE
from profiler.audit_summary import by_limit, of_subjects, share_of_limit, spell_difference, title, unchecked

SPACE = "\u00a0"  # at which no line is broken
Key = tuple[str, str, str]  # quantity, source, source of the referee's value
# Heads of narrow columns; where cupti-range is compared, its name goes without saying.
HEADS = {"cupti-sampling": "HBM, sampled", "nvml-gpm": "HBM, GPM"}
AGAINST = {"cupti-range": "counter", "model": "known", "cuda-event": "events", "schedule": "requested"}


def headline(audit: Audit, instead: str = "") -> Headline:
    """The summary as a sentence; below it the device, the versions, when, and what could not be checked.

    An audit that was recorded elsewhere is named so, with what can be done `instead`.
    """
    failed, missing = audit.count(FAIL), audit.count(NOT_CHECKED)
    sentence = f"{audit.count(PASS)} of {audit.checks} checks pass, {failed} fail{'' if failed > 1 else 's'}."
    if not audit.checks:
        sentence = "Nothing could be checked."
    elif not failed:
        sentence = f"All {audit.checks} checks{' that could be made' if missing else ''} pass."
    versions = [f"{name} {audit.environment[name]}" for name in ("torch", "triton") if name in audit.environment]
    driver = [f"driver {audit.device.driver}"] if audit.device.driver else []
    device = f"Recorded on an {audit.device.name}" if instead else audit.device.name
    made = f"{audit.created[:10]}; {instead}" if instead else f"made {audit.created[:16].replace('T', ' ')} UTC"
    left = f" {missing:,} more could not be checked; why is below." if missing else ""
    return Headline(sentence, f"{', '.join([device, *driver, *versions, made])}.{left}")


def figures(audit: Audit) -> tuple[Figure, ...]:
    """Counts of the verdicts, the largest difference from the referee, and how long the audit took."""
    against = [result.furthest for result in by_limit(audit) if result.rows[0].referee_source == REFEREE]
    checked = [row for row in against if row is not None and row.difference is not None]
    furthest = max(checked, key=share_of_limit, default=None)
    if furthest is None:
        far = Figure(f"furthest from {REFEREE}", "–", "", reason=_why_no_referee(audit))
    else:
        where = f"{title(furthest.quantity)}, {furthest.kernel} {furthest.subject}"
        far = Figure(f"furthest from {REFEREE}", spell_difference(furthest), furthest.source, where)
    count = len(audit.run_ids)
    saved = f"{count} Run{'' if count == 1 else 's'} saved" if count else ""
    return (
        Figure("pass", f"{audit.count(PASS):,}", "", "within their limits"),
        Figure("fail", f"{audit.count(FAIL):,}", "", "outside their limits"),
        Figure("not checked", f"{audit.count(NOT_CHECKED):,}", "", "a number or a bound is missing"),
        far,
        Figure("the grid took", seconds(audit.seconds), "", saved),
    )


def _why_no_referee(audit: Audit) -> str:
    missing = [row.note for row in audit.rows if row.referee_source == REFEREE and row.note]
    return missing[0] if missing else f"no check of this audit asks {REFEREE}"


def missed(audit: Audit) -> Table | None:
    """Every check that failed; None where none did."""
    failed = [row for row in audit.rows if row.verdict == FAIL]
    caption = "Checks outside their limit, and shapes that broke down."
    return _every("Missed limits", caption, failed) if failed else None


def limits(audit: Audit) -> Table:
    """One row for each limit: how its checks ended, and the one that is furthest off."""
    rows = []
    for result in by_limit(audit):
        row = result.rows[0]
        counts = tuple(f"{result.count(verdict):,}" for verdict in (PASS, FAIL, NOT_CHECKED))
        rows.append(
            (
                title(row.quantity),
                row.source,
                row.referee_source,
                row.limit.replace(" ", SPACE),
                *counts,
                *_furthest(result.furthest),
            )
        )
    columns = ("quantity", "by", "against", "limit", "pass", "fail", "not checked", "furthest", "which is")
    caption = (
        "Model: what the operation must move. Of two bounds the larger one counts. "
        "A check that lacks a number is not checked and never passes."
    )
    return Table("Limits", caption, columns, tuple(rows))


def _furthest(row: AuditRow | None) -> tuple[str, str]:
    if row is None:
        return "–", ""
    if row.value == row.referee_value:
        return "equal", ""
    far = spell_difference(row) if row.referee_source else _spell(row, row.value)
    return far, _unbroken(f"{row.kernel} {row.subject}".strip())


def by_shape(audit: Audit) -> tuple[Table, ...]:
    """Differences of every shape, a column for each pair of sources; shapes with the same pairs share a table.

    Shapes without any difference are left out: their limits say all there is to say.
    """
    subjects: dict[tuple[str, str], dict[Key, AuditRow]] = {}
    for row in audit.rows:
        if row.kernel:
            key = (row.quantity, row.source, row.referee_source)
            subjects.setdefault((row.kernel, row.subject), {})[key] = row
    groups: dict[tuple[Key, ...], list[tuple[str, str]]] = {}
    for subject, cells in subjects.items():
        groups.setdefault(tuple(cells), []).append(subject)
    return tuple(
        _matrix(keys, {subject: subjects[subject] for subject in members})
        for keys, members in groups.items()
        if any(subjects[subject][key].difference for subject in members for key in keys)
    )


def _matrix(keys: Sequence[Key], subjects: dict[tuple[str, str], dict[Key, AuditRow]]) -> Table:
    columns = ("kernel", "shape", *map(_head, keys))
    rows = tuple(
        (kernel, _unbroken(subject), *(_short(cells[key]) for key in keys))
        for (kernel, subject), cells in subjects.items()
    )
    reasons = tuple(("", "", *(_told(cells[key]) for key in keys)) for cells in subjects.values())
    kernels = ", ".join(dict.fromkeys(kernel for kernel, _ in subjects))
    caption = "Above or below what is named after the dash; both numbers, the limit and how they came are on hover."
    return Table(f"Differences: {kernels}", caption, columns, rows, reasons)


def _head(key: Key) -> str:
    quantity, source, against = key
    name = f"{title(quantity)}, ncu" if source == REFEREE else HEADS.get(source, title(quantity))
    return f"{name} – {AGAINST.get(against, against)}" if against else name


def _short(row: AuditRow) -> str:
    is_alone = not row.referee_source or row.referee_value == 0
    shown = _spell(row, row.value) if is_alone else spell_difference(row)
    if row.value is not None and row.value == row.referee_value:
        shown = "0%"
    # No space, so that the column still counts as one of numbers.
    return f"{shown}·fail" if row.verdict == FAIL else shown


def _told(row: AuditRow) -> str:
    numbers = f"{_spell(row, row.value)} by {row.source}"
    if row.referee_source:
        numbers += f", {_spell(row, row.referee_value)} by {row.referee_source}"
    return f"{row.verdict}, {row.limit}: {numbers}. {row.note}"


def reasons(audit: Audit) -> Table | None:
    """What was not checked, once for each reason; None where everything was."""
    found = unchecked(audit)
    rows = tuple(
        (f"{len(missing):,}", _unbroken(of_subjects(missing)), ", ".join(_quantities(missing)), reason)
        for reason, missing in found.items()
    )
    columns = ("checks", "of", "quantities", "why")
    return Table("Not checked", "What is missing, and what would allow it.", columns, rows) if found else None


def _quantities(rows: Sequence[AuditRow]) -> Iterator[str]:
    yield from dict.fromkeys(f"{title(row.quantity)} by {row.source}" for row in rows)


def every_check(audit: Audit) -> Table:
    """All rows as they were saved."""
    return _every("Every check", "As saved in the audit's file.", audit.rows)


def _every(name: str, caption: str, rows: Sequence[AuditRow]) -> Table:
    columns = ("kernel", "shape", "quantity", "value", "by", "against", "by", "difference", "limit", "verdict", "note")
    return Table(name, caption, columns, tuple(map(_cells, rows)))


def _cells(row: AuditRow) -> tuple[str, ...]:
    against = (_spell(row, row.referee_value), row.referee_source, spell_difference(row))
    return (
        row.kernel,
        _unbroken(row.subject),
        title(row.quantity),
        _spell(row, row.value),
        row.source,
        *(against if row.referee_source else ("–", "", "–")),
        row.limit,
        row.verdict,
        row.note,
    )


def _unbroken(label: str) -> str:
    """A shape whose numbers in parentheses stay on one line."""
    numbers, closed, rest = label.partition(")")
    return numbers.replace(" ", SPACE) + closed + rest if closed else label


def _spell(row: AuditRow, value: float | None) -> str:
    return seconds(value) if row.unit == "s" else traffic(value)
