"""The command `run`: Workloads measured one after the other, their progress, their table, and what went wrong."""

import sys
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from kernels.own import is_own
from kernels.problem import LINEAR, ORDERS, TileConfig
from profiler import auto
from profiler.admission import admit
from profiler.codec import NotARun
from profiler.device import cpu_device, cpu_free_bytes
from profiler.list_command import AsJson
from profiler.output import put, require_place
from profiler.own_kernel import Permit
from profiler.plausible import said
from profiler.present import default_device
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
from profiler.run import Run
from profiler.run_document import to_json
from profiler.show import runs_table
from profiler.stopped import STOPPED
from profiler.store import StoreError, load, require_writable, runs_folder
from profiler.worker import DEFAULT_TIMEOUT, Job, JobStatus, worker_for
from profiler.workload import AUTO, CPU, LADDER, TraceRequest, Workload
from profiler.wrong_output import why_failed

errors = Console(stderr=True)

KernelNames = Annotated[list[str], typer.Option("--kernel", help="Kernel, module:function, or auto; several times.")]
NumWarps = Annotated[int, typer.Option(help="Warps of one program.")]
Orders = Annotated[list[str], typer.Option("--order", help=f"{', '.join(ORDERS)}; several times for a Run of each.")]
NumStages = Annotated[int, typer.Option(help="Stages of the software pipeline.")]


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
    backward: Backward = False,
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
    problem = problem_of(batch, heads, kv_heads, seq_len, seq_len_kv, head_dim, dtype, causal, window, backward)
    tile = TileConfig(block_m, block_n, num_warps, num_stages)
    wanted = TraceRequest(trace_batch, trace_head, trace_row) if trace else None
    device = device or default_device()
    how = (seed, l2, repeats, wanted, counters.replace("_", "-"), drain, detail)
    chosen, choice = auto.asked(tuple(kernel), problem, tile, device, how, tuple(order))
    if device == CPU:
        # Refused at once; the worker, which looks at it too, takes seconds to start.
        for workload in chosen:
            if not is_own(workload.kernel):
                admit(workload, cpu_device(), None, cpu_free_bytes())
    require_place(out)
    if (folder := runs_folder()).exists():
        require_writable(folder)  # as the Job does; this one makes none for what may be refused yet
    permit = Permit.here(*filter(is_own, kernel))
    if choice:
        errors.print(choice, highlight=False)
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
