"""Ten sessions of a real dashboard on one device: a queue, no overlap, and nobody behind a dead one."""

import re
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from benchmarks.light_page import LightPage
from benchmarks.overlap import overlap
from benchmarks.server import Server
from profiler.store import load

PATIENCE = 120.0
PLACE = re.compile(r"Number (\d+) in the queue: (\d+) Jobs? before yours")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "runs", tmp_path / "cache", tmp_path / "log", env={"CUDA_VISIBLE_DEVICES": ""})
    yield server
    server.stop()


def is_ready(page: LightPage) -> bool:
    return page.is_idle and page.has("run") and not page.has("stop")


def opened(url: str) -> LightPage:
    page = LightPage(url)
    page.wait(is_ready, PATIENCE, "the form")
    return page


def place(page: LightPage) -> int:
    """Where the page's Job stands, as the page says; 0 where it says nothing of a queue."""
    found = PLACE.search(page.html())
    return int(found[1]) if found else 0


def fill(page: LightPage, **fields: float) -> None:
    for name, value in fields.items():
        drawn = page.runs
        page.fill(name, value)
        page.wait(lambda page, drawn=drawn: page.runs > drawn and is_ready(page), PATIENCE, "the form")


def test_ten_sessions_take_turns(server: Server) -> None:
    with ThreadPoolExecutor(5) as pool:
        pages = list(pool.map(opened, [server.url] * 10))
    first, *others = pages
    fill(first, seq_len_q=5824, timeout=3600)  # minutes, if it were not killed
    for page in others:
        fill(page, seq_len_q=64)
    first.click("run")
    first.wait(lambda page: "flash: interpret" in page.html(), PATIENCE, "the first Job")
    for index, page in enumerate(others):
        page.click("run")
        page.wait(lambda page, number=index + 2: place(page) == number, PATIENCE, f"place {index + 2}")

    # One closes the page while it waits: those behind it move up, those before it do not.
    leaver = others.pop(3)
    leaver.close()
    waited = others[-1].wait(lambda page: place(page) == 9, 30, "place 9")
    assert waited < 30  # seconds
    assert [place(page) for page in others[:3]] == [2, 3, 4]

    # The first one's process dies, and nobody waits behind it.
    begun = time.monotonic()
    assert server.kill_workers()
    first.wait(lambda page: "SIGKILL" in page.html(), PATIENCE, "what became of the first")
    for page in others:
        page.wait(lambda page: is_ready(page) and "Flash requests" in page.html(), PATIENCE, "the Runs")
    assert time.monotonic() - begun < PATIENCE

    runs = [run for file in server.runs.glob("*.json") for run in load(file)]
    assert len(runs) == 1 + 2 * len(others), "naive of the first, and all of the eight; nothing of who left"
    proof = overlap(runs)
    assert proof.runs == len(runs) and proof.pairs == ()
    requests = [run.request for run in sorted(runs, key=lambda run: run.measured_at or (0.0, 0.0))]
    assert len(set(requests)) == sum(one != after for one, after in zip(requests, [*requests[1:], ""], strict=True))
    for page in pages:
        page.close()


def test_overlapping_runs_are_found(tmp_path: Path) -> None:
    """What proves the above can fail."""
    from dataclasses import replace

    from tests.fake_runs import cpu_run, flash_run

    one = replace(cpu_run(), id="one", measured_at=(10.0, 20.0))
    inside, after = (
        replace(one, id="inside", measured_at=(12.0, 13.0)),
        replace(one, id="after", measured_at=(20.0, 21)),
    )
    late = replace(one, id="late", measured_at=(19.0, 19.5))
    assert overlap([one, after]).pairs == () and overlap([one, after]).smallest_gap_seconds == 0.0
    assert overlap([late, inside, one, after]).pairs == (("one", "inside"), ("one", "late"))
    elsewhere = replace(flash_run(), measured_at=(10.0, 20.0))
    assert overlap([one, elsewhere, replace(one, id="untold", measured_at=None)]).pairs == ()
