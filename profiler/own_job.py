"""What a Job does more for a kernel of the user's own: it is interpreted beside a GPU, and its traceback is kept."""

from collections.abc import Callable
from concurrent.futures import CancelledError, TimeoutError
from contextlib import suppress
from pathlib import Path
from typing import Any

from kernels.own import is_own
from profiler import child
from profiler.failures import explain
from profiler.own_kernel import (
    FRAMES,
    INTERPRET_SECONDS,
    NO_OWN,
    Own,
    Permit,
    on_cpu,
    unseen,
    where_it_hung,
    why_not_beside,
)
from profiler.run import Measurement
from profiler.workload import Workload

NOTHING: frozenset[str] = frozenset()
START_SECONDS = 120.0  # until a fresh process has imported torch


def told_of(workload: Workload, permit: Permit, timeout: float, ask_cpu: Callable[..., Any]) -> Own:
    """What the child is told; of an own kernel on a GPU also what the interpreter sees of it, or why it does not.

    ask_cpu(function, *arguments, timeout=seconds) runs a function of profiler.child in the CPU's worker.
    """
    if not is_own(workload.kernel):
        return NO_OWN
    beside: tuple[Measurement, ...] = ()
    if workload.on_gpu:
        reason = why_not_beside(workload)
        beside = _interpreted(workload, permit, ask_cpu) if reason is None else unseen(reason)
    return Own(permit, beside, timeout)


def imports_of(*kernels: str) -> frozenset[str]:
    """The own modules among kernels: what stays in a process that has imported them."""
    return frozenset(name.partition(":")[0] for name in kernels if is_own(name))


def left_by(kernel: str) -> frozenset[str]:
    """What stays in a process that has run a kernel: nothing of Bytescope's, of an own one its module and itself."""
    return imports_of(kernel) | {kernel} if is_own(kernel) else NOTHING


def _interpreted(workload: Workload, permit: Permit, ask_cpu: Callable[..., Any]) -> tuple[Measurement, ...]:
    try:
        ask_cpu(child.import_torch, timeout=START_SECONDS)
        found: tuple[Measurement, ...] = ask_cpu(child.interpret, on_cpu(workload), permit, timeout=INTERPRET_SECONDS)
    except CancelledError:
        raise
    except Exception as error:  # then this is why there is no number
        return unseen(explain(error, INTERPRET_SECONDS, "interpret", workload.kernel))
    return found


def trace_of(error: BaseException, progress: Path) -> str:
    """The traceback of an own kernel that failed, or where it stood when it was stopped; empty without one."""
    if isinstance(error, TimeoutError):
        with suppress(OSError):
            return where_it_hung(progress.with_name(FRAMES).read_text(encoding="utf-8", errors="replace"))
    return str(getattr(error, "trace", ""))
