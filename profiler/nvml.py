"""NVML opened safely, and the GPUs that CUDA programs see, in CUDA's order; free of torch."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

ADVICE = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "install the NVIDIA driver, or start the container with --gpus all",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the NVIDIA driver (modprobe nvidia)",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver was updated while it was loaded; restart the machine",
    "NVML_ERROR_NO_PERMISSION": "allow this user to open /dev/nvidiactl and /dev/nvidia*",
    "NVML_ERROR_GPU_IS_LOST": "see dmesg for why, and reset it or restart the machine",
    "NVML_ERROR_UNINITIALIZED": "the driver was unloaded; load it again (modprobe nvidia)",
}
MOST_GPUS = 1024  # of one host; a driver that tells of more tells nonsense


class NoGpu(RuntimeError):
    """NVML gives no GPU to work with; the message is a sentence that says why."""


class ImpossibleAnswer(ValueError):
    """NVML answers what no GPU can have; the message says what."""


def possible(value: float, low: float, high: float, unit: str) -> float:
    """The value itself. Raises ImpossibleAnswer outside its bounds: a driver says N/A with 0xFFFFFFFF at times."""
    if not low <= value <= high:
        raise ImpossibleAnswer(f"{value:.6g} {unit}, which no GPU has")
    return value


@contextmanager
def open_nvml() -> Iterator[Any]:
    """The module pynvml, initialised until the block ends. Raises NoGpu, also for an NVML error within the block."""
    try:
        import pynvml as nvml
    except ImportError as error:
        raise NoGpu("The Python package nvidia-ml-py is not installed, so NVML cannot be asked for GPUs.") from error
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        raise NoGpu(f"NVML does not start: {_advised(nvml, error)}.") from error
    try:
        yield nvml
    except nvml.NVMLError as error:
        raise NoGpu(f"NVML answers: {_advised(nvml, error)}.") from error
    finally:
        # A driver that has gone cannot be shut down, and nothing is lost by that.
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def is_loaded() -> bool:
    """Whether this process has loaded NVML's library, which it then keeps."""
    import pynvml

    return pynvml.nvmlLib is not None


def ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """What an NVML call answers and "", or None and the reason; "not supported here" is an answer, not a failure."""
    try:
        return function(*arguments), ""
    except nvml.NVMLError as error:
        return None, f"NVML answers: {_advised(nvml, error)}"
    except UnicodeDecodeError:
        return None, "NVML answers with a text that is none"
    except (IndexError, MemoryError):  # of pynvml, at a count of four billion
        return None, "NVML answers with a list that cannot be"
    except (nvml.NVMLLibraryMismatchError, ImpossibleAnswer) as error:
        return None, f"NVML answers: {error}"


def _advised(nvml: Any, error: Any) -> str:
    """What an NVMLError says, and what to do about it where that is known."""
    advice = next((text for name, text in ADVICE.items() if getattr(nvml, name, None) == error.value), "")
    return "; ".join(filter(None, (str(error).rstrip("."), advice)))


def visible_gpus(nvml: Any) -> tuple[Any, ...]:
    """NVML handles of what CUDA sees, in its order; of a GPU in MIG mode CUDA sees the first instance. Raises NoGpu."""
    count, reason = ask(nvml, nvml.nvmlDeviceGetCount)
    if not count:
        raise NoGpu(f"The NVIDIA driver sees no GPU{reason and f' ({reason})'}.")
    if count > MOST_GPUS:
        raise NoGpu(f"The NVIDIA driver tells of {count:,} GPUs, which cannot be; restart the machine.")
    gpus = _by_uuid(nvml, nvml.nvmlDeviceGetHandleByIndex, range(count))
    if not gpus:
        _, reason = ask(nvml, nvml.nvmlDeviceGetHandleByIndex, 0)
        raise NoGpu(f"The NVIDIA driver opens none of its GPUs: {reason or 'it does now; look again'}.")
    parts = {uuid: _mig_instances(nvml, gpu) for uuid, gpu in gpus.items()}
    instances = {uuid: instance for found in parts.values() for uuid, instance in found.items()}
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = chosen_uuids(variable, list(gpus), list(instances))
    if not chosen:
        raise NoGpu(f"CUDA_VISIBLE_DEVICES={variable!r} hides every GPU here; unset it, or name one that exists.")
    return tuple(instances[u] if u in instances else next(iter(parts[u].values()), gpus[u]) for u in chosen)


def unopened(nvml: Any) -> tuple[str, ...]:
    """A sentence for each GPU that the driver counts and does not open, as one that is lost."""
    count, _ = ask(nvml, nvml.nvmlDeviceGetCount)
    asked = [(i, ask(nvml, nvml.nvmlDeviceGetHandleByIndex, i)) for i in range(min(count or 0, MOST_GPUS))]
    return tuple(f"GPU {index} of {count} is not opened: {why}." for index, (gpu, why) in asked if gpu is None)


def chosen_uuids(variable: str | None, gpus: Sequence[str], instances: Sequence[str]) -> list[str]:
    """What CUDA_VISIBLE_DEVICES leaves: it names indices or starts of UUIDs, ends at the first that does not exist
    and, like CUDA, leaves nothing where one is named twice."""
    if variable is None:
        return list(gpus)
    chosen: list[str] = []
    for entry in map(str.strip, variable.split(",")):
        if entry.isdecimal():
            found = list(gpus[int(entry) : int(entry) + 1])
        else:
            found = [u for u in (*gpus, *instances) if entry.startswith(("GPU-", "MIG-")) and u.startswith(entry)]
        if len(found) != 1:
            break
        if found[0] in chosen:
            return []
        chosen += found
    return chosen


def _mig_instances(nvml: Any, gpu: Any) -> dict[str, Any]:
    mode, _ = ask(nvml, nvml.nvmlDeviceGetMigMode, gpu)
    if not mode or not mode[0]:
        return {}
    most, _ = ask(nvml, nvml.nvmlDeviceGetMaxMigDeviceCount, gpu)
    indices = range(min(most or 0, MOST_GPUS))
    return _by_uuid(nvml, lambda index: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index), indices)


def _by_uuid(nvml: Any, handle_of: Callable[[int], Any], indices: range) -> dict[str, Any]:
    handles = [handle for index in indices if (handle := ask(nvml, handle_of, index)[0]) is not None]
    return {ask(nvml, nvml.nvmlDeviceGetUUID, handle)[0] or f"#{i}": handle for i, handle in enumerate(handles)}
