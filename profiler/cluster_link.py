"""The other end of cluster_driver: its process, what is said to it and heard from it, and its end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any

from profiler.plausible import printable
from profiler.scratch import Scratch

ROOT = Path(__file__).resolve().parent.parent
TRAVELS = ("profiler", "kernels")  # the code that a node needs
CODE, ERRORS = "code", "errors"
END_SECONDS = 1.5
MOST_WORDS = 300


class DriverProcess:
    """Speaks with Ray in a session of its own; it ends itself once nobody holds the other end of its pipes."""

    def __init__(self, address: str) -> None:
        self._scratch = Scratch()
        code, errors = (self._scratch.folder / name for name in (CODE, ERRORS))
        for name in TRAVELS:
            shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
        # Ray knows code by its content, and drops it with the sweep that brought it: none is to rely on another's.
        (code / "sweep").write_text(uuid.uuid4().hex)
        with errors.open("wb") as said_aside:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "profiler.cluster_driver", address, str(code)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said_aside,
                cwd=ROOT,
                env=os.environ | {"RAY_USAGE_STATS_ENABLED": "0"},
                start_new_session=True,
                encoding="utf-8",
            )
        self._silence = ""

    def say(self, words: dict[str, Any]) -> None:
        """Send it one line; one that has ended hears nothing."""
        assert self._process.stdin is not None
        with suppress(OSError):
            self._process.stdin.write(f"{json.dumps(words)}\n")
            self._process.stdin.flush()

    def hear(self, within: float | None = None) -> dict[str, Any] | None:
        """What it says next; None once it has ended, as it must where it says nothing `within` so many seconds."""
        assert self._process.stdout is not None
        timer = threading.Timer(within or 0.0, self._fall_silent, (within,))
        if within is not None:
            timer.start()
        line = self._process.stdout.readline()
        timer.cancel()
        said: dict[str, Any] | None = json.loads(line) if line.endswith("\n") else None
        return said

    @property
    def last_words(self) -> str:
        """Why it ended, as far as is known."""
        with suppress(OSError):
            lines = (self._scratch.folder / ERRORS).read_text(encoding="utf-8", errors="replace").split("\n")
            words = next((line for line in reversed(lines) if line.strip()), "its process ended without a word")
            return self._silence or printable(words.strip(), MOST_WORDS)
        return self._silence

    def kill(self) -> None:
        """End it now; Ray ends what it had begun."""
        if self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def end(self) -> None:
        """Let it take its leave of the cluster, and end it where it does not."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(OSError):
            self._process.stdin.close()
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            self._process.wait()
        self._process.stdout.close()
        self._scratch.remove()

    def _fall_silent(self, seconds: float) -> None:
        self._silence = (
            f"within {seconds:g} s there was no answer that Ray understands; another program may listen there, or this "
            "machine be none of the cluster's"
        )
        self.kill()
