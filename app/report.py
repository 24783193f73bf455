"""Runs as something to send: HTML, JSON, CSV, Markdown, Perfetto or memory_viz; also `python -m app.report`."""

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from app.report_html import html
from app.report_perfetto import perfetto
from app.report_text import csv, markdown
from kernels.problem import Refused
from profiler.codec import NotARun
from profiler.memory_snapshot import pickled
from profiler.output import put, require_place
from profiler.plausible import said
from profiler.run import Run
from profiler.run_document import distinct, to_json
from profiler.store import StoreError, load_named, shown_path

REFUSED = 2


def memory(runs: Sequence[Run]) -> bytes:
    """The allocator's history of the one Run that has it, for pytorch.org/memory_viz. Raises Refused."""
    traces = [run.memory for run in runs if run.memory is not None]
    if len(traces) != 1:
        having = f"{len(traces)} of these Runs have one" if traces else "None of these Runs has one"
        raise Refused(f"The format memory is the allocator's history of one Run. {having}; name one that has it.")
    return pickled(traces[0])


FORMATS: Mapping[str, Callable[[Sequence[Run]], str | bytes]] = {
    "html": html,
    "json": to_json,
    "csv": csv,
    "md": markdown,
    "perfetto": perfetto,
    "memory": memory,
}
READABLE = ("csv", "md")  # on a terminal as well


def main(
    files: Annotated[list[Path] | None, typer.Argument(help="Run files.", show_default=False)] = None,
    format: Annotated[str, typer.Option(help=", ".join(FORMATS))] = "html",
    out: Annotated[Path | None, typer.Option(help="File to write; without it, stdout if that is no terminal.")] = None,
) -> None:
    """Write a report of the Runs in FILES. Exits 2 with one sentence where that is refused."""
    try:
        require_place(out)
        text = _report(files or (), format, is_for_a_terminal=out is None and sys.stdout.isatty())
        put(text, out)
        if out is not None:
            typer.echo(f"Written to {shown_path(out)}")
    except (Refused, NotARun, StoreError) as refusal:
        typer.echo(said(refusal), err=True)
        raise typer.Exit(REFUSED) from refusal


def _report(files: Sequence[Path], name: str, is_for_a_terminal: bool) -> str | bytes:
    if not files:
        raise Refused("No Run file is named; name one or more, such as examples/full_8k.json.")
    if name not in FORMATS:
        raise Refused(f"The format {name!r} is not known; choose {', '.join(FORMATS)}.")
    if is_for_a_terminal and name not in READABLE:
        raise Refused(f"A report as {name} is nothing to read on a terminal; name a file for it with --out.")
    return FORMATS[name](distinct(run for file in files for run in load_named(file)))


if __name__ == "__main__":
    typer.run(main)
