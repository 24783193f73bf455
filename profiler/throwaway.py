"""A child process that may crash, hang or talk nonsense, and a sentence for each; what it says are lines of JSON."""

import asyncio
import json
import os
import signal
import sys
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from profiler.plausible import printable

ROOT = Path(__file__).resolve().parent.parent
MAX_LINE_BYTES, BLOCK_BYTES, MOST_WORD_BYTES = 2**20, 2**16, 2**12
GPU_HANGS = (
    "Another program may hold the GPU, or its driver hangs: see whether nvidia-smi answers, end other profilers and "
    "try again."
)
END_SECONDS = 2.0  # a killed process is gone at once, unless its driver holds it


class NoAnswer(RuntimeError):
    """The process fell silent; the message says how, why and what to do."""


class Throwaway:
    """A process in a session of its own. `subject` is what it deals with now, for the sentence if that ends it."""

    def __init__(self, process: asyncio.subprocess.Process, subject: str) -> None:
        self.subject = subject
        self._process = process
        self._last_words = b""
        self._lines: deque[bytes] = deque()
        self._begun = b""  # of a line whose end has not come yet

    async def say(self, line: str) -> None:
        """Send it a line; one that has ended hears nothing."""
        assert self._process.stdin is not None
        with suppress(ConnectionError):
            self._process.stdin.write(f"{line}\n".encode())
            await self._process.stdin.drain()

    async def hear(self, seconds: float, if_it_hangs: str = GPU_HANGS) -> dict[str, Any]:
        """The next JSON object that it prints; raises NoAnswer if it ends, or is silent for so long, before.

        `if_it_hangs` says why that may be, and what to do.
        """
        try:
            async with asyncio.timeout(seconds):
                while (line := await self._line()) is not None:
                    if (said := _document(line)) is not None:
                        return said
                    self._last_words = line.strip() or self._last_words
                code = await self._process.wait()
        except TimeoutError:
            raise NoAnswer(
                f"{self.subject} gave no answer within {seconds:.0f} s, and its probe was stopped. {if_it_hangs}"
            ) from None
        raise NoAnswer(self._ending(code))

    async def _line(self) -> bytes | None:
        """The next line, a long one cut; None at the end. Taken by the block, for a library may print a million."""
        assert self._process.stdout is not None
        while not self._lines:
            if not (block := await self._process.stdout.read(BLOCK_BYTES)):
                last, self._begun = self._begun, b""
                return last or None
            first, *others = block.split(b"\n")
            if len(self._begun) <= MAX_LINE_BYTES:
                self._begun += first
            if others:
                self._lines.extend((self._begun, *others[:-1]))
                self._begun = others[-1]
        return self._lines.popleft()

    def _ending(self, code: int) -> str:
        if code == -signal.SIGKILL:
            return (
                f"The probe of {self.subject} was killed by SIGKILL; the system may be out of memory. "
                "Free some and try again."
            )
        if code in (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP):
            return (
                f"The probe of {self.subject} was ended by {signal.Signals(-code).name} from outside. See who ends "
                "processes here, and try again."
            )
        if code < 0:
            known = {one.value: one.name for one in signal.Signals}
            return (
                f"The probe died of {known.get(-code, f'signal {-code}')} inside {self.subject}'s library. Update or "
                "reinstall the NVIDIA driver, torch and CUDA so that they fit together."
            )
        said = printable(self._last_words[:MOST_WORD_BYTES].decode(errors="replace"))
        words = f"its last words: {said}" if said else "it printed nothing"
        return (
            f"The probe of {self.subject} ended with exit code {code} and no answer ({words}). Install the versions "
            "of requirements.txt; if that does not help, report this line."
        )


def _document(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line is, if it is one."""
    line = line.strip()
    if not (line.startswith(b"{") and line.endswith(b"}") and len(line) <= MAX_LINE_BYTES):
        return None
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return said if isinstance(said, dict) else None


@asynccontextmanager
async def throwaway(words: tuple[str, ...], subject: str) -> AsyncIterator[Throwaway]:
    """Start Python with `words`; when the block ends, so do the process and all that it started."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *words,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=ROOT,
        env=_environment(),
        start_new_session=True,
    )
    try:
        yield Throwaway(process, subject)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), END_SECONDS)


def _environment() -> dict[str, str]:
    # NVML counts by PCI bus; so must CUDA. Nothing is interpreted here.
    kept = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    return kept | {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
