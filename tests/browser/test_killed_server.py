"""A real server that is killed, and pages that are closed, in the middle of a Run, a sweep and the queue."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from benchmarks.server import Server, is_alive
from profiler.run_document import from_json
from tests.browser.conftest import IDLE
from tests.browser.test_block_sizes import choose_tiles
from tests.browser.test_main_paths import RUN, fill, go_to, settle

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

    Open = Callable[[], Page]

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.").expect
PATIENCE = 90_000  # ms, for what a loaded machine draws
LONG, SHORT = "4096", "64"  # half a minute of interpreting, and none
STRIP = ".st-key-bs-progress"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    found = Server(folder / "runs", folder / "cache", folder / "log", env={"CUDA_VISIBLE_DEVICES": ""})
    yield found
    found.stop()


@pytest.fixture
def tab(chromium: Browser, server: Server) -> Iterator[Open]:
    """Opens the first page in a browser of its own each time."""
    contexts = []

    def opened() -> Page:
        contexts.append(chromium.new_context(viewport={"width": 1440, "height": 900}))
        page = contexts[-1].new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(server.url)
        page.locator("h1").wait_for()
        page.locator(IDLE).wait_for()
        return page

    yield opened
    for context in contexts:
        context.close()


def start(page: Page, seq_len: str) -> None:
    fill(page, "seq_len", seq_len)
    page.get_by_role("button", **RUN).click()
    expect(page.locator(STRIP).first).to_be_visible(timeout=PATIENCE)


def end_of(pids: list[int], seconds: float) -> float:
    """How long it takes until none of the processes is left."""
    begun = time.monotonic()
    while any(map(is_alive, pids)):
        assert time.monotonic() - begun < seconds, f"still there after {seconds:.0f} s"
        time.sleep(0.05)
    return time.monotonic() - begun


def test_killed_in_a_run(tab: Open, server: Server) -> None:
    """The page comes back by itself, shows what was finished, holds the form as it was, and says what to do."""
    page = tab()
    start(page, LONG)
    expect(page.locator(STRIP, has_text="flash: interpret").first).to_be_visible(timeout=PATIENCE)
    children = server.descendants()
    assert server.workers()
    server.kill()
    end_of(children, 10)
    server.start()
    notice = page.locator(".st-key-bs-notice")
    expect(notice).to_contain_text(
        "The server was ended while it measured naive and flash on (1, 2, 4096, 64) float16, full mask. "
        "naive was finished and is shown. Press Run to measure again.",
        timeout=PATIENCE,
    )
    expect(page.locator("h1")).to_contain_text(re.compile("^Naive requests"))
    expect(page.get_by_role("spinbutton", name="seq_len", exact=True)).to_have_value(LONG)
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(STRIP)).to_have_count(0)
    assert len(list(server.runs.glob("*.json"))) == 1 and not list((server.runs / "unfinished").iterdir())
    fill(page, "seq_len", SHORT)
    page.get_by_role("button", **RUN).click()
    expect(page.locator("h1")).to_contain_text("Flash requests", timeout=PATIENCE)


def test_killed_in_a_sweep(tab: Open, server: Server) -> None:
    """What is measured stays as it is, and the rest is measured when the sweep goes on."""
    page = tab()
    fill(page, "seq_len", "256")
    go_to(page, "Block sizes")
    choose_tiles(page, block_m=("16",), block_n=("16", "32", "64"))
    page.get_by_role("button", name=re.compile("^Measure 3 on the CPU")).click()
    expect(page.locator(".st-key-bs-sweep-progress")).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("It goes on when this page is closed")).to_be_visible()

    def measured() -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in (server.runs / "sweeps").glob("*/runs/*.json")}

    while not measured():
        time.sleep(0.05)
    children = server.descendants()
    server.kill()
    before = measured()
    assert 1 <= len(before) < 3
    end_of(children, 10)
    server.start()
    expect(page.locator(".st-key-bs-notice")).to_contain_text(
        "The server was ended while it measured a sweep of 3 cells on cpu. Go on with it on the Runs page",
        timeout=PATIENCE,
    )
    go_to(page, "Runs")
    expect(page.get_by_text(f"{len(before)} of 3 cells done")).to_be_visible(timeout=PATIENCE)
    page.get_by_role("button", name="Go on").click()
    expect(page.get_by_text("3 of 3 cells done")).to_be_visible(timeout=PATIENCE)
    after = measured()
    assert len(after) == 3 and {name: after[name] for name in before} == before
    assert all(len(from_json(text)) == 1 for text in after.values())


def test_a_closed_page_ends_its_run_and_frees_the_device(tab: Open, server: Server) -> None:
    page = tab()
    start(page, LONG)
    expect(page.locator(STRIP, has_text="interpret").first).to_be_visible(timeout=PATIENCE)
    stranger = tab()
    expect(stranger.locator(".bs-others", has_text="Another session is measuring")).to_be_visible()
    assert stranger.locator(STRIP).count() == 0, "what another session asked for is not this one's"
    (worker,) = server.workers()
    page.context.close()
    assert end_of([worker], 30) > 1, "a page that is loaded anew has some seconds to come back"
    expect(stranger.locator(".bs-others", has_text="Another session is measuring")).to_have_count(0)


def test_a_page_that_is_loaded_anew_keeps_its_run(tab: Open, server: Server) -> None:
    page = tab()
    start(page, LONG)
    expect(page.locator(STRIP, has_text="interpret").first).to_be_visible(timeout=PATIENCE)
    (worker,) = server.workers()
    page.reload()
    expect(page.locator(STRIP, has_text="interpret").first).to_be_visible(timeout=PATIENCE)
    time.sleep(10)  # longer than a page that is gone may be away
    assert is_alive(worker)
    page.locator(".st-key-stop").get_by_role("button").click()
    expect(page.locator(".st-key-bs-notice")).to_contain_text("Stopped.", timeout=PATIENCE)


def test_the_queue_moves_up_when_one_stops_or_goes(tab: Open) -> None:
    first, second, third = tab(), tab(), tab()
    start(first, LONG)
    start(second, SHORT)
    expect(second.locator(".bs-place")).to_contain_text("Number 2 in the queue: 1 Job before yours")
    start(third, SHORT)
    expect(third.locator(".bs-place")).to_contain_text("Number 3 in the queue: 2 Jobs before yours")
    # Stop takes milliseconds (tests/test_job_queue.py); the rest is drawing, as long as the machine takes for it.
    second.locator(".st-key-stop").get_by_role("button").click()
    expect(second.locator(".st-key-bs-notice")).to_contain_text("Stopped.")
    expect(third.locator(".bs-place")).to_contain_text("Number 2 in the queue: 1 Job before yours")
    first.context.close()
    expect(third.locator("h1")).to_contain_text("Flash requests", timeout=30_000)
    settle(third)
