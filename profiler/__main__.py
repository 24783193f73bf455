"""The command line: python -m profiler COMMAND, such as doctor, run, sweep, report, compare or list."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from kernels.own import is_own
from kernels.problem import LINEAR, ORDERS, Refused, TileConfig
from kernels.shown import shown
from profiler.audit_command import audit
from profiler.auto import require_named
from profiler.codec import NotARun, encode
from profiler.compare_command import compare_runs
from profiler.doctor import diagnose, facts_table, sources_table
from profiler.export_command import export_runs
from profiler.import_command import import_ncu
from profiler.limit_option import LimitedCommand
from profiler.list_command import AsJson, files_of, list_saved
from profiler.output import silence_stdout
from profiler.plausible import printable, said
from profiler.problem_options import (
    Backward,
    Batch,
    BlockM,
    BlockN,
    Causal,
    Dtype,
    HeadDim,
    Heads,
    KvHeads,
    SeqLen,
    SeqLenKv,
    Window,
    problem_of,
)
from profiler.resources_command import resources
from profiler.run_command import errors, run
from profiler.stopped import STOPPED, stopped_by_signals
from profiler.store import StoreError
from profiler.sweep_command import sweep
from profiler.workload import workloads

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
# Typer exports one of its usage errors by name; the others share its base.
USAGE_ERROR: Any = typer.BadParameter.__base__

MAX_LISTED_STEPS = 5_000_000  # a minute of writing


def main() -> None:
    """Run a command. Exit codes: 0 done; 1 ran but something failed; 2 refused, with one sentence on stderr.

    What SIGTERM or SIGHUP ends is stopped as Ctrl-C does it, and removes its temporary files.
    """
    with stopped_by_signals() as received:
        try:
            _run_command()
        except SystemExit as end:
            sys.exit(128 + received[0] if received else end.code)


def _run_command() -> None:
    """Run a command, and leave with its exit code."""
    # A file's name may hold bytes that are not UTF-8, and stdout would raise for them.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False)
        # Typer makes this of Ctrl-C.
        if code == STOPPED:
            print("Stopped.", file=sys.stderr)
        sys.stdout.flush()
        sys.exit(code)
    except USAGE_ERROR as error:
        print(f"{printable(error.format_message()).rstrip('.')}.", file=sys.stderr)
        sys.exit(2)
    except (Refused, NotARun, StoreError) as refusal:
        print(said(refusal), file=sys.stderr)
        sys.exit(2)
    except OSError as fault:
        if fault.filename is None:  # what is read or written for the user has its sentence already; this is stdout
            silence_stdout()
            print(f"The output could not be used: {fault.strerror or fault}.", file=sys.stderr)
            sys.exit(1)
        # What a path is asked first may fail already: its name is too long, or a folder above it is closed.
        name = shown(os.fsdecode(fault.filename))
        print(f"The file or folder {name} cannot be used: {fault.strerror}.", file=sys.stderr)
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        print("Stopped.", file=sys.stderr)
        sys.exit(STOPPED)


app.command()(run)


@app.command()
def schedule(
    kernel: Annotated[str, typer.Option("--kernel", help="Kernel.")] = "flash",
    batch: Batch = 1,
    heads: Heads = 1,
    kv_heads: KvHeads = None,
    seq_len: SeqLen = 512,
    seq_len_kv: SeqLenKv = None,
    head_dim: HeadDim = 64,
    dtype: Dtype = "float16",
    causal: Causal = False,
    window: Window = None,
    backward: Backward = False,
    block_m: BlockM = 64,
    block_n: BlockN = 64,
    order: Annotated[str, typer.Option(help=f"{', '.join(ORDERS)}; a wave of sawtooth is one program here.")] = LINEAR,
    as_json: AsJson = False,
    summary: Annotated[bool, typer.Option("--summary", help="Leave the steps out.")] = False,
) -> None:
    """Requested bytes and tile steps of the whole problem; needs no GPU."""
    require_named((kernel,), "schedule")
    if is_own(kernel):
        raise Refused(f"What {kernel} asks for shows when it runs: use `run --kernel {kernel}`.")
    problem = problem_of(batch, heads, kv_heads, seq_len, seq_len_kv, head_dim, dtype, causal, window, backward)
    (workload,) = workloads((kernel,), problem, TileConfig(block_m, block_n, order=order), "cpu", trace=None)
    workload.attention_kernel.refuse_problem(problem)
    plan = workload.attention_kernel.schedule(problem, workload.tile or TileConfig())
    totals = {
        "requested_read_bytes": plan.requested_read_bytes,
        "requested_write_bytes": plan.requested_write_bytes,
        "by_tensor": plan.by_tensor,
        "grid": [plan.walk.total_programs] if plan.walk else None,
    }
    if plan.tiles is not None and plan.tiles.packs > 1:
        totals["query_heads_packed"] = plan.tiles.packs  # rows of Q are query heads, so many a K/V head
    if not as_json:
        Console().print_json(data=totals)
        return
    text = json.dumps(totals)
    if summary:
        print(text)
        return
    if plan.walk is not None and plan.walk.total_steps > MAX_LISTED_STEPS:
        raise Refused(
            f"The schedule has {plan.walk.total_steps:,} steps, above {MAX_LISTED_STEPS:,} that are listed; "
            "choose larger tiles or a shorter sequence, or --summary."
        )
    # Streamed: a long sequence has millions of steps.
    sys.stdout.write(text[:-1] + ', "steps": [')
    for index, step in enumerate(plan.steps()):
        sys.stdout.write(("" if index == 0 else ", ") + json.dumps(encode(step)))
    sys.stdout.write("]}\n")


@app.command()
def report(
    files: Annotated[list[Path], typer.Argument(help="Run files, folders of them, or sweeps.")],
    format: Annotated[
        str, typer.Option(help="html, json, csv, md, perfetto, or memory for pytorch.org/memory_viz.")
    ] = "html",
    out: Annotated[Path | None, typer.Option(help="File to write.")] = None,
) -> None:
    """Turn Run files into a report."""
    # Drawing belongs to the layer above, which this one may not import; it runs as a program of its own.
    root = Path(__file__).resolve().parent.parent
    target = [] if out is None else ["--out", str(out.resolve())]
    words = [str(file.resolve()) for place in files for file in files_of(place)]
    command = [sys.executable, "-m", "app.report", *words, "--format", format, *target]
    raise typer.Exit(subprocess.run(command, cwd=root, check=False).returncode)


@app.command()
def doctor(as_json: AsJson = False) -> None:
    """What can be measured here, what cannot, why, and how to allow it; each source is tried."""
    with errors.status("Starting") as status:
        found = diagnose(lambda what: status.update(f"Asking {what}"))
    console = Console(stderr=as_json)
    console.print(facts_table(found), sources_table(found), sep="\n")
    if as_json:
        print(json.dumps(encode(found), allow_nan=False))


app.command()(audit)
app.command()(resources)
app.command()(sweep)
app.command("list")(list_saved)
app.command("export")(export_runs)
app.command("compare", cls=LimitedCommand)(compare_runs)
app.command("import")(import_ncu)


if __name__ == "__main__":
    main()
