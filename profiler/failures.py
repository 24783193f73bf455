"""What became of a worker's task that failed, in words for the user; free of torch."""

import signal
from concurrent.futures import TimeoutError

from pebble import ProcessExpired

from kernels.own_fault import KernelFault
from kernels.problem import Refused
from profiler import child
from profiler.child import CannotStart
from profiler.gpu_errors import ContextLost, OutOfGpuMemory
from profiler.spawn import LEFT_WITH_0
from profiler.store import StoreError
from profiler.task_pipe import TaskFailed
from profiler.task_process import OUT_OF_MEMORY, Ended

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # no library raises them in itself
# What a library that breaks down raises in its own process.
OF_A_LIBRARY = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)


class KeptAnyway(RuntimeError):
    """A Run is kept, but its process did not come to say so; the message says that."""


def kept_anyway(error: BaseException, kernel: str) -> str:
    """What the user is told of a task that has kept a Run and failed after that."""
    if isinstance(error, ProcessExpired):
        then = f"the worker process {how_it_died(error)}; a fresh one takes over"
    elif isinstance(error, TimeoutError):
        then = "the worker process hung; a fresh one takes over"
    else:
        then = str(error) if isinstance(error, TaskFailed) else child.words_of(error)
    return f"The Run of {kernel} is kept, but then {then}. Run again what is missing."


def explain(error: BaseException, timeout: float, phase: str, kernel: str) -> str:
    """What happened, why, and what to do, in words for the user."""
    what = f"{kernel or 'The worker'} (phase: {phase})"
    if isinstance(error, TimeoutError):
        return f"{what} was stopped after {timeout:.0f} s. Choose a smaller problem or a longer time-out."
    if isinstance(error, ContextLost):
        return f"{kernel} lost its CUDA context: {error}. Run again: a fresh worker takes over."
    if isinstance(error, Ended) and error.how == OUT_OF_MEMORY:
        return f"{what} ended: the worker process {error.how}. Choose a smaller problem or free some memory; run again."
    if isinstance(error, ProcessExpired):
        again = " If that dies too, `python -m profiler doctor` tells which source does it."
        return (
            f"{what} ended: the worker process {how_it_died(error)}. Run again: a fresh one takes over."
            f"{again if -error.exitcode in OF_A_LIBRARY else ''}"
        )
    if isinstance(error, MemoryError):
        memory = "GPU memory" if isinstance(error, OutOfGpuMemory) else "memory"
        return f"{what} ran out of {memory}: {error}. Choose a shorter sequence, fewer heads or only flash."
    if isinstance(error, Refused | StoreError | CannotStart | KernelFault | KeptAnyway):
        return str(error)
    return f"{what} failed: {error if isinstance(error, TaskFailed) else child.words_of(error)}"


def no_start(error: BaseException, what: str, timeout: float) -> CannotStart | None:
    """What `error` means of a child that was at `what` to become ready within `timeout` s; None if it says enough."""
    if isinstance(error, TimeoutError):
        return CannotStart(
            f"The worker did not start within {timeout:.0f} s: {what} hangs; see whether "
            "`python -c 'import torch'` ends here, and install the versions of requirements.txt."
        )
    if isinstance(error, ProcessExpired) and -error.exitcode in FROM_OUTSIDE:
        return CannotStart(
            f"The worker cannot start: while {what} its process {how_it_died(error)}. See who ends processes "
            "here, or free some memory, and run again."
        )
    if isinstance(error, ProcessExpired):
        return CannotStart(
            f"The worker cannot start: {what} failed, for the process {how_it_died(error)}; install the "
            "versions of requirements.txt."
        )
    return None


def how_it_died(error: ProcessExpired) -> str:
    """What the process did that ended."""
    if isinstance(error, Ended) and error.how:
        return error.how
    code = error.exitcode
    if code >= 0:
        return f"left with exit code {0 if code == LEFT_WITH_0 else code}"
    name = signal.Signals(-code).name if -code in {s.value for s in signal.Signals} else f"signal {-code}"
    return f"was killed by {name}" + (" (the system may be out of memory)" if name == "SIGKILL" else "")
