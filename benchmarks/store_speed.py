"""Prints how long 10,000 saved Runs take to list and filter and the Runs page to redraw, and the memory that takes.

python -m benchmarks.store_speed [FOLDER]

Without a folder, Runs are made twice: once as small as they come, without traces and samples, once with everything
(7 GB on the disk). With one, the Runs in it are listed.
"""

import copy
import json
import logging
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.page_speed import _leaves

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "examples" / "full_8k.json"
RUNS = 10_000
REDRAWS = 10
WHERE = "kernel = 'flash' and seq_len_q >= 4096 and num_warps = 8 and gpu_time_seconds > 1.5e-3"


def main() -> None:
    """Make the Runs where none are given; measure each in processes of their own, so that memory starts clean."""
    if len(sys.argv) == 3:
        {"list": _list, "page": _page}[sys.argv[1]](Path(sys.argv[2]))
        return
    with tempfile.TemporaryDirectory(prefix="bytescope-runs-") as made:
        if len(sys.argv) == 2:
            _measure("given", Path(sys.argv[1]))
            return
        for kind, is_whole in (("small", False), ("whole", True)):
            _make(Path(made) / kind, is_whole)
            _measure(kind, Path(made) / kind)


def _make(folder: Path, is_whole: bool) -> None:
    """Copies of recorded Runs under other ids, with other values and settings that fit their traces."""
    folder.mkdir()
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))["runs"]
    for number in range(RUNS):
        run: dict[str, Any] = copy.copy(recorded[number % len(recorded)])
        run |= {"id": f"copy-{number:05}", "request": f"request-{number // 2}", "recorded": ""}
        if not is_whole:
            run |= {"series": [], "spans": [], "softmax": None, "timeline": None}
        if run["workload"]["tile"] is not None:
            tile = run["workload"]["tile"] | {"num_warps": (4, 8)[number // 2 % 2], "num_stages": 2 + number % 3}
            run["workload"] = run["workload"] | {"tile": tile}
        run["measurements"] = [
            one | {"value": one["value"] * (1 + number / RUNS / 2), "spread": None}
            if one["name"] == "gpu_time_seconds" and one["launch"] is None
            else one
            for one in run["measurements"]
        ]
        text = json.dumps({"format_version": 1, "runs": [run]}, ensure_ascii=False)
        (folder / f"{run['id']}.json").write_text(text, encoding="utf-8")


def _measure(kind: str, folder: Path) -> None:
    size = sum(path.stat().st_size for path in folder.glob("*.json"))
    print(f"{kind}: {len(list(folder.glob('*.json'))):,} files, {size / 1e9:.2f} GB", flush=True)
    # What was just written is read from memory, not from the disk, whether there is an index or not.
    time.sleep(3)
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"BYTESCOPE_CACHE": cache, "BYTESCOPE_RUNS": str(folder)}
        for part in ("list", "list", "page"):
            subprocess.run(
                [sys.executable, "-m", "benchmarks.store_speed", part, str(folder)],
                cwd=ROOT,
                env=environment,
                check=True,
            )


def _list(folder: Path) -> None:
    from profiler.catalogue import catalogue, count
    from profiler.run_index import index_path

    state = "with an index" if index_path(folder).exists() else "without an index"
    begun = time.perf_counter()
    with catalogue([folder]) as saved:
        chosen = saved.where(WHERE)
        listed, _ = saved.newest(chosen, 50)
        found = count(chosen)
        seconds = time.perf_counter() - begun
        print(
            f"  list and filter, {state:16} {seconds:6.2f} s, {len(listed)} of {found:,} Runs; {_memory()}", flush=True
        )


def _page(folder: Path) -> None:
    from streamlit.testing.v1 import AppTest

    def script() -> None:
        from app.views import runs

        runs.render(())

    logging.disable(logging.WARNING)
    app = AppTest.from_function(script, default_timeout=120)
    seconds = []
    for number in range(REDRAWS):
        app.session_state["history-text"] = f"h200 {number}"
        begun = time.perf_counter()
        app.run()
        seconds.append(time.perf_counter() - begun)
        assert not app.exception, app.exception
    sent = sum(len(leaf.proto.SerializeToString()) for leaf in _leaves(app.main))
    first, *rest = seconds
    print(f"  Runs page, first draw             {first:6.2f} s")
    print(
        f"  redraw with another filter        {statistics.median(rest):6.2f} s, slowest {max(rest):.2f} s   (goal: 1 s)"
    )
    print(
        f"  sent                              {sent / 1e3:6.0f} kB; {_memory()}   (goals: 2,000 kB, 500 MB)", flush=True
    )


def _memory() -> str:
    return f"at most {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB of memory"


if __name__ == "__main__":
    main()
