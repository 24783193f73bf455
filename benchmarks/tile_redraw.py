"""Prints how long a move on the tile schedule takes in a browser, from the click to the new picture.

python -m benchmarks.tile_redraw [CHROMIUM]
"""

import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, Error, Page, sync_playwright

from benchmarks.start_speed import FLAGS, ROOT
from kernels.base import all_kernels
from profiler.proc_stat import SYSTEM_TICKS, USER_TICKS, fields

MOVES = 10
RECORDED = ("full_8k", "causal_4k", "long_64k")
ONE_HEAD = {"heads": "1", "kv heads": "1"}  # with the form's 64 × 64 tiles
LONG = {"seq_len": "131072"} | ONE_HEAD
LONGEST = {"seq_len": "16777216"} | ONE_HEAD  # as long as the form takes
WALKED = [name for name, kernel in all_kernels().items() if kernel.is_tiled]
PAIRS = (("flash", "flash_kv_outer"), ("flash", "row_streaming"), ("flash", "naive"))
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'
QUIET_MS = 800

# The time of the last frame in which anything in the page's main part changed, and of the click before it.
WATCH = """() => {
  const watch = window.watch = {clicked: 0, drawn: 0};
  addEventListener("pointerdown", () => watch.clicked = watch.drawn = performance.now(), true);
  const seen = () => requestAnimationFrame(() => setTimeout(() => watch.drawn = performance.now()));
  const what = {subtree: true, childList: true, attributes: true, characterData: true};
  new MutationObserver(seen).observe(document.querySelector('[data-testid="stMain"]'), what);
}"""
IS_QUIET = f"() => performance.now() - window.watch.drawn > {QUIET_MS}"


@dataclass(frozen=True)
class Dashboard:
    """A running server and its folder of Runs, empty at first."""

    url: str
    runs: Path
    process: int

    def seconds(self) -> float:
        """CPU time that it has used: unlike the time to its answer, it does not depend on a busy browser."""
        user, system = fields(self.process)[USER_TICKS : SYSTEM_TICKS + 1]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    """Move by Next, slider and Q tile: recorded Runs, every kernel and pairs of them at S = 131,072, the longest S."""
    chromium = sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium")
    head = f"medians of {MOVES} moves"
    print(f"{head:32} {'server CPU':>11} {'browser CPU':>11} {'sent':>9} {'until drawn':>15} {'slowest':>9}")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        for name in RECORDED:
            measure(browser, name, ROOT / "examples" / f"{name}.json", {})
        for kernel in WALKED:
            measure(browser, kernel, None, LONG, (kernel,))
        for pair in PAIRS:
            measure(browser, " + ".join(pair), None, LONG, pair)
        measure(browser, "flash, S = 16M", None, LONGEST, ("flash",))
        browser.close()


def measure(
    browser: Browser, name: str, recorded: Path | None, form: dict[str, str], kernels: tuple[str, ...] = ()
) -> None:
    """Print a line for each way to move; `kernels` are the one that is looked at and the one beside it."""
    with serving() as dashboard:
        if recorded is not None:
            shutil.copy(recorded, dashboard.runs)
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        sizes: list[int] = []
        page.on("websocket", lambda line: line.on("framereceived", lambda payload: sizes.append(len(payload))))
        browser_side = page.context.new_cdp_session(page)
        browser_side.send("Performance.enable")

        def used() -> tuple[float, float, float]:
            found = browser_side.send("Performance.getMetrics")["metrics"]
            inside = next(metric["value"] for metric in found if metric["name"] == "ProcessTime")
            return dashboard.seconds(), float(inside), float(sum(sizes))

        _open(page, dashboard.url)
        page.locator(IDLE).wait_for()
        for label, value in form.items():
            box = page.get_by_role("spinbutton", name=label, exact=True)
            box.fill(value)
            box.press("Enter")
            page.locator(IDLE).wait_for()
        page.locator(".st-key-bs-nav").get_by_role("link", name="Tile schedule", exact=True).click()
        page.locator(".js-plotly-plot").first.wait_for()
        page.evaluate(WATCH)
        _settle(page)
        for picker, kernel in zip(("Kernel", "Compare with"), kernels, strict=False):
            page.get_by_test_id("stSelectbox").filter(has_text=picker).locator("input").click()
            page.get_by_role("option", name=kernel, exact=True).click()
            _settle(page)
        track = page.locator('.st-key-tile-player-slider [data-orientation="horizontal"] >> nth=1')
        width = (track.bounding_box() or {"width": 0.0})["width"]
        following = page.locator(".st-key-tile-player-next").get_by_role("button")
        # The slider ends near the last Q tile: from there it goes down.
        lower = page.locator(".st-key-tile-Q-tile").get_by_test_id("stNumberInputStepDown")
        ways: dict[str, Callable[[int], None]] = {
            "Next": lambda _: following.click(),
            "slider": lambda number: track.click(position={"x": width * (0.05 + 0.09 * number), "y": 8}),
            "Q tile - 1": lambda _: lower.click(),
        }
        for way, move in ways.items():
            moves = np.array([_measured(page, used, partial(move, number)) for number in range(MOVES)])
            (server, inside, sent, seconds), slowest = np.median(moves, axis=0), moves[:, -1].max()
            print(
                f"{name + ', ' + way:32} {server * 1e3:8.0f} ms {inside * 1e3:8.0f} ms {sent / 1e3:6.0f} kB "
                f"{seconds * 1e3:12.0f} ms {slowest * 1e3:6.0f} ms"
            )
        page.close()


@contextmanager
def serving() -> Iterator[Dashboard]:
    """A dashboard of its own."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as runs:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
        probe.close()
        command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.headless", "true"]
        server = subprocess.Popen(
            [*command, "--server.port", port],
            cwd=ROOT,
            env=os.environ | {"BYTESCOPE_RUNS": runs},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Dashboard(f"http://127.0.0.1:{port}", Path(runs), server.pid)
        finally:
            server.terminate()
            server.wait()


def _open(page: Page, url: str) -> None:
    while True:
        try:
            page.goto(url)
            return
        except Error:  # the server does not listen yet
            time.sleep(0.05)


def _measured(page: Page, used: Callable[[], tuple[float, ...]], move: Callable[[], None]) -> tuple[float, ...]:
    """What one move used, and the seconds from the click to the last change that was painted."""
    at, before = _at_hand(page), used()
    move()
    _settle(page)
    assert _at_hand(page) != at, "the move changed nothing"
    spent = tuple(after - start for after, start in zip(used(), before, strict=True))
    return *spent, page.evaluate("window.watch.drawn - window.watch.clicked") / 1e3


def _at_hand(page: Page) -> str:
    """Programs and steps that the captions name."""
    captions = " ".join(page.locator(".bs-caption").all_inner_texts())
    return " ".join(re.findall(r"program [\d,]+|step [\d,]+", captions))


def _settle(page: Page) -> None:
    """Wait until the server has nothing more to draw and the picture stands still."""
    page.wait_for_timeout(QUIET_MS)
    page.locator(IDLE).wait_for()
    page.wait_for_function(IS_QUIET)


if __name__ == "__main__":
    main()
