"""A real dashboard on a free port, and sessions of Chromium on it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

ROOT = Path(__file__).resolve().parent.parent.parent
START_SECONDS = 60.0
IDLE = '[data-testid="stApp"][data-test-script-state="notRunning"]'


@dataclass
class Dashboard:
    """A running server and its folder of Runs."""

    url: str
    runs: Path
    process: subprocess.Popen[bytes]

    def workers(self) -> list[int]:
        """Process ids of the measuring children."""
        found = []
        for status in Path("/proc").glob("[0-9]*/status"):
            try:
                parent = next(line for line in status.read_text().splitlines() if line.startswith("PPid:"))
                words = (status.parent / "cmdline").read_bytes()
            except OSError:
                continue
            if int(parent.split()[1]) == self.process.pid and b"spawn_main" in words:
                found.append(int(status.parent.name))
        return found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder drives a browser."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dashboard]:
    """The real application on the CPU, with an empty store."""
    runs = tmp_path_factory.mktemp("runs")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "streamlit", "run", "app/main.py"]
    process = subprocess.Popen(
        [*command, "--server.headless", "true", "--server.address", "127.0.0.1", "--server.port", str(port)],
        cwd=ROOT,
        env={
            **os.environ,
            "BYTESCOPE_RUNS": str(runs),
            "BYTESCOPE_CACHE": str(tmp_path_factory.mktemp("cache")),
            "CUDA_VISIBLE_DEVICES": "",
        },
    )
    found = Dashboard(f"http://127.0.0.1:{port}", runs, process)
    _wait_until_it_answers(found)
    yield found
    process.terminate()
    process.wait(20)


def _wait_until_it_answers(dashboard: Dashboard) -> None:
    end = time.monotonic() + START_SECONDS
    while dashboard.process.poll() is None and time.monotonic() < end:
        try:
            urllib.request.urlopen(f"{dashboard.url}/_stcore/health", timeout=1)
            return
        except OSError:
            time.sleep(0.1)
    pytest.fail("The dashboard did not start.")


def _is_complaint(message: ConsoleMessage) -> bool:
    # Opened on a page below the root, Streamlit first looks for its server beside that page.
    return message.type == "error" and "/_stcore/" not in message.location["url"]


@pytest.fixture
def page(chromium: Browser, dashboard: Dashboard) -> Iterator[Page]:
    """A fresh browser session on the first page; what it fetches elsewhere or complains about fails the test."""
    yield from _session(chromium, dashboard, 1440, 900)


@pytest.fixture
def phone(chromium: Browser, dashboard: Dashboard) -> Iterator[Page]:
    """The same on a phone's width, in the dark."""
    yield from _session(chromium, dashboard, 390, 844, "dark")


# A slow line: what the server sends is read 1.5 s late and in order, what the browser sends goes out at once.
LATE = """
window.WebSocket = class extends WebSocket {
  addEventListener(kind, listener, ...rest) {
    const late = kind === "message" ? event => setTimeout(() => listener(event), 1500) : listener;
    super.addEventListener(kind, late, ...rest);
  }
};
"""


@pytest.fixture
def slow(chromium: Browser, dashboard: Dashboard) -> Iterator[Page]:
    """The first page, over a slow line."""
    yield from _session(chromium, dashboard, 1440, 900, script=LATE)


def _session(
    chromium: Browser, dashboard: Dashboard, width: int, height: int, scheme: str = "light", script: str = ""
) -> Iterator[Page]:
    context = chromium.new_context(
        viewport={"width": width, "height": height},
        color_scheme="dark" if scheme == "dark" else "light",
        accept_downloads=True,
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.add_init_script(script)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if _is_complaint(message) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("request", lambda request: None if "127.0.0.1" in request.url else complaints.append(request.url))
    page.goto(dashboard.url)
    page.locator("h1").wait_for()
    page.locator(IDLE).wait_for()  # what is typed while the first run still draws would be lost
    yield page
    context.close()
    assert [line for line in complaints if not line.startswith(("blob:", "data:"))] == []
