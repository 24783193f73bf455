"""Lets visitors use a real dashboard for a while, kills its worker now and then, and says what became of it.

python -m benchmarks.soak                             30 minutes, 10 pages, CPU
python -m benchmarks.soak --minutes 5 --sessions 4 --at-once 2 --out soak.json
"""

import json
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.overlap import overlap
from benchmarks.server import Server, resident_bytes
from benchmarks.soak_session import Seen, Visitor
from profiler.run import Run
from profiler.store import load

MINUTE = 60.0
KILL_SECONDS = 150.0  # between two deaths of the worker
MIB = 2**20


def main(
    minutes: Annotated[float, typer.Option(help="How long.")] = 30.0,
    sessions: Annotated[int, typer.Option(help="Open pages.")] = 10,
    at_once: Annotated[int, typer.Option(help="How many of them act at the same time.")] = 4,
    device: Annotated[str, typer.Option(help="cpu hides the GPUs; cuda leaves them.")] = "cpu",
    seed: Annotated[int, typer.Option(help="Of what the visitors do.")] = 0,
    out: Annotated[Path | None, typer.Option(help="Write the figures to this file as JSON.")] = None,
) -> None:
    """Print a line a minute, then a summary."""
    folder = Path(tempfile.mkdtemp(prefix="bytescope-soak-"))
    hidden = {"CUDA_VISIBLE_DEVICES": ""} if device == "cpu" else {}
    server = Server(folder / "runs", folder / "cache", folder / "server.log", env=hidden)
    seen, ending, turn = Seen(), threading.Event(), threading.Semaphore(at_once)
    visitors = [Visitor(name, server.url, seed, seen, turn) for name in range(sessions)]
    threads = [threading.Thread(target=one.visit, args=(ending,), daemon=True) for one in visitors]
    print(f"{server.url}, Runs and log in {folder}", flush=True)
    print("minute  server MiB  children MiB  threads  open files  Runs  killed  failures", flush=True)
    minutes_seen: list[dict[str, Any]] = []
    try:
        minutes_seen.append(_tell(server, seen, 0.0, 0))
        for thread in threads:
            thread.start()
        kills = _watch(server, seen, minutes * MINUTE, minutes_seen)
        ending.set()
        for thread in threads:
            thread.join(200)
        # What visitors who have left asked for is ended by then.
        time.sleep(15)
        minutes_seen.append(_tell(server, seen, minutes, kills))
    finally:
        server.stop()
    found = summary(_runs(folder / "runs"), seen, minutes_seen, kills)
    found["tracebacks_in_the_log"] = server.log.read_text(errors="replace").count("Traceback (most recent call last)")
    found |= {"minutes": minutes, "sessions": sessions, "at_once": at_once, "device": device, "seed": seed}
    print(json.dumps({name: value for name, value in found.items() if name not in ("by_minute", "traces")}, indent=1))
    if out is not None:
        out.write_text(json.dumps(found, indent=1))
    raise typer.Exit(int(bool(found["failures"] or found["overlapping"])))


def _watch(server: Server, seen: Seen, seconds: float, minutes_seen: list[dict[str, Any]]) -> int:
    """Tell how it goes once a minute, and kill the worker now and then; how often that was."""
    begun = time.monotonic()
    next_minute, next_kill, kills = MINUTE, KILL_SECONDS, 0
    while (passed := time.monotonic() - begun) < seconds and server.process.poll() is None:
        if passed >= next_kill:
            kills += bool(server.kill_workers())
            next_kill += KILL_SECONDS
        if passed >= next_minute:
            minutes_seen.append(_tell(server, seen, passed / MINUTE, kills))
            next_minute += MINUTE
        time.sleep(0.5)
    return kills


def _tell(server: Server, seen: Seen, minute: float, kills: int) -> dict[str, Any]:
    if server.process.poll() is not None:
        seen.failures.append(f"The server ended by itself, exit code {server.process.returncode}.")
        return {}
    line = {
        "minute": round(minute, 1),
        "server_bytes": server.resident_bytes(),
        "children_bytes": sum(map(resident_bytes, server.descendants())),
        "threads": server.threads(),
        "open_files": server.open_files(),
        "runs": len(list(server.runs.glob("*.json"))),
        "kills": kills,
        "failures": len(seen.failures),
    }
    print(
        f"{minute:6.1f}  {line['server_bytes'] / MIB:10.0f}  {line['children_bytes'] / MIB:12.0f}  "
        f"{line['threads']:7}  {line['open_files']:10}  {line['runs']:4}  {kills:6}  {line['failures']:8}",
        flush=True,
    )
    return line


def _runs(folder: Path) -> list[Run]:
    return [run for file in folder.glob("*.json") for run in load(file)]


def summary(runs: list[Run], seen: Seen, minutes_seen: list[dict[str, Any]], kills: int) -> dict[str, Any]:
    """The figures of a soak."""
    told = [line for line in minutes_seen if line]
    proof = overlap(runs)
    return {
        "runs": len(runs),
        "acts": dict(seen.acts),
        "kills": kills,
        "runs_lost_to_kills_or_closed_pages": seen.killed_runs,
        "failures": seen.failures,
        "traces": seen.traces,
        "overlapping": [list(pair) for pair in proof.pairs],
        "runs_with_times": proof.runs,
        "smallest_gap_seconds": proof.smallest_gap_seconds,
        "deepest_place_in_queue": seen.deepest_place,
        "stop_seconds": _spread(seen.stop_seconds),
        "job_seconds": _spread(seen.run_seconds),
        "open_seconds": _spread(seen.open_seconds),
        "most_server_bytes": max((line["server_bytes"] for line in told), default=0),
        "most_threads": max((line["threads"] for line in told), default=0),
        "most_open_files": max((line["open_files"] for line in told), default=0),
        "by_minute": told,
    }


def _spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {}
    return {"median": statistics.median(seconds), "most": max(seconds), "count": float(len(seconds))}


if __name__ == "__main__":
    typer.run(main)
