"""Prints how long a Run takes from request to saved file, cold and warm, and what the counters read.

python -m benchmarks.run_speed            the GPU if there is one, else the CPU's default problem
"""

import os
import tempfile
import time

from rich.console import Console
from rich.table import Table

from kernels.problem import AttentionProblem, TileConfig
from profiler.present import default_device
from profiler.run import Run
from profiler.store import load, runs_folder
from profiler.worker import Worker
from profiler.workload import CPU, workloads

GPU_PROBLEM = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
GPU_TILE = TileConfig(128, 64, 8, 3)
CPU_PROBLEM = AttentionProblem(1, 2, 2, 512, 512, 64, "float16")
CPU_TILE = TileConfig(64, 64)
REPEATS = 5


def main() -> None:
    """One cold request in a fresh worker, then warm ones; naive and flash each time."""
    device = default_device()
    problem, tile = (CPU_PROBLEM, CPU_TILE) if device == CPU else (GPU_PROBLEM, GPU_TILE)
    console = Console()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["BYTESCOPE_RUNS"] = folder
        worker = Worker(device)
        table = Table("request", "seconds", "counted, s", "sampled, s", "naive HBM read, GB", "flash HBM read, GB")
        for index in range(1 + REPEATS):
            begun = time.perf_counter()
            status = worker.submit(workloads(("naive", "flash"), problem, tile, device)).wait()
            seconds = time.perf_counter() - begun
            if status.state != "done":
                raise SystemExit(status.error)
            runs = [load(runs_folder() / f"{run_id}.json")[0] for run_id in status.run_ids]
            sources = [
                "–" if device == CPU else f"{sum(run.phases.get(phase, 0.0) for run in runs):.2f}"
                for phase in ("count", "sample")
            ]
            reads = [_gigabytes(run) for run in runs]
            table.add_row("warm" if index else "cold", f"{seconds:.2f}", *sources, *reads)
        worker.stop()
        found = runs[-1]
        versions = ", ".join(f"{name} {version}" for name, version in found.environment.items())
        device_line = f"{found.device.name}, driver {found.device.driver}"
        console.print(f"{problem.label}, {device_line}, {versions}, {found.created}")
        console.print(table)
        for run in runs:
            console.print(f"{run.workload.kernel}: {', '.join(f'{n} {s:.2f}' for n, s in run.phases.items())} s")


def _gigabytes(run: Run) -> str:
    value = run.value("hbm_read_bytes")
    return "–" if value is None else f"{value / 1e9:.4f}"


if __name__ == "__main__":
    main()
