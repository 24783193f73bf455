"""Runs as CSV, one row for each Measurement, and as Markdown, one small table for a pull request."""

import csv as csv_format
import io
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict

from app import style
from app.asked import in_a_line
from app.command import command
from app.four_kinds import FOUR_KINDS, Bytes
from app.selection import names
from kernels.problem import AttentionProblem, TileConfig
from profiler.run import Run
from profiler.wrong_output import ERRORS

PROBLEM = tuple(AttentionProblem.__dataclass_fields__)
TILE = tuple(TileConfig.__dataclass_fields__)
HOW = ("l2", "repeats", "counters", "drain", "detail")  # of a GPU: a CPU has nothing of it
COLUMNS = (
    *("run", "created", "device", "device_name", "kernel", *PROBLEM, *TILE, "seed", *HOW),
    *("name", "launch", "value", "unit", "source", "p20", "p80", "note"),
)


def csv(runs: Sequence[Run]) -> str:
    """RFC 4180 text with a header; numbers in full, an empty cell where there is none."""
    text = io.StringIO()
    writer = csv_format.DictWriter(text, COLUMNS, restval="")
    writer.writeheader()
    for run in runs:
        work = run.workload
        about = {
            **{"run": run.id, "created": run.created, "device": work.device, "device_name": run.device.name},
            **{"kernel": work.kernel, "seed": work.seed},
            **{name: getattr(work, name) for name in HOW if work.on_gpu},
            **asdict(work.problem),
            **(asdict(work.tile) if work.tile else {}),
        }
        for m in run.measurements:
            p20, p80 = m.spread or (None, None)
            found = {"name": m.name, "launch": m.launch, "value": m.value, "unit": m.unit, "source": m.source}
            row = about | found | {"p20": p20, "p80": p80, "note": m.note}
            writer.writerow({column: _inert(cell) for column, cell in row.items()})
    return text.getvalue()


def _inert(cell: object) -> object:
    # A spreadsheet runs a text cell that begins like this as a formula.
    return f"'{cell}" if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")) else cell


def markdown(runs: Sequence[Run]) -> str:
    """One table for each problem: a column for each Run, the source behind each value, reasons below."""
    problems = dict.fromkeys(run.workload.problem for run in runs)
    groups = ([run for run in runs if run.workload.problem == problem] for problem in problems)
    repeat = command([run.workload for run in runs])
    return "\n".join(_table(group) for group in groups) + f"\nRepeat:\n\n```\n{repeat}\n```\n"


def _table(runs: Sequence[Run]) -> str:
    heads = [plain(name) for name in names(runs)]
    reasons: list[str] = []
    lines = [f"| | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    gradients = [(f"the same, {name}", _single(error), style.error) for name, error in ERRORS.items() if name != "O"]
    for label, of, spell in (*_ROWS, *(gradients if runs[0].workload.problem.backward else ())):
        found = [of(run) for run in runs]
        lines.append(f"| {label} | {' | '.join(_cell(part, spell) for part in found)} |")
        named = zip(heads, found, strict=True)
        reasons += [f"{label}, {head}: {plain(part.reason)}" for head, part in named if part.reason]
    places = dict.fromkeys(_place(run) for run in runs)
    below = "\n".join(f"* {line}" for line in (*places, *reasons))
    return f"### {plain(runs[0].workload.problem.label)}\n\n" + "\n".join(lines) + f"\n\n{below}\n"


def _place(run: Run) -> str:
    facts = [run.device.name, f"driver {run.device.driver}" if run.device.driver else ""]
    facts += [f"{name} {version}" for name, version in run.environment.items()]
    facts += [run.created[:10], in_a_line(run.workload)]
    return plain(", ".join(filter(None, facts)))


def _cell(found: Bytes, spell: Callable[[float | None], str]) -> str:
    badge = style.SOURCE_BADGE.get(found.source, found.source)
    return f"{spell(found.value)} ({badge})" if found.value is not None else "–"


def _single(name: str) -> Callable[[Run], Bytes]:
    def find(run: Run) -> Bytes:
        measurement = run.find(name)
        if measurement is None:
            return Bytes(None, "", f"This Run holds no {name}.")
        return Bytes(measurement.value, measurement.source, "" if measurement.value is not None else measurement.note)

    return find


_ROWS: tuple[tuple[str, Callable[[Run], Bytes], Callable[[float | None], str]], ...] = (
    *((f"{kind} bytes", of, style.traffic) for kind, of in FOUR_KINDS.items()),
    ("GPU time", _single("gpu_time_seconds"), style.seconds),
    ("peak memory allocated", _single("peak_allocated_bytes"), style.capacity),
    ("relative error against float64", _single("relative_error"), style.error),
)


def plain(text: str) -> str:
    """Text that Markdown shows as it stands, on one line."""
    one_line = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("@", "&#64;")
    return re.sub(r"([\\`*_\[\]|~])", r"\\\1", one_line)
