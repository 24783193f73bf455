"""NVML opened safely, and the GPUs that CUDA programs see, in CUDA's order; free of torch."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

START_ADVICE = {
    "NVML_ERROR_LIBRARY_NOT_FOUND": "install the NVIDIA driver, or start the container with --gpus all",
    "NVML_ERROR_DRIVER_NOT_LOADED": "load the NVIDIA driver (modprobe nvidia)",
    "NVML_ERROR_LIB_RM_VERSION_MISMATCH": "the driver was updated while it was loaded; restart the machine",
    "NVML_ERROR_NO_PERMISSION": "allow this user to open /dev/nvidiactl",
}


class NoGpu(RuntimeError):
    """NVML gives no GPU to work with; the message is a sentence that says why."""


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
        advice = next((text for name, text in START_ADVICE.items() if getattr(nvml, name) == error.value), "")
        raise NoGpu(f"NVML does not start: {error}{'; ' if advice else ''}{advice}.") from error
    try:
        yield nvml
    except nvml.NVMLError as error:
        raise NoGpu(f"NVML answers: {error}.") from error
    finally:
        # A driver that has gone cannot be shut down, and nothing is lost by that.
        with suppress(nvml.NVMLError):
            nvml.nvmlShutdown()


def ask(nvml: Any, function: Callable[..., Any], *arguments: Any) -> tuple[Any, str]:
    """What an NVML call answers and "", or None and the reason; "not supported here" is an answer, not a failure."""
    try:
        return function(*arguments), ""
    except (nvml.NVMLError, nvml.NVMLLibraryMismatchError) as error:
        return None, f"NVML answers: {error}"


def visible_gpus(nvml: Any) -> tuple[Any, ...]:
    """NVML handles of what CUDA sees, in its order; of a GPU in MIG mode CUDA sees the first instance. Raises NoGpu."""
    count, reason = ask(nvml, nvml.nvmlDeviceGetCount)
    if not count:
        raise NoGpu(f"The NVIDIA driver sees no GPU{reason and f' ({reason})'}.")
    gpus = _by_uuid(nvml, nvml.nvmlDeviceGetHandleByIndex, range(count))
    if not gpus:
        raise NoGpu("The NVIDIA driver opens no GPU for this user; look at the permissions of /dev/nvidia*.")
    parts = {uuid: _mig_instances(nvml, gpu) for uuid, gpu in gpus.items()}
    instances = {uuid: instance for found in parts.values() for uuid, instance in found.items()}
    variable = os.environ.get("CUDA_VISIBLE_DEVICES")
    chosen = chosen_uuids(variable, list(gpus), list(instances))
    if not chosen:
        raise NoGpu(f"CUDA_VISIBLE_DEVICES={variable!r} hides every GPU here; unset it, or name one that exists.")
    return tuple(instances[u] if u in instances else next(iter(parts[u].values()), gpus[u]) for u in chosen)


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
    return _by_uuid(nvml, lambda index: nvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, index), range(most or 0))


def _by_uuid(nvml: Any, handle_of: Callable[[int], Any], indices: range) -> dict[str, Any]:
    handles = [handle for index in indices if (handle := ask(nvml, handle_of, index)[0]) is not None]
    return {ask(nvml, nvml.nvmlDeviceGetUUID, handle)[0] or f"#{i}": handle for i, handle in enumerate(handles)}
