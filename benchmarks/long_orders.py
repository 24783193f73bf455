"""Prints what each order of a kernel, and cuDNN, read from HBM, as a multiple of Q + K + V, up to long sequences.

python -m benchmarks.long_orders [--kernel flash_ws --kernel flash] [--save FOLDER]     needs a GPU
"""

import os
import sys
import tempfile
from contextlib import ExitStack
from itertools import product
from pathlib import Path
from typing import Annotated

import torch
import typer
from rich.console import Console
from rich.table import Table

from kernels.base import all_kernels
from kernels.own import kernel_named
from kernels.problem import LINEAR, LONGEST_FIRST, PERSISTENT, SAWTOOTH, AttentionProblem, Refused, TileConfig
from profiler.run import Run
from profiler.store import load, runs_folder
from profiler.worker import Worker
from profiler.workload import Workload, workloads

DEVICE = "cuda:0"
REFERENCE = "cudnn"
TILE = TileConfig(128, 128, 8, 3)
FULL, CAUSAL = (LINEAR, SAWTOOTH, PERSISTENT), (LINEAR, LONGEST_FIRST, PERSISTENT)
PROBLEMS = (
    (AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16"), FULL),
    (AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16", causal=True), CAUSAL),
    (AttentionProblem(1, 4, 4, 65536, 65536, 128, "bfloat16"), FULL),
    (AttentionProblem(1, 2, 2, 131072, 131072, 128, "bfloat16"), FULL),
    (AttentionProblem(1, 2, 2, 131072, 131072, 128, "bfloat16", causal=True), CAUSAL),
    (AttentionProblem(1, 1, 1, 262144, 262144, 128, "bfloat16", causal=True), CAUSAL),
    (AttentionProblem(1, 2, 2, 131072, 131072, 256, "bfloat16", causal=True), CAUSAL),
)
TIMES = 2  # a figure seen once is noise


def main(
    kernel: Annotated[list[str] | None, typer.Option(help="Kernels that have orders, flash if none is named.")] = None,
    save: Annotated[Path | None, typer.Option(help="Folder that keeps the Runs.")] = None,
) -> None:
    """Every problem in every order and by cuDNN, twice."""
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs an NVIDIA GPU.")
    names = tuple(kernel or ("flash",))
    try:
        for name in names:
            kernel_named(name)
    except Refused as reason:
        sys.exit(str(reason))
    with ExitStack() as stack:
        os.environ["BYTESCOPE_RUNS"] = str(save or stack.enter_context(tempfile.TemporaryDirectory()))
        worker = Worker(DEVICE)
        table = Table("problem", "kernel", "HBM read, GB", "of Q + K + V", "HBM write, GB", "L2↔SM, GB", "ms")
        for (problem, orders), _ in product(PROBLEMS, range(TIMES)):
            for workload in _workloads(names, problem, orders):
                status = worker.submit((workload,)).wait()
                if status.state != "done":
                    table.add_row(problem.label, _name(workload), status.error[:80])
                    continue
                table.add_row(
                    problem.label, _name(workload), *_figures(load(runs_folder() / f"{status.run_ids[0]}.json")[0])
                )
        worker.stop()
        Console(width=150).print(table)


def _workloads(kernels: tuple[str, ...], problem: AttentionProblem, orders: tuple[str, ...]) -> list[Workload]:
    found = []
    if REFERENCE in all_kernels():
        found += workloads((REFERENCE,), problem, TILE, DEVICE, trace=None)
    for name in kernels:
        taken = [order for order in orders if order in all_kernels()[name].orders]
        found += workloads((name,), problem, TILE, DEVICE, trace=None, orders=tuple(taken))
    return found


def _name(workload: Workload) -> str:
    return workload.kernel if workload.tile is None else f"{workload.kernel}, {workload.tile.order}"


def _figures(run: Run) -> tuple[str, ...]:
    size = run.workload.problem.tensor_bytes
    once = size["q"] + size["k"] + size["v"]
    names = ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes", "gpu_time_seconds")
    read, written, l2_sm, seconds = (run.value(name) for name in names)
    return (
        "–" if read is None else f"{read / 1e9:.3f}",
        "–" if read is None else f"{read / once:.2f}",
        "–" if written is None else f"{written / 1e9:.3f}",
        "–" if l2_sm is None else f"{l2_sm / 1e9:.1f}",
        "–" if seconds is None else f"{seconds * 1e3:.2f}",
    )


if __name__ == "__main__":
    typer.run(main)
