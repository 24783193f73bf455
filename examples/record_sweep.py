"""Records the sweep that ships with Bytescope; run it on the GPU whose name it shall carry.

python -m examples.record_sweep [FOLDER]
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from benchmarks.sweep_speed import HOW, SHAPE, TILES
from examples.record import labelled
from profiler.grid import Grid
from profiler.run import to_json
from profiler.store import load
from profiler.sweep import create
from profiler.sweep_job import LocalDevices, SweepJob


def main() -> None:
    """Tiles, warps and stages of flash at (1, 16, 8192, 128), without samples and series: one file."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples") / "sweeps"
    with tempfile.TemporaryDirectory() as scratch:
        sweep = create(Grid(SHAPE | TILES | HOW), Path(scratch) / "sweep")
        status = SweepJob(sweep, LocalDevices(["cuda:0"])).wait()
        if status.state != "done":
            raise SystemExit(status.error)
        runs = [load(path)[0] for path in sorted(sweep.runs.glob("*.json"))]
    small = [replace(labelled(run), samples={}, series=(), spans=()) for run in runs]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flash_8k.json").write_text(to_json(small), encoding="utf-8")
    print(f"{status.done} of {status.cells} cells in {status.seconds:.1f} s, {status.failed} failed")


if __name__ == "__main__":
    main()
