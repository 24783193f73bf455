"""What torch raises where memory or the GPU is lost, as errors of our own that other processes can read."""

from collections.abc import Iterator
from contextlib import contextmanager

from profiler.workload import CPU

CPU_ALLOCATOR = "DefaultCPUAllocator: "  # on the CPU, torch tells of missing memory in a RuntimeError like any other
MOST_CHARACTERS = 300


class OutOfGpuMemory(MemoryError):
    """The GPU has no memory for a tensor; the message is torch's."""


class ContextLost(RuntimeError):
    """A CUDA error after which every call in its process fails; `trace` is the traceback of an own kernel."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])


@contextmanager
def errors_told(device: str) -> Iterator[None]:
    """Raise OutOfGpuMemory, MemoryError or ContextLost for what torch raises in the block, and free what it left."""
    import torch

    is_lost = False
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfGpuMemory(_first_line(error)) from None
    except RuntimeError as error:
        if type(error) is RuntimeError and CPU_ALLOCATOR in str(error):
            raise MemoryError(_first_line(error).partition(CPU_ALLOCATOR)[2]) from None
        is_lost = device != CPU and _context_is_lost()
        if is_lost:
            raise ContextLost(_first_line(error), getattr(error, "trace", "")) from None
        raise
    finally:
        if device != CPU and not is_lost:
            torch.cuda.empty_cache()


def _context_is_lost() -> bool:
    """After a sticky CUDA error every further call fails."""
    import torch

    try:
        torch.cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:MOST_CHARACTERS] if str(error).strip() else type(error).__name__
