"""What a benchmark puts in the place of measuring: a Run that is there after a known time."""

import importlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from profiler.run import Run
from profiler.run_document import from_json
from profiler.workload import Workload

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "full_8k.json"


def stub_measure(seconds: float) -> None:
    """From now on every cell of this process takes so long, and its Run is a recorded one under the cell's name."""
    module: Any = importlib.import_module("profiler.measure")
    recorded = next(run for run in from_json(EXAMPLE.read_bytes()) if run.workload.kernel == "flash")
    small = replace(recorded, softmax=None, timeline=None, series=(), spans=(), samples={})

    def measure(workload: Workload, device: Any, request: str, progress: Any, run_id: str | None, _: object) -> Run:
        begun = time.perf_counter()
        for index in range(3):
            progress("stub", index, 3)
        done = replace(small, id=run_id or "stub", request=request, workload=workload, device=device, kernels=())
        time.sleep(max(0.0, seconds - (time.perf_counter() - begun)))
        return done

    module.measure = measure
