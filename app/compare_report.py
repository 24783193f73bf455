"""Two compared Runs as something to send: HTML, Markdown, CSV or JSON; also `python -m app.compare_report`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from html import escape
from pathlib import Path
from typing import Annotated

import typer

from app.compare_markdown import markdown
from app.compare_sheet import compare_sheet
from app.compare_tables import ALONE, of_one_run
from app.report import REFUSED
from app.report_html import FOOT, document
from app.report_parts import box, folded, sheet, table
from app.style import LIGHT
from kernels.problem import Refused
from profiler.codec import NotARun
from profiler.compare import Compared, compare
from profiler.compare_choice import pair
from profiler.compare_limits import Check, check
from profiler.compare_text import csv_text, json_text
from profiler.limit_option import FailAbove, LimitedCommand, limits
from profiler.output import put, require_place
from profiler.plausible import said
from profiler.store import StoreError


def html(compared: Compared, checks: Sequence[Check] = ()) -> str:
    """One document that opens offline, every text that comes from a Run escaped."""
    one, other = compared.names
    runs = (compared.before, compared.after)
    about = "".join(
        f"<p>{escape(run.recorded or f'{run.device.name}, {run.created[:10]}')}, {run.id}</p>" for run in runs
    )
    head = f'<p class="name">Bytescope comparison</p><p class="subject">{escape(f"{one} and {other}")}</p>{about}'
    whole = compare_sheet(compared, LIGHT, checks)
    shown = sheet(replace(whole, items=tuple(item for item in whole.items if item.title != ALONE)))
    alone = of_one_run(compared)
    if alone is not None:
        about = f"{len(alone.rows)} measurements that the other Run does not hold"
        shown += box(folded(alone.title, about, table(alone), "printed"))
    return document(f"Bytescope: {one} and {other}", f"<header>{head}</header><section>{shown}</section>{FOOT}")


FORMATS: Mapping[str, Callable[[Compared, Sequence[Check]], str]] = {
    "html": html,
    "md": markdown,
    "csv": csv_text,
    "json": json_text,
}


def main(
    files: Annotated[list[str], typer.Argument(help="Two Runs, each FILE or FILE:WHICH.")],
    fail_above: FailAbove = None,
    format: Annotated[str, typer.Option(help=", ".join(FORMATS))] = "html",
    out: Annotated[Path | None, typer.Option(help="File to write; without it, stdout if that is no terminal.")] = None,
) -> None:
    """Write a comparison of two Runs. Exits 2 with one sentence where that is refused."""
    try:
        if format not in FORMATS:
            raise Refused(f"The format {format[:40]!r} is not known; choose {', '.join(FORMATS)}.")
        if out is None and format == "html" and sys.stdout.isatty():
            raise Refused("A comparison as html is nothing to read on a terminal; name a file for it with --out.")
        require_place(out)
        compared = compare(*(one.run for one in pair(files)))
        text = FORMATS[format](compared, check(compared, limits(fail_above)))
        put(text, out)
    except (Refused, NotARun, StoreError) as refusal:
        typer.echo(said(refusal), err=True)
        raise typer.Exit(REFUSED) from refusal


if __name__ == "__main__":
    program = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    program.command(cls=LimitedCommand)(main)
    program()
