"""What tests do inside a worker's child process, by Worker.schedule: break flash or its answer, mend it, note times."""

import ctypes
import importlib
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

REASON = "the kernel is broken"
ILLEGAL = "CUDA error: an illegal memory access was encountered"
EATEN_BYTES, BITE_BYTES = 2**31, 2**24  # by what is to meet the kernel's OOM killer: in all, and at once
HUGE_BYTES = 65 * 2**20  # more than an answer or a Run's file may have
PLANTED = Path(__file__).parent / "planted_counters"


def _raise(q: Any) -> None:
    raise ValueError(f"{REASON}\nand its second line")


def _hang_in_c(q: Any) -> None:
    ctypes.PyDLL(None).sleep(600)  # with the GIL held, as a library may


def _allocate(q: Any) -> None:
    import torch

    torch.empty(2**45, dtype=torch.uint8, device=q.device)


def _eat(q: Any) -> None:
    eaten = [b"x" * BITE_BYTES for _ in range(EATEN_BYTES // BITE_BYTES)]
    raise AssertionError(f"there was room for {len(eaten)} × {BITE_BYTES:,} B")


def _write_far_away(q: Any) -> None:
    import torch

    from tests.far_away import write_far_away

    write_far_away[(1,)](q)
    torch.cuda.synchronize()


def _lose_a_fake_gpu(q: Any) -> None:
    """As on a GPU whose context is lost: from now on every call of CUDA's fails in this process."""
    import torch

    from profiler import gpu_errors

    def fail(*_: object) -> None:
        raise RuntimeError(f"{ILLEGAL}\nCUDA kernel errors might be asynchronously reported")

    gpu_errors.CPU = "no device"  # so that the CPU, too, is asked whether its context is lost
    fake: Any = torch.cuda
    fake.synchronize = fake.empty_cache = fail
    fail()


FAULTS: dict[str, Callable[[Any], None]] = {
    "raise": _raise,
    "sleep": lambda q: time.sleep(600),
    "hang in C": _hang_in_c,
    "stop": lambda q: os.kill(os.getpid(), signal.SIGSTOP),
    "kill": lambda q: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda q: os._exit(3),
    "out of memory": _allocate,
    "eat memory": _eat,
    "illegal address": _write_far_away,
    "fake illegal address": _lose_a_fake_gpu,
}


def break_flash(fault: str) -> None:
    """From now on flash meets one of FAULTS in this process."""
    kernel: Any = importlib.import_module("kernels.flash.kernel")
    kernel.forward = lambda q, *_, **__: FAULTS[fault](q)


def break_flash_once(fault: str, note: str) -> None:
    """The next flash of this process meets one of FAULTS, after it has made the file `note`."""
    kernel: Any = importlib.import_module("kernels.flash.kernel")
    sound = kernel.forward

    def forward(q: Any, *arguments: object, **how: object) -> Any:
        kernel.forward = sound
        Path(note).touch()
        FAULTS[fault](q)
        return sound(q, *arguments, **how)

    kernel.forward = forward


def mend_flash() -> None:
    """Flash works again in this process."""
    sys.modules.pop("kernels.flash.kernel", None)


def plant_source() -> None:
    """From now on a source among the counters of this process breaks down in its library."""
    from profiler import counters
    from profiler.counter import all_counters

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # nobody is to keep gigabytes of it
    counters.__path__.append(str(PLANTED))
    all_counters.cache_clear()


def spoil_answer(how: str) -> None:
    """The next Run of this process is measured and saved, but its answer is cut off, huge, or of a kind never sent."""
    child: Any = importlib.import_module("profiler.child")
    sound = child.measure_and_save

    def measure_and_save(*arguments: object) -> object:
        child.measure_and_save = sound
        run_id = sound(*arguments)
        if how == "cut off":
            pipe: Any = importlib.import_module("profiler.task_pipe")
            pipe.send = send_half_and_die
        return {"cut off": run_id, "huge": b"x" * HUGE_BYTES, "never sent": lambda: run_id}[how]

    child.measure_and_save = measure_and_save


def send_half_and_die(line: socket.socket, message: bytes, meanwhile: object = None) -> None:
    """As profiler.task_pipe.send, whose process is killed in the middle."""
    whole = len(message).to_bytes(8, "big") + message
    line.sendall(whole[: len(whole) // 2])
    os.kill(os.getpid(), signal.SIGKILL)


def die_while_saving() -> None:
    """The next Run of this process is measured, and its file half written when it is killed."""
    store: Any = importlib.import_module("profiler.store")
    # What tells of the progress is written without it.
    store.os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)


def measure_too_much() -> None:
    """The next Run of this process is larger than a Run's file may be, in a part that cannot be left out."""
    module: Any = importlib.import_module("profiler.measure")
    sound = module.measure

    def measure(*arguments: Any) -> Any:
        module.measure = sound
        run = sound(*arguments)
        return replace(run, environment=run.environment | {"torch": "x" * HUGE_BYTES})

    module.measure = measure


def throw(error: BaseException) -> None:
    """Raise it."""
    raise error


def leave_the_line() -> None:
    """Close every file of this process, what it is spoken to with among them, and live on."""
    os.closerange(3, 1024)
    time.sleep(600)


def fork_and_die() -> None:
    """Leave a fork of this process, for a while."""
    if os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


class Unreadable(Exception):
    """An error that its own process can pickle, and no other can read."""

    def __reduce__(self) -> Any:
        return _only_in, (os.getpid(),)


def _only_in(pid: int) -> Unreadable:
    assert pid == os.getpid(), "it is read elsewhere"
    return Unreadable()


def answer_unreadably() -> Unreadable:
    """A value that cannot be read."""
    return Unreadable()


def note_times(file: str) -> None:
    """From now on every measure() in this process adds a line to `file`: when it began and ended, monotonic ns."""
    module: Any = importlib.import_module("profiler.measure")
    measure = module.measure

    def timed(*arguments: object) -> object:
        begun = time.monotonic_ns()
        run: object = measure(*arguments)
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(f"{begun} {time.monotonic_ns()}\n")
        return run

    module.measure = timed
