"""The audit on the command line: follow it, print its tables, say what it found by the exit code."""

import sys
import time
from collections.abc import Iterator
from itertools import groupby
from typing import Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from profiler.audit import FAIL, NOT_CHECKED, PASS, Audit, AuditRow, to_json
from profiler.audit_job import DEFAULT_TIMEOUT, AuditJob
from profiler.audit_rows import COUNTER
from profiler.audit_summary import by_limit, of_subjects, spell_difference, title, unchecked
from profiler.present import default_device
from profiler.run import Measurement
from profiler.show import spell
from profiler.stopped import STOPPED
from profiler.worker import JobStatus, worker_for
from profiler.workload import CPU, require_known

# Of the tables that stand below each other, one for each shape.
WIDTHS = (15, 14, 9, 20, 8)


def audit(
    device: Annotated[str | None, typer.Option(help="cuda:0 or cpu; the first GPU if there is one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few shapes instead of the whole grid.")] = False,
    timeout: Annotated[float, typer.Option(help="Seconds one shape may take.")] = DEFAULT_TIMEOUT,
    as_json: Annotated[bool, typer.Option("--json", help="Print the audit as JSON on stdout's last line.")] = False,
) -> None:
    """Check every source of numbers against ncu and against what is known; the audit is saved."""
    device = device or default_device()
    require_known(device)
    job = AuditJob(worker_for(device), quick, timeout)
    status = _follow(job)
    if job.audit is None:
        print(status.error, file=sys.stderr)
        if status.state == "stopped":
            sys.exit(STOPPED)  # past those who would say so once more
        raise typer.Exit(2 if status.state == "refused" else 1)
    console = Console(stderr=as_json, highlight=False)
    for part in tables(job.audit):
        console.print(part)
    console.print(f"{job.audit.summary}. The grid took {job.audit.seconds:.0f} s.")
    if job.path is not None:
        console.print(f"Saved as {job.path}", soft_wrap=True)
    if as_json:
        print(to_json(job.audit))
    errors = [sentence for sentence in (status.error, uncounted(job.audit)) if sentence]
    for sentence in errors:
        print(sentence, file=sys.stderr)
    raise typer.Exit(1 if errors or job.audit.count(FAIL) else 0)


def uncounted(audit: Audit) -> str:
    """Why no number of the hardware counters could be checked on a GPU, as a sentence; empty where one was."""
    counted = [row for row in audit.rows if row.source == COUNTER]
    if audit.device.device == CPU or any(row.verdict != NOT_CHECKED for row in counted):
        return ""
    reason = next((row.note for row in counted if row.note), "the audit asked none")
    return f"No number of {COUNTER} could be checked: {reason.rstrip('.')}."


def _follow(job: AuditJob) -> JobStatus:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task("start", total=1.0)
        try:
            while not (status := job.status()).is_over:
                described = f"{status.kernel}: {status.phase}"
                progress.update(bar, description=described, completed=status.done, total=status.total)
                time.sleep(0.05)
        except KeyboardInterrupt:
            job.stop()
            status = job.wait(5.0)
    return status


def tables(audit: Audit) -> Iterator[RenderableType]:
    """What was found of every shape, then what became of every limit, then what was not checked and why."""
    versions = (f"{name} {version}" for name, version in audit.environment.items() if name != "platform")
    yield Text(", ".join((audit.device.name, *versions)))
    found = [row for row in audit.rows if row.value is not None or row.verdict != NOT_CHECKED]
    for (subject, kernel), group in groupby(found, key=lambda row: (row.subject, row.kernel)):
        rows = list(group)
        yield Text(f"\n{kernel} {subject}".rstrip(), style="bold")
        yield _of_subject(rows)
        for row in rows:
            if row.verdict == FAIL:
                yield Text(f"fail: {title(row.quantity)} should be {row.limit}. {row.note}")
    yield Text("")
    yield _limits(audit)
    for reason, missing in unchecked(audit).items():
        yield Text(f"–  {len(missing)} checks of {of_subjects(missing)}: {reason}")
    yield Text("")


def _of_subject(rows: list[AuditRow]) -> Table:
    found = Table.grid(padding=(0, 1))
    for width in WIDTHS:
        found.add_column(width=width, justify="left" if width in WIDTHS[:2] else "right")
    found.add_column()
    for row in rows:
        against = f"{_spell(row, row.referee_value)} {row.referee_source}" if row.referee_source else ""
        cells = (title(row.quantity), row.source, _spell(row, row.value), against, spell_difference(row), row.verdict)
        found.add_row(*(Text(cell) for cell in cells))
    return found


def _limits(audit: Audit) -> Table:
    found = Table("check", "limit", box=SIMPLE_HEAD)
    for name in (PASS, FAIL, NOT_CHECKED, "furthest"):
        found.add_column(name, justify="right")
    for result in by_limit(audit):
        row, furthest = result.rows[0], result.furthest
        check = f"{title(row.quantity)}{f' by {row.source}' if row.source else ''}"
        check = f"{check} against {row.referee_source}" if row.referee_source else check
        counts = (str(result.count(verdict)) for verdict in (PASS, FAIL, NOT_CHECKED))
        far = "–" if furthest is None else _far(furthest)
        found.add_row(*(Text(cell) for cell in (check, row.limit, *counts, far)))
    return found


def _far(row: AuditRow) -> str:
    return spell_difference(row) if row.referee_source else _spell(row, row.value)


def _spell(row: AuditRow, value: float | None) -> str:
    return "–" if value is None else spell(Measurement(row.quantity, value, row.unit, "model"))
