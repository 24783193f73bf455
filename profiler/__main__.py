"""The command line: python -m profiler COMMAND, such as doctor, run, sweep, report, compare or list."""

import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kernels.own import is_own
from kernels.problem import LINEAR, ORDERS, Refused, TileConfig
from kernels.shown import shown
from profiler.audit_command import audit
from profiler.codec import NotARun, encode
from profiler.compare_command import compare_runs
from profiler.doctor import diagnose, facts_table, sources_table
from profiler.export_command import export_runs
from profiler.import_command import import_ncu
from profiler.limit_option import LimitedCommand
from profiler.list_command import files_of, list_saved
from profiler.output import put, require_place, silence_stdout
from profiler.own_kernel import Permit
from profiler.plausible import printable, said
from profiler.present import default_device
from profiler.problem_options import (
    Batch,
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
from profiler.run import Run, to_json
from profiler.show import runs_table
from profiler.stopped import STOPPED, stopped_by_signals
from profiler.store import StoreError, load, runs_folder
from profiler.sweep_command import sweep
from profiler.worker import DEFAULT_TIMEOUT, Job, JobStatus, worker_for
from profiler.workload import AUTO, LADDER, TraceRequest, Workload, workloads
from profiler.wrong_output import why_failed

app = typer.Typer(add_completion=False, no_args_is_help=True, pretty_exceptions_enable=False, help=__doc__)
errors = Console(stderr=True)
# Typer exports one of its usage errors by name; the others share its base.
USAGE_ERROR: Any = typer.BadParameter.__base__

KernelNames = Annotated[list[str], typer.Option("--kernel", help="Kernel to run, or module:function; several times.")]
BlockM = Annotated[int, typer.Option("--block-m", help="Queries of one tile.")]
BlockN = Annotated[int, typer.Option("--block-n", help="Keys of one tile.")]
NumWarps = Annotated[int, typer.Option(help="Warps of one program.")]
Orders = Annotated[list[str], typer.Option("--order", help=f"{', '.join(ORDERS)}; several times for a Run of each.")]
NumStages = Annotated[int, typer.Option(help="Stages of the software pipeline.")]
MAX_LISTED_STEPS = 5_000_000  # a minute of writing

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on the last line of stdout.")]


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


@app.command()
def run(
    kernel: KernelNames = ["naive", "flash"],  # noqa: B006 - Typer copies it
    batch: Batch = 1,
    heads: Heads = 2,
    kv_heads: KvHeads = None,
    seq_len: SeqLen = 512,
    seq_len_kv: SeqLenKv = None,
    head_dim: HeadDim = 64,
    dtype: Dtype = "float16",
    causal: Causal = False,
    window: Window = None,
    block_m: BlockM = 64,
    block_n: BlockN = 64,
    num_warps: NumWarps = 4,
    num_stages: NumStages = 3,
    order: Orders = [LINEAR],  # noqa: B006 - Typer copies it
    device: Annotated[str | None, typer.Option(help="cuda:0 or cpu; the first GPU if there is one.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the random inputs.")] = 0,
    l2: Annotated[str, typer.Option(help="L2 before each pass: cold or warm.")] = "cold",
    drain: Annotated[
        bool, typer.Option("--drain/--no-drain", help="Count writes until L2 holds no dirty line.")
    ] = True,
    counters: Annotated[str, typer.Option(help=f"What counts bytes: {', '.join((AUTO, *LADDER))}.")] = AUTO,
    detail: Annotated[bool, typer.Option("--detail", help="Add counters that take several passes.")] = False,
    repeats: Annotated[int, typer.Option("--passes", "--repeats", help="Timed passes.")] = 20,
    trace: Annotated[bool, typer.Option("--trace/--no-trace", help="Record softmax state and program times.")] = True,
    trace_batch: Annotated[int, typer.Option(help="Batch whose state is recorded.")] = 0,
    trace_head: Annotated[int, typer.Option(help="Head whose state is recorded.")] = 0,
    trace_row: Annotated[int | None, typer.Option(help="Query whose tile is recorded; the last if left out.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds one kernel may take.")] = DEFAULT_TIMEOUT,
    as_json: AsJson = False,
    out: Annotated[Path | None, typer.Option(help="Write the Runs to this file as well.")] = None,
) -> None:
    """Measure kernels on one problem; every Run is saved."""
    problem = problem_of(batch, heads, kv_heads, seq_len, seq_len_kv, head_dim, dtype, causal, window)
    tile = TileConfig(block_m, block_n, num_warps, num_stages)
    wanted = TraceRequest(trace_batch, trace_head, trace_row) if trace else None
    device = device or default_device()
    how = (counters.replace("_", "-"), drain, detail, tuple(order))
    chosen = workloads(tuple(kernel), problem, tile, device, seed, l2, repeats, wanted, *how)
    require_place(out)
    permit = Permit.here(*filter(is_own, kernel))
    status = _follow(worker_for(device).submit(chosen, timeout, permit), chosen)
    runs = _finished(status)
    if runs:
        console = Console(stderr=as_json)
        console.print(runs_table(runs))
        for run_id in status.run_ids:
            console.print(f"Saved as {runs_folder() / f'{run_id}.json'}", soft_wrap=True, highlight=False)
        if out is not None:
            put(to_json(runs), out)
        if as_json:
            print(to_json(runs))
    failed = [sentence for sentence in (status.error, uncounted(runs), *map(why_failed, runs)) if sentence]
    for sentence in failed:
        print(sentence, file=sys.stderr)
    if status.trace:
        print(status.trace, file=sys.stderr)
    if status.state == "stopped":
        sys.exit(STOPPED)  # past those who would say so once more
    raise typer.Exit(2 if status.state == "refused" else int(status.state != "done" or bool(failed)))


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
    block_m: BlockM = 64,
    block_n: BlockN = 64,
    order: Annotated[str, typer.Option(help=f"{', '.join(ORDERS)}; of one program at a time.")] = LINEAR,
    as_json: AsJson = False,
    summary: Annotated[bool, typer.Option("--summary", help="Leave the steps out.")] = False,
) -> None:
    """Requested bytes and tile steps of the whole problem; needs no GPU."""
    if is_own(kernel):
        raise Refused(f"What {kernel} asks for shows when it runs: use `run --kernel {kernel}`.")
    problem = problem_of(batch, heads, kv_heads, seq_len, seq_len_kv, head_dim, dtype, causal, window)
    (workload,) = workloads((kernel,), problem, TileConfig(block_m, block_n, order=order), "cpu", trace=None)
    workload.attention_kernel.refuse_problem(problem)
    plan = workload.attention_kernel.schedule(problem, workload.tile or TileConfig())
    totals = {
        "requested_read_bytes": plan.requested_read_bytes,
        "requested_write_bytes": plan.requested_write_bytes,
        "by_tensor": plan.by_tensor,
        "grid": [plan.walk.total_programs] if plan.walk else None,
    }
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


def _follow(job: Job, chosen: tuple[Workload, ...]) -> JobStatus:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task("start", total=1.0)
        try:
            while not (status := job.status()).is_over:
                progress.update(
                    bar, description=f"{status.kernel}: {status.phase}", completed=status.done, total=status.total
                )
                time.sleep(0.05)
        except KeyboardInterrupt:
            job.stop()
            status = job.wait(5.0)
    return status


def uncounted(runs: tuple[Run, ...]) -> str:
    """Why the one source that was to count told no number of a Run, as a sentence; empty where it did of each."""
    for run in runs:
        source = run.workload.counters
        told = [m for m in run.measurements if m.source == source]
        if source != AUTO and all(m.value is None for m in told):
            reason = told[0].note if told else "it was not asked"
            return f"{source} counted nothing of {run.workload.kernel}: {reason.rstrip('.')}."
    return ""


def _finished(status: JobStatus) -> tuple[Run, ...]:
    """The Runs of a Job; one whose file has gone since is named and costs none of the others."""
    runs: list[Run] = []
    for run_id in status.run_ids:
        try:
            runs.extend(load(runs_folder() / f"{run_id}.json"))
        except (NotARun, StoreError) as fault:
            print(said(fault), file=sys.stderr)
    return tuple(runs)


if __name__ == "__main__":
    main()
