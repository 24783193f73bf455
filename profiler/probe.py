"""Tries sources of numbers on one device; a program, since a driver's library may crash or hang it.

`python -m profiler.probe DEVICE SOURCE...` tells what it waits for that every source needs, {"asking": "torch"} and
{"asking": "NVML"}, and then {"is_ready": true}. It answers for each source in turn with a line of JSON: {"answer":
Answer, "is_busy": whether a measurement holds the GPU}. A source that is to be tried is told before, {"title": its
title, "seconds": how long it may take}, and waits for a line on standard input. Triton's interpreter passes for a
source.
"""

import importlib
import json
import math
import resource
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from profiler import child, gpu_lock
from profiler.child import words_of
from profiler.codec import encode
from profiler.counter import Counter, Reading, Unavailable
from profiler.device import cpu_device, detect
from profiler.diagnosis import BUSY, Answer, Found
from profiler.interpreter import why_not_interpreted
from profiler.orphans import end_with_parent
from profiler.plausible import printable
from profiler.run import DeviceInfo, Measurement
from profiler.store import StoreError
from profiler.workload import CPU

if TYPE_CHECKING:
    from profiler.known_loads import KnownLoad

INTERPRETER = Answer("any", "interpreter", "Triton's interpreter: loads and stores, softmax state, errors", True)
QUICK_SECONDS = 20.0
SLOW_SECONDS = 120.0  # ncu ends itself before, and then says why
LOCK_SECONDS = 5.0
WATCHED_SECONDS = 0.3
# So much of L2 that writes left in it, and reads answered by it, are a small part of a copy.
COPY_OF_L2 = 8
MIN_COPY_BYTES = 32 * 2**20
DOUBTFUL = 0.25  # nobody's rounding: more than L2 could hide


class Busy(RuntimeError):
    """Another measurement holds the GPU."""


def main() -> None:
    """Answer for every source that the command line names."""
    # A crash is an answer here; nobody wants its core file.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    end_with_parent()
    device, *names = sys.argv[1:]
    why_no_torch = prepare(device)
    for name in names:
        if name == INTERPRETER.name:
            reason = why_no_torch or why_not_interpreted() or ""
            _tell(answer=replace(INTERPRETER, available=not reason, reason=reason))
        else:
            probe(name, device)


def prepare(device: str) -> str:
    """Wait for what every source waits for, so that it is known what hangs; returns why torch cannot be imported."""
    why_no_torch = ""
    _tell(asking="torch")
    try:
        import torch  # noqa: F401
        import triton  # noqa: F401
    except Exception as error:
        why_no_torch = (
            f"torch and Triton cannot be imported ({words_of(error)}). Install the versions of requirements.txt"
        )
    _tell(asking="NVML")
    # A source that needs the device meets the same fault, and tells it.
    with suppress(Exception):
        known_device(device)
    _tell(is_ready=True)
    return why_no_torch


def probe(name: str, device: str) -> None:
    """Print the answer of one source."""
    title, found, reason, is_busy = name, None, "", False
    try:
        counter: Counter = importlib.import_module(f"profiler.counters.{name}").COUNTER
    # Whatever a missing or broken torch raises is the answer, here and below.
    except Exception as error:
        reason = f"{name} cannot be loaded ({words_of(error)}). Install the versions of requirements.txt anew"
    else:
        title = counter.title
        try:
            found, reason = ask(counter, device)
        except Busy:
            reason, is_busy = BUSY, True
        except Unavailable as unavailable:
            reason = str(unavailable)
        except Exception as error:
            reason = _explain(title, error)
    _tell(answer=Answer(device, name, title, found is not None, reason, found), is_busy=is_busy)


def _tell(**said: Any) -> None:
    # On a line of its own, whatever a library has printed before.
    print(f"\n{json.dumps(encode(said), allow_nan=False)}", flush=True)


def ask(counter: Counter, device: str) -> tuple[Found | None, str]:
    """What a source measured, once it is its turn; or None and why it cannot. Raises Unavailable or Busy as well."""
    if reason := counter.unavailable(known_device(device)):
        return None, reason
    seconds = LOCK_SECONDS + (SLOW_SECONDS if counter.is_slow else QUICK_SECONDS)
    _tell(title=counter.title, seconds=seconds)
    if not sys.stdin.readline():
        sys.exit("The doctor that asked is gone.")
    return try_source(counter, device)


def known_device(device: str) -> DeviceInfo:
    """What can be told of a device without torch. Raises Unavailable where it does not exist."""
    if device == CPU:  # whatever NVML does
        return cpu_device()
    found = next((info for info in detect() if info.device == device), None)
    if found is None:
        raise Unavailable(f"there is no {device} here any more; look at nvidia-smi")
    return found


def try_source(counter: Counter, device: str) -> tuple[Found | None, str]:
    """What the source measures of a copy, None if nothing; and why something is missing or in doubt."""
    import torch

    with _gpu(device), torch.inference_mode():
        load = known_copy(child.describe(device))
        reading = _read(counter, load)
    return judge(reading, load)


@contextmanager
def _gpu(device: str) -> Iterator[None]:
    """Wake CUDA, and hold the lock of measurements. Raises Unavailable or Busy."""
    if device == CPU:
        yield
        return
    import torch
    from filelock import Timeout

    try:
        torch.cuda.init()
    except (AssertionError, RuntimeError) as error:
        words = printable(str(error)).partition(". ")[0].rstrip(".")
        raise Unavailable(
            f"torch cannot use the GPU: {words}. Install an NVIDIA driver and a CUDA build of torch that fit together"
        ) from error
    try:
        lock = gpu_lock.lock_of(device)
        lock.acquire(timeout=LOCK_SECONDS)
    except Timeout as held:
        raise Busy from held
    except StoreError as fault:
        raise Unavailable(str(fault).rstrip(".")) from fault
    try:
        yield
    finally:
        lock.release()


def known_copy(device: DeviceInfo) -> "KnownLoad":
    """A copy within the device, large against its L2, whose HBM bytes are known."""
    from profiler.audit_grid import KnownWork
    from profiler.bench import FALLBACK_L2_BYTES
    from profiler.known_loads import KnownLoad

    l2 = 0 if device.device == CPU else device.l2_bytes or FALLBACK_L2_BYTES
    return KnownLoad(KnownWork("copy", max(MIN_COPY_BYTES, COPY_OF_L2 * l2)), device)


def _read(counter: Counter, load: "KnownLoad") -> Reading:
    if counter.watch is None:
        assert counter.measure is not None
        return counter.measure(load)
    with counter.watch(load) as finish:
        end = time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < end:
            load.launch()
            load.synchronize()
        return finish()


def judge(reading: Reading, load: "KnownLoad") -> tuple[Found | None, str]:
    """What has a value, as Found; and what has none, or is far from what the copy is known to move."""
    values: list[Measurement] = []
    reasons: dict[str, list[str]] = {}
    for measurement in (m for m in reading.measurements if m.launch is None):
        if measurement.value is not None and math.isfinite(measurement.value):
            values.append(measurement)
        else:
            reasons.setdefault(measurement.note or f"it gave {measurement.value}", []).append(measurement.name)
    lacking = "; ".join(f"{', '.join(names)}: {reason}" for reason, names in reasons.items())
    if not values:
        return None, lacking or "it measured nothing, and did not say why"
    known = load.known | {"hbm_bytes": load.compulsory_bytes}
    far = [m.name for m in values if m.name in known and _is_far(m, known[m.name])]
    doubt = (
        f"{', '.join(far)}: more than {DOUBTFUL:.0%} off what this copy is known to move, so do not trust it here; "
        "another process may be using the GPU"
    )
    size = load.work.size
    label = f"copy of {size >> 20} MiB ({size / 1e6:.4g} MB read, {size / 1e6:.4g} MB written)"
    return Found(label, tuple(values)), ". ".join(filter(None, (lacking, doubt if far else "")))


def _is_far(found: Measurement, known: float) -> bool:
    return found.value is not None and abs(found.value / known - 1) > DOUBTFUL


def _explain(title: str, error: Exception) -> str:
    if type(error).__name__ == "OutOfMemoryError":
        return f"the GPU has too little free memory for the copy it is tried on ({words_of(error)}). End other programs"
    return f"{title} failed ({words_of(error)}). Try again; if it stays, report this line with the versions above"


if __name__ == "__main__":
    main()
