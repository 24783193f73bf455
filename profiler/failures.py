"""What became of a worker's task that failed, in words for the user; free of torch."""

import signal
from concurrent.futures import TimeoutError
from concurrent.futures.process import BrokenProcessPool

from pebble import ProcessExpired

from kernels.own_fault import KernelFault
from kernels.problem import Refused
from profiler import child
from profiler.child import CannotStart
from profiler.spawn import LEFT_WITH_0
from profiler.store import StoreError

FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)  # no library raises them in itself


def explain(error: BaseException, timeout: float, phase: str, kernel: str) -> str:
    """What happened, why, and what to do, in words for the user."""
    what = f"{kernel or 'The worker'} (phase: {phase})"
    if isinstance(error, TimeoutError):
        return f"{what} was stopped after {timeout:.0f} s. Choose a smaller problem or a longer time-out."
    if isinstance(error, ProcessExpired):
        return f"{what} ended: the worker process {how_it_died(error.exitcode)}. Run again: a fresh one takes over."
    if isinstance(error, BrokenProcessPool):
        return f"{what} ended: the worker process died. Run again: a fresh one takes over."
    if isinstance(error, MemoryError):
        return f"{what} ran out of GPU memory: {error}. Choose a shorter sequence, fewer heads or only flash."
    if isinstance(error, Refused | StoreError | CannotStart | KernelFault):
        return str(error)
    return f"{what} failed: {child.words_of(error)}"


def no_start(error: BaseException, what: str, timeout: float) -> CannotStart | None:
    """What `error` means of a child that was at `what` to become ready within `timeout` s; None if it says enough."""
    if isinstance(error, TimeoutError):
        return CannotStart(
            f"The worker did not start within {timeout:.0f} s: {what} hangs; see whether "
            "`python -c 'import torch'` ends here, and install the versions of requirements.txt."
        )
    if isinstance(error, ProcessExpired) and -error.exitcode in FROM_OUTSIDE:
        return CannotStart(
            f"The worker cannot start: while {what} its process {how_it_died(error.exitcode)}. See who ends processes "
            "here, or free some memory, and run again."
        )
    if isinstance(error, ProcessExpired):
        return CannotStart(
            f"The worker cannot start: {what} failed, for the process {how_it_died(error.exitcode)}; install the "
            "versions of requirements.txt."
        )
    return None


def how_it_died(exitcode: int) -> str:
    """What a process did that ended, its exit code being what ProcessExpired tells."""
    if exitcode >= 0:
        return f"left with exit code {0 if exitcode == LEFT_WITH_0 else exitcode}"
    name = signal.Signals(-exitcode).name if -exitcode in {s.value for s in signal.Signals} else f"signal {-exitcode}"
    return f"was killed by {name}" + (" (the system may be out of memory)" if name == "SIGKILL" else "")
