"""Records the Runs that ship with Bytescope; run it on the GPU whose name they shall carry.

python -m examples.record [FOLDER]
"""

import dataclasses
import os
import sys
import tempfile
from pathlib import Path

from kernels.problem import AttentionProblem, TileConfig
from profiler.run import Run, to_json
from profiler.store import load, runs_folder
from profiler.worker import Worker
from profiler.workload import workloads

BOTH, FLASH = ("naive", "flash"), ("flash",)
RECORDINGS = {
    "full_8k": (BOTH, AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16"), TileConfig(128, 64, 8, 3)),
    "causal_4k": (BOTH, AttentionProblem(8, 16, 16, 4096, 4096, 128, "bfloat16", True), TileConfig(64, 64, 4, 3)),
    "short_1k": (BOTH, AttentionProblem(1, 16, 16, 1024, 1024, 64, "float16"), TileConfig(64, 64, 4, 3)),
    "long_64k": (FLASH, AttentionProblem(1, 4, 4, 65536, 65536, 128, "bfloat16"), TileConfig(128, 128, 8, 3)),
    "gqa_4k": (BOTH, AttentionProblem(1, 32, 8, 4096, 4096, 128, "bfloat16", True), TileConfig(128, 64, 8, 3)),
}


def main() -> None:
    """Measure every recording twice, keep the second (the first also warms the process up), one file each."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples")
    worker = Worker("cuda:0")
    for name, (kernels, problem, tile) in RECORDINGS.items():
        chosen = workloads(kernels, problem, tile, "cuda:0", detail=True)
        for _ in range(2):
            status = worker.submit(chosen).wait()
            if status.state != "done":
                raise SystemExit(f"{name}: {status.error}")
        runs = [_labelled(load(runs_folder() / f"{run_id}.json")[0]) for run_id in status.run_ids]
        (folder / f"{name}.json").write_text(to_json(runs), encoding="utf-8")
        print(name, problem.label)
    worker.stop()


def _labelled(run: Run) -> Run:
    versions = f"driver {run.device.driver}, torch {run.environment['torch']}, triton {run.environment['triton']}"
    return dataclasses.replace(run, recorded=f"Recorded on an {run.device.name}, {versions}, {run.created[:10]}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["BYTESCOPE_RUNS"] = scratch
        main()
