"""The program ncu (Nsight Compute): where it is, what it can do, and running it so that nothing of it stays behind."""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from profiler.cupti.host import TrafficMetrics, traffic_metrics
from profiler.cupti.library import CuptiError
from profiler.ncu_csv import MAX_BYTES, PASSES, NcuError
from profiler.orphans import family
from profiler.run import DeviceInfo

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = (("/usr/local", "cuda*/bin/ncu"), ("/opt/nvidia/nsight-compute", "*/ncu"))
OLDEST = (2022, 1)
INSTALL = "Install Nsight Compute (it comes with the CUDA toolkit), or name the program in BYTESCOPE_NCU."
ANSWER_SECONDS, POLL_SECONDS = 30.0, 0.1
MOST_CONSOLE = 2**20  # characters in which a last line is looked for

# How the chips of a compute capability begin in `ncu --list-chips` (GPU support, Nsight Compute's release notes).
CHIPS = {
    (7, 0): "gv100",
    (7, 5): "tu1",
    (8, 0): "ga100",
    (8, 6): "ga10",
    (8, 9): "ad10",
    (9, 0): "gh100",
    (10, 0): "gb10",
    (12, 0): "gb20",
}
# What older versions lack: leave a user's own settings out of it, and the boost of the Tensor Cores as it is.
NEWER_OPTIONS = (("--config-file", "off"), ("--pipeline-boost-state", "dynamic"))


@dataclass(frozen=True)
class Ncu:
    """A working ncu."""

    path: str
    version: tuple[int, int, int]

    def __str__(self) -> str:
        return f"ncu {'.'.join(map(str, self.version))}"


def find() -> Ncu:
    """The ncu that BYTESCOPE_NCU names, or else the newest on PATH, in CUDA toolkits and in Nsight Compute's folders.

    Raises NcuError where there is none, none works, or it is too old for all GPUs.
    """
    named = os.environ.get("BYTESCOPE_NCU")
    paths = [named] if named else list(_candidates())
    if not paths:
        raise NcuError(f"ncu is not on PATH, in a CUDA toolkit under /usr/local or in /opt/nvidia. {INSTALL}")
    working, failures = [], []
    for path in paths:
        try:
            working.append(Ncu(path, _version(path)))
        except NcuError as failure:
            failures.append(failure)
    if not working:
        raise failures[0]
    newest = max(working, key=lambda ncu: ncu.version)
    if newest.version < OLDEST:
        raise NcuError(f"{newest} is too old; Bytescope needs {'.'.join(map(str, OLDEST))} or newer. {INSTALL}")
    return newest


def _candidates() -> Iterator[str]:
    on_path = shutil.which("ncu")
    paths = [Path(on_path)] if on_path else []
    paths += [path for folder, pattern in FOLDERS for path in sorted(Path(folder).glob(pattern))]
    # Of several names of one program, the first.
    yield from {path.resolve(): str(path) for path in reversed(paths)}.values()


def _version(path: str) -> tuple[int, int, int]:
    text = ask(path, "--version")
    found = re.search(r"Version (\d{4})\.(\d{1,4})\.(\d{1,4})", text, re.ASCII)
    if found is None:
        raise NcuError(f"{path} tells no version ({last_line(text)}). {INSTALL}")
    year, release, update = map(int, found.groups())
    return year, release, update


def lacks(ncu: Ncu, device: DeviceInfo) -> str | None:
    """Why this ncu is too old, or too new, for the device's chip; None where it knows it. Raises NcuError."""
    chip = CHIPS.get(device.compute_capability or (0, 0))
    if chip is None or re.search(rf"\b{chip}", ask(ncu.path, "--list-chips")):
        return None
    return f"{ncu} does not know the chip of {device.name}. Install another version, or name it in BYTESCOPE_NCU."


def metrics_of(ncu: Ncu, chip: str | None) -> TrafficMetrics:
    """The names that this ncu has for the traffic metrics of a chip such as gh100, or of the GPUs here if it is None.

    ncu is asked although libcupti has names too: the two are installed apart, and names differ from one version to
    the next. Raises NcuError.
    """
    text = ask(ncu.path, "--query-metrics", *(("--chips", chip) if chip else ()))
    known = set(re.findall(r'^"?([a-z]\w*__\w+)', text, re.MULTILINE | re.ASCII))
    try:
        found = traffic_metrics(known)
        # Volta counts these in passes of their own, each a replay.
        return replace(found, to_sm=None, sm_reads=None) if (chip or "").startswith("gv1") else found
    except CuptiError as error:
        told = f"{len(known)} metrics, but not those of its traffic" if known else f"no metrics ({last_line(text)})"
        raise NcuError(f"{ncu} tells of {chip or 'the GPUs here'} {told}. {INSTALL}") from error


def command(ncu: Ncu, metrics: TrafficMetrics, log: Path, spec: Path) -> list[str]:
    """The command line that profiles profiler.ncu_target and touches neither clocks nor caches. Raises NcuError."""
    known = ask(ncu.path, "--help")
    newer = [word for option in NEWER_OPTIONS if option[0] in known for word in option]
    return [
        *(ncu.path, *newer, "--profile-from-start", "off", "--replay-mode", "kernel"),
        *("--cache-control", "none", "--clock-control", "none", "--metrics", ",".join((*metrics.names, PASSES))),
        *("--page", "raw", "--csv", "--print-units", "base", "--log-file", str(log)),
        *(sys.executable, "-m", "profiler.ncu_target", str(spec)),
    ]


@cache
def ask(path: str, *options: str) -> str:
    """What ncu prints for options that profile nothing. Raises NcuError."""
    code, text = run([path, *options], ANSWER_SECONDS)
    if code:
        raise NcuError(f"{path} {' '.join(options)} ended with code {code}: {last_line(text)}. {INSTALL}")
    return text


def run(words: Sequence[str], seconds: float, log: Path | None = None) -> tuple[int, str]:
    """Exit code, and stdout and stderr together; whatever was started has ended then.

    Raises NcuError: it cannot be started, takes too long, or writes more than MAX_BYTES, to `log` or else.
    """
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    # Where the user's language does, ncu would write 1.234 for 1,234.
    environment |= {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "LC_ALL": "C"}
    with tempfile.TemporaryFile() as console:
        options = {"stdin": subprocess.DEVNULL, "stdout": console, "stderr": subprocess.STDOUT}
        try:
            # ncu gives the program that it profiles a process group of its own.
            with family(words, cwd=ROOT, env=environment, **options) as process:
                code = _wait(process, seconds, (console.fileno(), *([] if log is None else [log])))
        except OSError as error:
            raise NcuError(f"{words[0]} cannot be started: {error.strerror}. {INSTALL}") from error
        console.seek(0)
        return code, console.read(MAX_BYTES).decode(errors="replace")


def _wait(process: "subprocess.Popen[bytes]", seconds: float, files: Iterable[int | Path]) -> int:
    """Its exit code. Raises NcuError once it takes too long, or has written too much to one of the files."""
    end = time.monotonic() + seconds
    while True:
        try:
            return process.wait(max(0.0, min(POLL_SECONDS, end - time.monotonic())))
        except subprocess.TimeoutExpired as error:
            if any(map(_is_too_long, files)):
                raise NcuError(
                    f"ncu wrote more than {MAX_BYTES >> 20} MiB and was stopped; choose a problem with fewer launches."
                ) from error
            if time.monotonic() >= end:
                raise NcuError(
                    f"ncu had not finished after {seconds:.3g} s and was stopped. Choose a smaller problem; where it "
                    "is small, another ncu may be holding the GPU."
                ) from error


def _is_too_long(file: int | Path) -> bool:
    with suppress(OSError):  # the log is not there from the start
        return os.stat(file).st_size > MAX_BYTES
    return False


def last_line(text: str) -> str:
    """The last line that is not ncu's own, as far as a sentence has room for it."""
    lines = reversed(text[-MOST_CONSOLE:].split("\n"))
    return next((line.strip()[:300] for line in lines if line.strip() and not line.startswith("==")), "it said nothing")
