"""A child process that may crash, hang or talk nonsense, and a sentence for each; what it says are lines of JSON."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from profiler.plausible import printable

ROOT = Path(__file__).resolve().parent.parent
MAX_LINE_BYTES = 2**20
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
        self._last_words = ""

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
                    try:
                        said = json.loads(line)
                    except (ValueError, RecursionError):
                        said = None
                    if isinstance(said, dict):
                        return said
                    self._last_words = printable(line) or self._last_words
                code = await self._process.wait()
        except TimeoutError:
            raise NoAnswer(
                f"{self.subject} gave no answer within {seconds:.0f} s, and its probe was stopped. {if_it_hangs}"
            ) from None
        raise NoAnswer(self._ending(code))

    async def _line(self) -> str | None:
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            return ""  # longer than MAX_LINE_BYTES
        return line.decode(errors="replace") if line else None

    def _ending(self, code: int) -> str:
        if code == -signal.SIGKILL:
            return (
                f"The probe of {self.subject} was killed by SIGKILL; the system may be out of memory. "
                "Free some and try again."
            )
        if code < 0:
            known = {one.value: one.name for one in signal.Signals}
            return (
                f"The probe died of {known.get(-code, f'signal {-code}')} inside {self.subject}'s library. Update or "
                "reinstall the NVIDIA driver, torch and CUDA so that they fit together."
            )
        words = f"its last words: {self._last_words}" if self._last_words else "it printed nothing"
        return (
            f"The probe of {self.subject} ended with exit code {code} and no answer ({words}). Install the versions "
            "of requirements.txt; if that does not help, report this line."
        )


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
        limit=MAX_LINE_BYTES,
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
