"""Records the sweep that ships with Bytescope; run it on the GPU whose name it shall carry.

python -m examples.record_sweep [FOLDER]
"""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from benchmarks.sweep_speed import tell_measured
from examples.record import labelled
from profiler.run_document import to_json
from profiler.store import load


def main() -> None:
    """Tiles, warps and stages of flash at (1, 16, 8192, 128), without samples and series: one file."""
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples") / "sweeps"
    with tempfile.TemporaryDirectory() as scratch:
        sweep, status = tell_measured(Console(), "cuda:0", Path(scratch) / "sweep")
        if status.state != "done":
            raise SystemExit(status.error)
        runs = [load(path)[0] for path in sorted(sweep.runs.glob("*.json"))]
    small = [replace(labelled(run), samples={}, series=(), spans=()) for run in runs]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "flash_8k.json").write_text(to_json(small), encoding="utf-8")


if __name__ == "__main__":
    main()
