"""What tests do inside a worker's child process, by Worker.schedule: break flash, mend it, note times."""

import importlib
import os
import signal
import sys
import time
from typing import Any

REASON = "the kernel is broken"


def break_flash(fault: str) -> None:
    """From now on flash fails in this process: raise, sleep, kill, exit, run out of memory, or lose the GPU."""
    kernel: Any = importlib.import_module("kernels.flash.kernel")

    def forward(q: Any, *_: object, **__: object) -> None:
        match fault:
            case "raise":
                raise ValueError(f"{REASON}\nand its second line")
            case "sleep":
                time.sleep(600)
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(3)
            case "out of memory":
                import torch

                torch.empty(2**45, dtype=torch.uint8, device=q.device)
            case "illegal address":
                import torch

                from tests.far_away import write_far_away

                write_far_away[(1,)](q)
                torch.cuda.synchronize()

    kernel.forward = forward


def mend_flash() -> None:
    """Flash works again in this process."""
    sys.modules.pop("kernels.flash.kernel", None)


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
