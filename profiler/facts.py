"""What a machine is: versions, GPUs and their use, permission and libcupti; a program, since libraries may crash it.

`python -m profiler.facts` prints lines of JSON: {"asking": a word} before each group, then {"devices": [DeviceInfo],
"why_no_gpu": a sentence or ""} or {"facts": [Fact]}, and {"end": true} at last.
"""

import ast
import json
import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from profiler.child import words_of
from profiler.codec import encode
from profiler.cupti import library, permission
from profiler.device import describe
from profiler.diagnosis import Fact
from profiler.gpu_sample import take_sample
from profiler.nvml import NoGpu, ask, open_nvml, unopened, visible_gpus
from profiler.orphans import end_with_parent

# The oldest and the newest versions that Bytescope is made for, by major and minor.
SUPPORTED = {"torch": ((2, 11), (2, 14)), "triton": ((3, 6), (3, 8))}
BUSY_PERCENT = 1.0


class NotTold(RuntimeError):
    """torch's version.py does not tell its CUDA version; the message says why and what to do."""


def main() -> None:
    """Print every group of facts; one that breaks down is a fact too, and the next is asked."""
    end_with_parent()
    for what, group in (("Python's packages", packages), ("NVML", gpus), ("the driver", rights), ("CUPTI", cupti)):
        _tell(asking=what)
        told = False
        try:
            for said in group():
                _tell(**said)
                told = True
        # Whatever it is, it is told.
        except Exception as error:
            reason = f"{what} could not be asked ({words_of(error)}). Install the versions of requirements.txt anew."
            if group is gpus and not told:
                _tell(devices=[], why_no_gpu=reason)
            _tell(**_facts(Fact("", what, "not known", reason)))
    _tell(end=True)


def _tell(**said: Any) -> None:
    # On a line of its own, whatever a library has printed before.
    print(f"\n{json.dumps(encode(said), allow_nan=False)}", flush=True)


def _facts(*found: Fact) -> dict[str, Any]:
    return {"facts": list(found)}


def packages() -> Iterator[dict[str, Any]]:
    """torch and Triton, without importing them."""
    yield _facts(*map(_package, SUPPORTED))


def _package(name: str) -> Fact:
    oldest, newest = (".".join(map(str, bound)) for bound in SUPPORTED[name])
    advice = f"Bytescope is made for {name} {oldest} to {newest}; install the version of requirements.txt."
    try:
        found = version(name)
    except PackageNotFoundError:
        return Fact("", name, "not installed", f"{name} is not installed. {advice}")
    numbers = re.match(r"(\d+)\.(\d+)", found)
    pair = (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)
    is_known = SUPPORTED[name][0] <= pair <= SUPPORTED[name][1]
    warning = "" if is_known else f"{name} {found} is not known here. {advice}"
    if name != "torch":
        return Fact("", name, found, warning)
    try:
        cuda = _cuda_of_torch()
    except NotTold as reason:
        return Fact("", name, f"{found}, CUDA not known", f"{warning} {reason}".strip())
    return Fact("", name, found + (f", CUDA {cuda}" if cuda else ", built without CUDA"), warning)


def _cuda_of_torch() -> str | None:
    """The CUDA version that torch is built for, from its version.py; importing a broken torch could end us.

    None without CUDA or without torch. Raises NotTold.
    """
    spec = find_spec("torch")
    for root in (spec and spec.submodule_search_locations) or ():
        try:
            found = _assigned_cuda((Path(root) / "version.py").read_text(encoding="utf-8"))
        except (OSError, SyntaxError, ValueError) as error:
            raise NotTold(
                f"torch/version.py cannot be read ({words_of(error)}), so torch is damaged; install the version of "
                "requirements.txt anew."
            ) from error
        if found is not None:
            return found
    return None


def _assigned_cuda(source: str) -> str | None:
    """What `source` assigns to cuda. Raises SyntaxError, or ValueError where that is no version."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "cuda":
            value = None if node.value is None else ast.literal_eval(node.value)
            if value is not None and not re.fullmatch(r"\d+\.\d+.*", str(value)):
                raise ValueError(f"cuda is {value!r}")
            return None if value is None else str(value)
    return None


def gpus() -> Iterator[dict[str, Any]]:
    """The GPUs, the driver, and what other processes do on each GPU."""
    try:
        with open_nvml() as nvml:
            handles = visible_gpus(nvml)
            devices = [describe(nvml, gpu, ordinal) for ordinal, gpu in enumerate(handles)]
            yield {"devices": devices, "why_no_gpu": ""}
            yield _facts(driver(nvml), *(Fact("", "not opened", why) for why in unopened(nvml)))
            for gpu, info in zip(handles, devices, strict=True):
                yield _facts(*_about(info), use(nvml, gpu, info.device))
    except NoGpu as reason:
        yield {"devices": [], "why_no_gpu": str(reason)}


def driver(nvml: Any) -> Fact:
    """The driver's version, the newest CUDA that it offers, and whether torch can work with that."""
    name, no_name = ask(nvml, nvml.nvmlSystemGetDriverVersion)
    number, no_number = ask(nvml, nvml.nvmlSystemGetCudaDriverVersion_v2)
    offered = f"up to CUDA {number // 1000}.{number % 1000 // 10}" if number else f"CUDA not told ({no_number})"
    warning = ""
    try:
        wanted = _cuda_of_torch()
    except NotTold:  # told with torch's version
        wanted = ""
    if wanted is None:
        warning = "torch is built without CUDA, or missing, so it uses no GPU. Install a CUDA build of torch."
    elif wanted and number and int(wanted.split(".")[0]) > number // 1000:
        warning = (
            f"The driver is too old for torch, which is built for CUDA {wanted}. Install a newer driver, or a torch "
            f"for CUDA {number // 1000}."
        )
    return Fact("", "NVIDIA driver", f"{name or f'not told ({no_name})'}, {offered}", warning)


def _about(info: Any) -> Iterator[Fact]:
    capability = "not told" if info.compute_capability is None else "{}.{}".format(*info.compute_capability)
    yield Fact(info.device, "GPU", f"{info.name}, compute capability {capability}")
    peak = info.peak_hbm_bytes_per_second
    rate = "not known" if peak is None else f"{peak / 1e12:.3f} TB/s"
    yield Fact(info.device, "peak HBM bandwidth", f"{rate} ({info.peak_hbm_source})")


def use(nvml: Any, gpu: Any, device: str) -> Fact:
    """What runs on a GPU before anything is tried on it."""
    now = take_sample(nvml, gpu, device)
    running, no_list = ask(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, gpu)
    parts = [
        f"busy not told ({now.missing.get('gpu_busy_percent')})"
        if now.gpu_busy_percent is None
        else f"a kernel runs {now.gpu_busy_percent:.0f}% of the time",
        f"memory not told ({now.missing.get('memory_used_bytes')})"
        if now.memory_used_bytes is None
        else f"{now.memory_used_bytes / 2**30:.1f} GiB in use",
        f"processes not told ({no_list})" if running is None else _processes(running),
    ]
    warning = ""
    if now.gpu_busy_percent is not None and now.gpu_busy_percent >= BUSY_PERCENT:
        warning = (
            "The GPU is busy with another process's work. Sources that watch the whole device (GPM, PM sampling, NVML) "
            "count it too; end it, or take CUPTI's ranges."
        )
    return Fact(device, "in use by others", ", ".join(parts), warning)


def _processes(running: Any) -> str:
    if not running:
        return "no process"
    # In a container NVML does not tell how much each holds.
    held = (f" with {p.usedGpuMemory / 2**30:.1f} GiB" if p.usedGpuMemory else "" for p in running)
    named = ", ".join(f"{p.pid}{size}" for p, size in zip(running, held, strict=True))
    return f"process{'es' if len(running) > 1 else ''} {named}"


def rights() -> Iterator[dict[str, Any]]:
    """Who may read the counters, as the driver has been told."""
    params = permission.DRIVER_PARAMS
    if not params.is_file():
        return
    told = re.search(r"^RmProfilingAdminOnly: *(\d+)", params.read_text(), re.MULTILINE)
    value = {"0": "0: every user may read counters", "1": "1: administrators only"}.get(told[1] if told else "")
    warning = permission.restricted(params, permission.PROCESS_STATUS) or ""
    yield _facts(Fact("", "RmProfilingAdminOnly", value or "not told by this driver", warning))


def cupti() -> Iterator[dict[str, Any]]:
    """The libcupti that counts, with its API version, and those before it that do not work."""
    try:
        found = library.load()
    except library.CuptiError as reason:
        yield _facts(Fact("", "libcupti", "none", str(reason)))
        return
    candidates = [path.resolve() for path in library.find()]
    passed_over = ", ".join(map(_short, candidates[: candidates.index(found.path.resolve())]))
    warning = f"Passed over, since it is broken or older than CUDA 12.6 Update 2: {passed_over}." if passed_over else ""
    yield _facts(Fact("", "libcupti", f"{_short(found.path)}, API version {found.version}", warning))


def _short(path: Path) -> str:
    """A path below the folder that Python imports from, where it is there."""
    roots = (Path(entry).resolve() for entry in sys.path if entry)
    return str(next((path.resolve().relative_to(root) for root in roots if path.resolve().is_relative_to(root)), path))


if __name__ == "__main__":
    main()
