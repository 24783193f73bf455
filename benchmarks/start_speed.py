"""Prints how long the dashboard takes from its command until a person can press Run.

python -m benchmarks.start_speed [CHROMIUM]
"""

import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Browser, Error, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
STARTS = 5
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--no-first-run",
]


def main() -> None:
    """Start the server STARTS times, each with an empty folder of Runs, and load the page as soon as it answers."""
    chromium = sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        seconds = [start(browser) for _ in range(STARTS)]
        browser.close()
    print("seconds from command to an enabled Run button:", ", ".join(f"{one:.2f}" for one in seconds))
    print(f"median {statistics.median(seconds):.2f} s")


def start(browser: Browser) -> float:
    """Seconds of one start."""
    with socket.socket() as probe, tempfile.TemporaryDirectory() as runs:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
        probe.close()
        command = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.headless", "true"]
        begun = time.perf_counter()
        server = subprocess.Popen(
            [*command, "--server.port", str(port)],
            cwd=ROOT,
            env=os.environ | {"BYTESCOPE_RUNS": runs},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            page = browser.new_page()
            while True:
                try:
                    page.goto(f"http://127.0.0.1:{port}")
                    break
                except Error:  # the server does not listen yet
                    time.sleep(0.05)
            page.locator('button:has-text("Run"):enabled').first.wait_for()
            return time.perf_counter() - begun
        finally:
            page.close()
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
