"""Faults put into flash inside a worker's child process, by Worker.schedule(break_flash, fault)."""

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
                _write_far_away(q)

    kernel.forward = forward


def mend_flash() -> None:
    """Flash works again in this process."""
    sys.modules.pop("kernels.flash.kernel", None)


def _write_far_away(q: Any) -> None:
    """A sticky CUDA error: every later call of the process fails too."""
    import torch

    source = """
    extern "C" __global__ void far_away(int* p) { p[1ull << 40] = 1; }
    """
    kernel = torch.cuda._compile_kernel(source, "far_away")
    kernel((1, 1, 1), (1, 1, 1), (q,))
    torch.cuda.synchronize()
