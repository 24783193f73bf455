"""Records the Runs that ship with Bytescope; run it on the GPU whose name they shall carry.

python -m examples.record [FOLDER [NAME...]]
"""

import os
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from kernels.problem import (
    ELEMENT_BYTES,
    LINEAR,
    LONGEST_FIRST,
    SAWTOOTH,
    AttentionProblem,
    TileConfig,
)
from profiler.run import Run
from profiler.run_document import to_json
from profiler.store import load, runs_folder
from profiler.worker import Worker
from profiler.workload import TraceRequest, Workload, workloads

TILE, WIDE = TileConfig(128, 64, 8, 3), TileConfig(128, 128, 8, 3)


@dataclass(frozen=True)
class Recording:
    """Kernels on problems that differ in dtype at most, the tiled ones in these orders."""

    kernels: tuple[str, ...]
    problem: AttentionProblem
    tile: TileConfig = TILE
    orders: tuple[str, ...] = (LINEAR,)
    dtypes: tuple[str, ...] = ()
    is_traced: bool = True

    def workloads(self) -> tuple[Workload, ...]:
        """All of them, for the first GPU."""
        trace = TraceRequest() if self.is_traced else None
        problems = [replace(self.problem, dtype=dtype) for dtype in self.dtypes] or [self.problem]
        return tuple(
            workload
            for problem in problems
            for workload in workloads(
                self.kernels, problem, self.tile, "cuda:0", trace=trace, detail=True, orders=self.orders
            )
        )


def _bfloat16(heads: int, kv_heads: int, seq_len: int, causal: bool = False, batch: int = 1) -> AttentionProblem:
    return AttentionProblem(batch, heads, kv_heads, seq_len, seq_len, 128, "bfloat16", causal)


BOTH = ("naive", "flash")
RECORDINGS = {
    "full_8k": Recording(BOTH, _bfloat16(16, 16, 8192)),
    "causal_4k": Recording(BOTH, _bfloat16(16, 16, 4096, True, batch=8), TileConfig(64, 64, 4, 3)),
    "short_1k": Recording(
        BOTH, AttentionProblem(1, 16, 16, 1024, 1024, 64, "float16"), TileConfig(64, 64, 4, 3)
    ),
    "fig_2": Recording(BOTH, AttentionProblem(64, 16, 16, 1024, 1024, 64, "float16", backward=True)),
    "gqa_4k": Recording(BOTH, _bfloat16(32, 8, 4096, True)),
    "ladder_512": Recording(
        ("naive", "row_streaming", "query_tiled", "flash_kv_outer", "flash", "split_kv"),
        _bfloat16(16, 16, 512), TileConfig(32, 64, 4, 3),
    ),
    "ladder_8k": Recording(
        ("row_streaming", "flash_kv_outer", "flash", "split_kv"), _bfloat16(16, 16, 8192), is_traced=False
    ),
    "library_8k": Recording(("cudnn", "flash_attention_2", "mem_efficient", "flex"), _bfloat16(16, 16, 8192)),
    "rungs_8k": Recording(("cudnn", "flash", "flash_tma", "flash_ws"), _bfloat16(16, 16, 8192), WIDE),
    "decode_64k": Recording(
        ("flash", "split_kv"), AttentionProblem(1, 32, 8, 1, 65536, 128, "bfloat16"), TileConfig(16, 64, 4, 3)
    ),
    "dtypes_1k": Recording(
        ("flash",), AttentionProblem(1, 16, 16, 1024, 1024, 64), TileConfig(64, 64, 4, 2), dtypes=tuple(ELEMENT_BYTES)
    ),
    "long_64k": Recording(("cudnn", "flash"), _bfloat16(4, 4, 65536), WIDE, (LINEAR, SAWTOOTH)),
    "long_causal_128k": Recording(("cudnn", "flash"), _bfloat16(2, 2, 131072, True), WIDE, (LINEAR, LONGEST_FIRST)),
    "long_rungs": Recording(("cudnn", "flash_ws"), _bfloat16(2, 2, 131072, True), WIDE, (LINEAR, LONGEST_FIRST)),
    "long_causal_256k": Recording(("cudnn", "flash"), _bfloat16(1, 1, 262144, True), WIDE, (LINEAR, LONGEST_FIRST)),
}  # fmt: skip


def main() -> None:
    """Measure every recording in one warm process, one file each.

    Arguments after the folder name the recordings to make; without them all are.
    """
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "examples")
    worker = Worker("cuda:0")
    worker.submit(RECORDINGS["short_1k"].workloads()).wait()
    for name in sys.argv[2:] or RECORDINGS:
        status = worker.submit(RECORDINGS[name].workloads()).wait()
        if status.state != "done":
            raise SystemExit(f"{name}: {status.error}")
        runs = [labelled(load(runs_folder() / f"{run_id}.json")[0]) for run_id in status.run_ids]
        (folder / f"{name}.json").write_text(to_json(runs), encoding="utf-8")
        print(name, runs[0].workload.problem.label, flush=True)
    worker.stop()


def labelled(run: Run) -> Run:
    """The Run, marked as one that ships."""
    versions = f"driver {run.device.driver}, torch {run.environment['torch']}, triton {run.environment['triton']}"
    # The commit that a recording ships with is not the one that made it.
    environment = {name: value for name, value in run.environment.items() if "commit" not in name}
    label = f"Recorded on an {run.device.name}, {versions}, {run.created[:10]}"
    return replace(run, environment=environment, recorded=label)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["BYTESCOPE_RUNS"] = scratch
        main()
