"""A sweep on the command line: make or take up its folder, follow it, and say by the exit code how it ended."""

import json
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from kernels.base import all_kernels
from kernels.problem import ORDERS, Refused
from profiler import axes
from profiler.auto import require_named
from profiler.grid import AXES, Grid
from profiler.present import present_gpus
from profiler.store import shown_path
from profiler.sweep import Sweep, create, is_sweep, open_sweep
from profiler.sweep_cost import CONFIRMED_CELLS, estimate
from profiler.sweep_job import Executor, LocalDevices, SweepJob
from profiler.turns import DONE, STOPPED, SweepStatus
from profiler.worker import DEFAULT_TIMEOUT
from profiler.workload import AUTO, CPU, LADDER

MOST_REASONS = 10
LIST = "one value, or several with commas; ranges are start:stop:step and start:stop:*factor"


def _axis(option: str, what: str) -> Any:
    return typer.Option(option, help=what, show_default=False)


Words = str | None


def sweep(
    out: Annotated[Path | None, typer.Option(help="The sweep's folder; one that holds a sweep is taken up.")] = None,
    kernel: Annotated[
        list[str] | None, typer.Option("--kernel", help=f"{', '.join(all_kernels())}; several times or with commas.")
    ] = None,
    batch: Annotated[Words, _axis("--batch", f"Batch size: {LIST}.")] = None,
    heads: Annotated[Words, _axis("--heads", "Query heads.")] = None,
    kv_heads: Annotated[Words, _axis("--kv-heads", "Key/value heads; none: as many as --heads.")] = None,
    seq_len_q: Annotated[Words, _axis("--seq-len", "Queries, and keys unless --seq-len-kv says otherwise.")] = None,
    seq_len_kv: Annotated[Words, _axis("--seq-len-kv", "Keys and values; none: as many as queries.")] = None,
    head_dim: Annotated[Words, _axis("--head-dim", "Width of a head.")] = None,
    dtype: Annotated[Words, _axis("--dtype", "float16, bfloat16, float32.")] = None,
    causal: Annotated[Words, _axis("--causal", "false, true or both.")] = None,
    backward: Annotated[Words, _axis("--backward", "false, true or both: the backward pass too.")] = None,
    window: Annotated[Words, _axis("--window", "Keys at most this far away; none: no window.")] = None,
    block_m: Annotated[Words, _axis("--block-m", "Queries of one tile.")] = None,
    block_n: Annotated[Words, _axis("--block-n", "Keys of one tile.")] = None,
    num_warps: Annotated[Words, _axis("--num-warps", "Warps of one program.")] = None,
    num_stages: Annotated[Words, _axis("--num-stages", "Stages of the software pipeline.")] = None,
    order: Annotated[Words, _axis("--order", f"{', '.join(ORDERS)}.")] = None,
    l2: Annotated[Words, _axis("--l2", "L2 before each pass: cold, warm.")] = None,
    repeats: Annotated[Words, _axis("--passes", "Timed passes.")] = None,
    seed: Annotated[Words, _axis("--seed", "Seed of the random inputs.")] = None,
    counters: Annotated[Words, _axis("--counters", f"What counts bytes: {', '.join((AUTO, *LADDER))}.")] = None,
    drain: Annotated[Words, _axis("--drain", "Count writes until L2 holds no dirty line: true, false.")] = None,
    detail: Annotated[Words, _axis("--detail", "Add counters that take several passes: false, true.")] = None,
    where: Annotated[
        str, typer.Option(help='Combinations to keep, as SQL: "BLOCK_M >= BLOCK_N and num_warps * 16 <= BLOCK_M".')
    ] = "",
    trace: Annotated[bool, typer.Option("--trace", help="Record softmax state and program times.")] = False,
    device: Annotated[
        list[str] | None, typer.Option("--device", help="cuda:0 …, or cpu; all GPUs of this host if left out.")
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Processes on the CPU; one for each core if left out.")] = None,
    ray: Annotated[str | None, typer.Option(help="Send cells to the Ray cluster at this address, or auto.")] = None,
    timeout: Annotated[float, typer.Option(help="Seconds one cell may take.")] = DEFAULT_TIMEOUT,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try cells again that failed before.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Begin a large sweep without asking.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on the last line.")] = False,
) -> None:
    """Measure a grid of Workloads; each cell is kept as soon as it is done, and a stopped sweep goes on where it was.

    Every axis takes one value, several with commas, or ranges: 16,32 or 16:256:*2 or 1024:8192:1024.
    """
    words = {
        "kernel": ",".join(kernel) if kernel else None, "batch": batch, "heads": heads, "kv_heads": kv_heads,
        "seq_len_q": seq_len_q, "seq_len_kv": seq_len_kv, "head_dim": head_dim, "dtype": dtype, "causal": causal,
        "window": window, "backward": backward, "BLOCK_M": block_m, "BLOCK_N": block_n, "num_warps": num_warps,
        "num_stages": num_stages, "order": order, "l2": l2, "repeats": repeats, "seed": seed, "counters": counters,
        "drain": drain, "detail": detail,
    }  # fmt: skip
    given = {
        name: axes.values(axes.option(name), text, AXES[name].read) for name, text in words.items() if text is not None
    }
    require_named(map(str, given.get("kernel", ())), "a sweep")
    grid = Grid(given, where, trace) if given or where or trace else None
    executor = _executor(device, workers, ray, timeout)
    if out is not None and is_sweep(out):
        with Console(stderr=True).status("Working out the cells"):
            found = _take_up(out, grid)
    else:
        found = _begin(out, grid, executor, yes)
    job = SweepJob(found, executor, retry_failed)
    for sentence in job.broken:
        print(f"{sentence} It is measured again.", file=sys.stderr)
    status = _follow(job)
    console = Console(stderr=as_json, highlight=False)
    _tell(console, found, status)
    if as_json:
        print(json.dumps(summary(found, status)))
    if status.state == STOPPED:
        raise typer.Exit(130)
    raise typer.Exit(0 if status.state == DONE and not status.failed else 1)


def _executor(device: list[str] | None, workers: int | None, ray: str | None, timeout: float) -> Executor:
    if ray is not None:
        if device or workers is not None:
            raise Refused("With --ray the cluster's own devices are used; leave --device and --workers out.")
        # Loaded only where it is asked for: Ray is an optional requirement.
        from profiler.cluster import RayCluster

        return RayCluster(ray, timeout)
    devices = device or [info.device for info in present_gpus()[0]] or [CPU]
    return LocalDevices(devices, workers, timeout)


def _take_up(folder: Path, grid: Grid | None) -> Sweep:
    """The sweep of a folder. Raises Refused where another one is asked for."""
    found = open_sweep(folder)
    if grid is not None and grid != found.plan.grid():
        raise Refused(
            f"{shown_path(folder)} holds another sweep; choose another folder, or give --out alone to go on "
            "with that one."
        )
    return found


def _begin(folder: Path | None, grid: Grid | None, executor: Executor, yes: bool) -> Sweep:
    if grid is None:
        raise Refused(
            "The grid is empty: name at least one axis, such as --block-m 32,64,128, or a folder to go on with."
        )
    if grid.count > CONFIRMED_CELLS and not yes:
        _confirm(grid, executor)
    with Console(stderr=True).status(f"Working out {grid.count:,} cells"):
        return create(grid, folder)


def _confirm(grid: Grid, executor: Executor) -> None:
    """Ask. Raises Refused where the answer is no, or nobody is there to ask."""
    seconds = estimate(grid, executor.on_gpu, executor.workers)
    what = f"{grid.count:,} cells take roughly {spell_duration(seconds)} on {executor.title}"
    if not sys.stdin.isatty():
        raise Refused(f"{what}; say --yes to begin.")
    if not typer.confirm(f"{what}. Begin?", err=True):
        raise Refused("Nothing was begun.")


def spell_duration(seconds: float) -> str:
    """A duration with one or two units: 40 s, 12 min, 3 h 20 min, 5 d 2 h."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    if hours < 24:
        return f"{hours} h {minutes} min" if minutes else f"{hours} h"
    days, hours = divmod(hours, 24)
    return f"{days:,} d {hours} h" if hours else f"{days:,} d"


def _follow(job: SweepJob) -> SweepStatus:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[told]}"))
    errors = Console(stderr=True)
    with Progress(*columns, console=errors, transient=True, disable=not errors.is_terminal) as progress:
        bar = progress.add_task("start", total=1.0, told="")
        try:
            while not (status := job.status()).is_over:
                running = status.running[0] if status.running else "starting"
                progress.update(
                    bar,
                    description=running,
                    completed=status.done + status.failed,
                    total=status.cells,
                    told=told(status),
                )
                time.sleep(0.1)
        except KeyboardInterrupt:
            job.stop()
            status = job.wait(5.0)
    return status


def told(status: SweepStatus) -> str:
    """Rate, time left and failures, as far as they are known."""
    parts = [] if not status.failed else [f"{status.failed} failed"]
    if status.rate is not None and status.seconds_left is not None:
        rate = f"{status.rate:.1f} cells/s" if status.rate >= 1 else f"{1 / status.rate:.1f} s a cell"
        parts += [rate, f"{spell_duration(status.seconds_left)} left"]
    return ", ".join(parts)


def _tell(console: Console, found: Sweep, status: SweepStatus) -> None:
    """What came of it: counts, reasons of failures, the folder, and how to go on."""
    console.print(
        f"{status.done:,} of {status.cells:,} cells done, {status.failed:,} failed; "
        f"{status.finished:,} in {spell_duration(status.seconds)}."
    )
    failed = found.failed()
    if failed:
        console.print(_reasons([failure.reason for failure in failed.values()]))
    console.print(Text(f"Saved in {found.folder}"), soft_wrap=True)
    for sentence in filter(None, (status.error, "Stopped." if status.state == STOPPED else "")):
        print(sentence, file=sys.stderr)
    if status.left:
        left = "1 cell is" if status.left == 1 else f"{status.left:,} cells are"
        print(f"{left} left; `python -m profiler sweep --out {found.folder}` goes on.", file=sys.stderr)


def _reasons(reasons: list[str]) -> Table:
    table = Table("cells", "reason", title="Failed", title_justify="left")
    for reason, count in Counter(reasons).most_common(MOST_REASONS):
        table.add_row(str(count), Text(reason))
    if len(set(reasons)) > MOST_REASONS:
        table.caption = f"{len(set(reasons)) - MOST_REASONS} more reasons stand in the folder failed."
    return table


def summary(found: Sweep, status: SweepStatus) -> dict[str, Any]:
    """What --json prints."""
    return {
        "folder": str(found.folder),
        "state": status.state,
        "cells": status.cells,
        "done": status.done,
        "failed": {cell: failure.reason for cell, failure in found.failed().items()},
        "finished": status.finished,
        "seconds": status.seconds,
        "error": status.error,
    }
