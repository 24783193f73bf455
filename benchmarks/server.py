"""The real dashboard as a process of its own, on a port and a store of its own, and what the system knows of it."""

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 120.0
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Server:
    """A dashboard that keeps its Runs in `runs`; it can be killed and started again on the same port."""

    runs: Path
    cache: Path
    log: Path
    port: int = 0
    env: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.port:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
        self.start()

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start it and wait until it answers. Raises RuntimeError where it does not."""
        words = [sys.executable, "-m", "streamlit", "run", "app/main.py", "--server.headless", "true"]
        words += ["--server.address", "127.0.0.1", "--server.port", str(self.port)]
        here = {"BYTESCOPE_RUNS": str(self.runs), "BYTESCOPE_CACHE": str(self.cache)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                words, cwd=ROOT, env={**os.environ, **here, **self.env}, stdout=log, stderr=subprocess.STDOUT
            )
        end = time.monotonic() + START_SECONDS
        while self.process.poll() is None and time.monotonic() < end:
            with suppress(OSError), urllib.request.urlopen(f"{self.url}/_stcore/health", timeout=1):
                return
            time.sleep(0.1)
        raise RuntimeError(f"The dashboard did not start within {START_SECONDS:.0f} s; see {self.log}.")

    def kill(self) -> None:
        """End it as the system does that is out of memory."""
        self.process.kill()
        self.process.wait(20)

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.kill()

    def descendants(self) -> list[int]:
        """Process ids of all that it has started, and what those have."""
        parents = {pid: parent for pid in _pids() if (parent := _parent(pid)) is not None}
        found, more = set[int](), {self.process.pid}
        while more:
            found |= more
            more = {pid for pid, parent in parents.items() if parent in found} - found
        return sorted(found - {self.process.pid})

    def workers(self) -> list[int]:
        """Process ids of those that measure or compile."""
        return [pid for pid in self.descendants() if b"spawn_main" in _read(f"/proc/{pid}/cmdline")]

    def kill_workers(self) -> int:
        """Kill them; how many there were."""
        found = self.workers()
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        return len(found)

    def resident_bytes(self) -> int:
        """Memory of the server itself, without what it has started."""
        return resident_bytes(self.process.pid)

    def threads(self) -> int:
        """How many it has."""
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def open_files(self) -> int:
        """How many file descriptors it holds."""
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))


def is_alive(pid: int) -> bool:
    """Whether a process still runs; one that is dead and not yet buried does not."""
    state = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return bool(state) and state[0] != b"Z"


def resident_bytes(pid: int) -> int:
    """Memory that a process holds; 0 where it has gone."""
    words = _read(f"/proc/{pid}/statm").split()
    return int(words[1]) * PAGE_BYTES if words else 0


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdecimal()]


def _parent(pid: int) -> int | None:
    fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else None


def _read(file: str) -> bytes:
    with suppress(OSError):
        return Path(file).read_bytes()
    return b""
