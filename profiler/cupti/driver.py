"""The CUDA driver's side of CUPTI: this thread's context, its chip, and waiting for its work."""

import ctypes
from functools import cache

from profiler.cupti import structs
from profiler.cupti.library import Cupti, CuptiError


@cache
def cuda_driver() -> ctypes.CDLL:
    """libcuda, which the NVIDIA driver installs. Raises CuptiError where there is none."""
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        raise CuptiError(
            "No GPU counters: there is no NVIDIA driver (libcuda.so.1). Use a machine with an NVIDIA GPU; "
            "in a container, start it with the NVIDIA runtime."
        ) from error


def current_context() -> tuple[int, int]:
    """This thread's CUDA context, as a handle, and its device's number. Raises CuptiError if it has none."""
    handle, device = ctypes.c_void_p(), ctypes.c_int()
    # CUPTI takes a NULL context and crashes the process.
    if cuda_driver().cuCtxGetCurrent(ctypes.byref(handle)) or handle.value is None:
        raise CuptiError("No GPU counters: this thread has no CUDA context yet. Make a tensor on the GPU in it first.")
    _check(cuda_driver().cuCtxGetDevice(ctypes.byref(device)))
    return handle.value, device.value


def current_chip(cupti: Cupti) -> str:
    """The chip of this thread's CUDA context, such as GH100. Raises CuptiError if there is no context."""
    _, device = current_context()
    # Only with a context: before CUDA is initialised it answers CUPTI_ERROR_UNKNOWN.
    cupti.call(structs.ProfilerInitialize())
    name: bytes = cupti.call(structs.DeviceGetChipName(deviceIndex=device)).pChipName
    return name.decode()


def synchronize() -> None:
    """Waits for all work of this thread's CUDA context. Raises RuntimeError if some of it failed."""
    _check(cuda_driver().cuCtxSynchronize())


def _check(code: int) -> None:
    if code:
        name = ctypes.c_char_p()
        cuda_driver().cuGetErrorName(code, ctypes.byref(name))
        raise RuntimeError(f"The GPU work failed: {(name.value or b'a CUDA error').decode()} ({code}).")
