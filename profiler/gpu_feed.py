"""Live GPU readings for a process that may not load NVML: a child process takes them, GpuFeed keeps them."""

import json
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from profiler.codec import decode
from profiler.gpu_sample import RETRY_SECONDS, GpuSample
from profiler.plausible import printable
from profiler.run import DeviceInfo

KEPT_SAMPLES = 6000  # of each GPU: five minutes
SILENT_SECONDS = 2.0
HUNG_SECONDS = 60.0  # of silence, after which a fresh child is tried; a driver of many GPUs may take half to start
CHILD = (sys.executable, "-m", "profiler.gpu_sample")
ROOT = Path(__file__).resolve().parent.parent


class GpuFeed:
    """The readings of a child process, kept for a while; every method answers at once.

    The child is started in the background, started again if it dies, and ends with this process or at close().
    """

    def __init__(self, command: Sequence[str] = CHILD) -> None:
        self._command = command
        self._lock = threading.Lock()
        self._answered, self._closed = threading.Event(), threading.Event()
        self._devices: tuple[DeviceInfo, ...] = ()
        self._faults: tuple[str, ...] = ()
        self._samples: dict[str, deque[GpuSample]] = {}
        self._why: str | None = "NVML has not answered yet."
        self._heard = time.monotonic()
        self._child: subprocess.Popen[str] | None = None
        self._reader = threading.Thread(target=self._keep_reading, name="gpu-feed", daemon=True)
        self._reader.start()

    def wait_for_answer(self, seconds: float) -> bool:
        """True once the child has told its GPUs, or why there are none."""
        return self._answered.wait(seconds)

    @property
    def why_no_gpu(self) -> str | None:
        """A sentence where there are no live readings, None where there are."""
        with self._lock:
            silent = time.monotonic() - self._heard
            if silent > SILENT_SECONDS and (self._why is None or not self._answered.is_set()):
                return f"NVML has not answered for {silent:.0f} s; see whether nvidia-smi answers."
            return self._why

    def devices(self) -> tuple[DeviceInfo, ...]:
        """The GPUs that the child sees."""
        with self._lock:
            return self._devices

    def faults(self) -> tuple[str, ...]:
        """A sentence for each GPU that the driver counts and does not open."""
        with self._lock:
            return self._faults

    def latest(self, device: str) -> GpuSample | None:
        """The newest sample of a GPU such as "cuda:0"; None where there are no live readings."""
        if self.why_no_gpu is not None:
            return None
        with self._lock:
            kept = self._samples.get(device)
            return kept[-1] if kept else None

    def history(self, device: str, seconds: float) -> tuple[GpuSample, ...]:
        """The samples of the last `seconds`, oldest first."""
        since = time.time() - seconds
        with self._lock:
            return tuple(sample for sample in self._samples.get(device, ()) if sample.time >= since)

    def close(self) -> None:
        """End the child."""
        self._closed.set()
        with self._lock:
            child = self._child
        if child is not None and child.stdin is not None:
            child.stdin.close()
            self._reader.join(1.0)
            child.kill()

    def _keep_reading(self) -> None:
        while not self._closed.is_set():
            try:
                ending = self._read_one_child()
            except OSError as fault:
                ending = f"The process that reads NVML cannot be started ({fault.strerror or fault})"
            with self._lock:
                self._why = f"{ending}; it is started again in {RETRY_SECONDS:.0f} s."
            self._answered.set()
            self._closed.wait(RETRY_SECONDS)

    def _read_one_child(self) -> str:
        """How it ended, as the beginning of a sentence."""
        last_words, has_answered, is_hung = "", False, threading.Event()
        with self._lock:
            self._heard = time.monotonic()
        with subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            cwd=ROOT,
            # Its own session, so that Ctrl-C in the terminal reaches this process alone and the child ends after it.
            start_new_session=True,
        ) as child:
            with self._lock:
                self._child = child
            threading.Thread(
                target=self._end_if_silent, args=(child, is_hung), name="gpu-feed-watch", daemon=True
            ).start()
            for line in child.stdout or ():
                if self._closed.is_set():
                    break
                if self._take(line):
                    has_answered = True
                else:
                    last_words = line.strip()
        if not has_answered:
            # What the one before told is no longer known to be there.
            with self._lock:
                self._devices = ()
        if is_hung.is_set():
            return f"NVML gave no answer for {HUNG_SECONDS:.0f} s, and the process that reads it was stopped"
        return f"The process that reads NVML {_how(child.returncode)}{last_words and f' ({printable(last_words)})'}"

    def _end_if_silent(self, child: "subprocess.Popen[str]", is_hung: threading.Event) -> None:
        """Kill a child that says nothing for HUNG_SECONDS: a library that hangs does not come back by itself."""
        while child.poll() is None and not self._closed.wait(HUNG_SECONDS / 20):
            with self._lock:
                silent = time.monotonic() - self._heard
            if silent > HUNG_SECONDS:
                is_hung.set()
                child.kill()
                return

    def _take(self, line: str) -> bool:
        """Keep one line of the child; False where it is no document but a last word."""
        try:
            document = json.loads(line)
            devices = decode(tuple[DeviceInfo, ...], document.get("devices", []), "devices")
            samples = decode(tuple[GpuSample, ...], document.get("samples", []), "samples")
            faults = decode(tuple[str, ...], document.get("faults", []), "faults")
        except (ValueError, AttributeError):
            return False
        with self._lock:
            self._heard = time.monotonic()
            if "devices" in document:
                self._devices, self._why = devices, document.get("why_no_gpu")
                self._faults = faults
            for sample in samples:
                self._samples.setdefault(sample.device, deque(maxlen=KEPT_SAMPLES)).append(sample)
        if "devices" in document:
            self._answered.set()
        return True


def _how(code: int) -> str:
    """How a process ended, by its exit code."""
    if code >= 0:
        return f"ended with code {code}"
    known = {one.value: one.name for one in signal.Signals}
    return f"was ended by {known.get(-code, f'signal {-code}')}"
