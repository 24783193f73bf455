"""Prints how long sweeps take: with stubbed cells how time grows with cells and workers, on a GPU a measured one.

python -m benchmarks.sweep_speed            stubbed on the CPU, then 100 cells on the first GPU if there is one
python -m benchmarks.sweep_speed measured   only those on the first GPU
"""

import statistics
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.stub_cells import stub_measure
from profiler.device import detect
from profiler.grid import Grid
from profiler.store import load
from profiler.sweep import Sweep, create
from profiler.sweep_job import LocalDevices, SweepJob
from profiler.turns import SweepStatus

STUB_SECONDS = 0.2  # a quarter of what a cell takes on a GPU
SHAPE = {"heads": (16,), "seq_len_q": (8192,), "head_dim": (128,), "dtype": ("bfloat16",)}
TILES = {"BLOCK_M": (16, 32, 64, 128, 256), "BLOCK_N": (16, 32, 64, 128, 256)}
HOW = {"num_warps": (4, 8), "num_stages": (2, 3)}


def main() -> None:
    """Stubbed sweeps of 10, 100 and 1,000 cells by one worker and by two, then 100 measured cells."""
    console = Console()
    if sys.argv[1:] != ["measured"]:
        _stubbed_table(console)
    for device in detect()[:1]:
        with tempfile.TemporaryDirectory() as folder:
            tell_measured(console, device.device, Path(folder) / "sweep")


def _stubbed_table(console: Console) -> None:
    table = Table("cells", "workers", "seconds", "cells' own time, s", "overhead", "a cell, ms")
    for workers in (1, 2):
        for cells in (10, 100, 1000):
            status = _stubbed(cells, workers)
            own = cells * STUB_SECONDS / workers
            more = status.seconds - own
            shown = (f"{status.seconds:.2f}", f"{own:.1f}", f"{more / own:.1%}", f"{1e3 * more * workers / cells:.1f}")
            table.add_row(f"{cells:,}", str(workers), *shown)
    console.print(f"Cells that take {STUB_SECONDS:g} s each; the workers are warm, the first cell's included.")
    console.print(table)


def _stubbed(cells: int, workers: int) -> SweepStatus:
    with tempfile.TemporaryDirectory() as folder:
        tiny = {"kernel": ("naive",), "heads": (1,), "seq_len_q": (16,), "head_dim": (16,)}
        grid = Grid(tiny | {"seed": tuple(range(cells))})
        devices = LocalDevices(["cpu"], workers)
        for worker in devices.cpu_workers:
            worker.schedule(stub_measure, STUB_SECONDS).result()
        status = SweepJob(create(grid, Path(folder) / "sweep"), devices).wait()
    if (status.state, status.done) != ("done", cells):
        raise SystemExit(f"{status.done} of {cells} cells are done. {status.error}")
    return status


def tell_measured(console: Console, device: str, folder: Path) -> tuple[Sweep, SweepStatus]:
    """Measures the 100 cells into a new folder and prints where their time went."""
    sweep = create(Grid(SHAPE | TILES | HOW), folder)
    begun = time.time()
    status = SweepJob(sweep, LocalDevices([device])).wait()
    paths = sorted(sweep.runs.glob("*.json"), key=lambda path: path.stat().st_mtime)
    phases = [load(path)[0].phases for path in paths]
    ends = [path.stat().st_mtime for path in paths]
    # Between two Runs: what is asked of the worker, refused cells, and waiting for a cell that is still being compiled.
    starts = [end - sum(spent.values()) for end, spent in zip(ends, phases, strict=True)]
    gaps = [start - end for end, start in zip(ends, starts[1:], strict=False)]
    own = sum(sum(spent.values()) for spent in phases)
    console.print(
        f"{status.cells} cells of flash (1, 16, 8192, 128) bfloat16 on {device}: {status.done} done, "
        f"{status.failed} failed, {status.seconds:.1f} s. {status.error}\n"
        f"Measuring {own:.1f} s; before the first cell {starts[0] - begun:.1f} s; between cells {sum(gaps):.1f} s "
        f"({sum(gaps) / own:.1%}), median {1e3 * statistics.median(gaps):.0f} ms, longest {max(gaps):.2f} s"
    )
    _tell_phases(console, sweep, phases)
    return sweep, status


def _tell_phases(console: Console, sweep: Sweep, phases: list[dict[str, float]]) -> None:
    names = dict.fromkeys(name for one in phases for name in one)
    table = Table("phase", "seconds in all", "a cell, s", "longest, s")
    for name in names:
        spent = [one.get(name, 0.0) for one in phases]
        table.add_row(name, f"{sum(spent):.2f}", f"{sum(spent) / len(spent):.3f}", f"{max(spent):.2f}")
    console.print(table)
    for failure in list(sweep.failed().values())[:5]:
        console.print(failure.reason)


if __name__ == "__main__":
    main()
