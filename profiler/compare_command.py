"""`compare` on the command line: what changed from one Run to another, and whether it is within limits."""

import io
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from kernels.problem import Refused
from profiler.compare import Compared, compare
from profiler.compare_choice import Chosen, pair
from profiler.compare_limits import Check, Limit, check
from profiler.compare_table import compare_table
from profiler.compare_text import csv_text, json_text
from profiler.limit_option import FailAbove, limits, spelled
from profiler.output import put, require_place

TABLE = "table"
TEXTS: Mapping[str, Callable[[Compared, Sequence[Check]], str]] = {"csv": csv_text, "json": json_text}
DRAWN = ("html", "md")  # by the layer above
FORMATS = (TABLE, *DRAWN, *TEXTS)
FILE_WIDTH = 160  # characters of a table that goes into a file or a log

Files = Annotated[
    list[str],
    typer.Argument(help="Two Run files, or one that holds two Runs; FILE:WHICH takes a Run by kernel, place or id."),
]


def compare_runs(
    files: Files,
    fail_above: FailAbove = None,
    kernel: Annotated[str | None, typer.Option(help="Of files with several Runs, the one of this kernel.")] = None,
    format: Annotated[str, typer.Option(help=f"{', '.join(FORMATS)}.")] = TABLE,
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Compare two Runs: environment first, then every measurement with its ratio and whether it is beyond the spread.

    Exits 1 with the table where something is worse than --fail-above allows, or where that cannot be told.
    """
    if format not in FORMATS:
        raise Refused(f"The format {format[:40]!r} is not known; choose {', '.join(FORMATS)}.")
    require_place(out)
    asked = limits(fail_above)
    both = pair(files, kernel)
    compared = compare(*(one.run for one in both))
    checks = check(compared, asked)
    if format in DRAWN:
        _drawn(both, asked, format, out)
    elif format in TEXTS:
        put(_ended(TEXTS[format](compared, checks)), out)
    else:
        _table(compared, checks, out)
    failed = [one for one in checks if not one.passed]
    if format != TABLE or out is not None:
        for one in failed:
            print(one.sentence, file=sys.stderr)
    raise typer.Exit(int(bool(failed)))


def _table(compared: Compared, checks: Sequence[Check], out: Path | None) -> None:
    shown = compare_table(compared, checks)
    console = Console(highlight=False)
    if out is None and console.is_terminal:
        console.print(shown)
        return
    text = io.StringIO()
    Console(file=text, width=FILE_WIDTH).print(shown)
    put(text.getvalue(), out)


def _drawn(both: Sequence[Chosen], asked: Sequence[Limit], format: str, out: Path | None) -> None:
    """Write what the layer above draws; it may not be imported here, so it runs as a program of its own."""
    root = Path(__file__).resolve().parent.parent
    words = [sys.executable, "-m", "app.compare_report", *(one.word for one in both), "--format", format]
    words += ["--out", str(out.resolve())] if out is not None else []
    done = subprocess.run([*words, *spelled(asked)], cwd=root, check=False)
    if done.returncode:
        raise typer.Exit(done.returncode)


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"
