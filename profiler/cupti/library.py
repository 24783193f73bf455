"""Finds and loads libcupti, and makes its calls; a failed call becomes a sentence."""

import ctypes
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TypeVar

from profiler.cupti.structs import Params

SONAME = "libcupti.so.[0-9][0-9]"
NVPERF = ("libnvperf_target.so", "libnvperf_host.so")
TOOLKITS = Path("/usr/local")
TOOLKIT_FOLDERS = ("lib64", "extras/CUPTI/lib64", "targets/*-linux/lib", "lib")

PERMIT = (
    "Run it as root or with CAP_SYS_ADMIN (Docker: `--cap-add SYS_ADMIN`), or let every user read them: "
    "load the driver with `NVreg_RestrictProfilingToAdminUsers=0`."
)
_VIRTUAL = "use a whole GPU, or ask who runs the machine to allow profiling in this virtual machine."

# What happened and what to do about it, by CUptiResult (cupti_result.h).
EXPLANATIONS = {
    1: "CUPTI refused an argument, a fault of this binding. Report it with the versions of CUPTI and driver.",
    7: "CUPTI refused the call in its present state. Close this process's other counter sessions and repeat.",
    8: "CUPTI ran out of memory. Free some host and GPU memory, or measure fewer ranges at a time.",
    17: "this GPU has no metric of that name. Choose names from the chip's own list.",
    26: "another program holds the GPU's counters: DCGM (on Ampere and older), ncu or another profiler. "
    "Stop it (DCGM: `dcgmi profile --pause`) and repeat.",
    27: "CUPTI cannot profile this GPU or set-up. It needs Volta or newer, from CUDA 13 on Turing or newer; "
    "take a CUPTI that fits the GPU and the driver.",
    33: f"this is a virtual GPU, whose counters cannot be read; {_VIRTUAL}",
    35: f"this process may not read the GPU's counters. {PERMIT}",
    36: "CUPTI's older event API is in use in this process. Start the measurement in a fresh process.",
    39: "another profiler is active in this process: torch.profiler, ncu, nsys or cuda-gdb. "
    "End it, or start the measurement without it.",
    40: f"this is a virtual GPU and its hypervisor forbids profiling; {_VIRTUAL}",
    41: "the GPU is in confidential-computing mode, which forbids profiling. "
    "Ask who runs the machine for a GPU without that mode, or in its devtools mode.",
    42: "this is a crypto-mining card (CMP), which CUPTI does not profile. Use another GPU.",
    43: "the GPU is split into MIG instances, whose counters CUPTI's range profiler does not read. "
    "Use a whole GPU, or turn MIG off.",
    44: "GPUs coupled by SLI cannot be profiled. Turn SLI off.",
    45: "CUPTI cannot profile under this WSL set-up. Use Linux itself, or a newer Windows driver.",
    46: "this libcupti does not know the GPU's chip. Install a newer CUDA toolkit or torch.",
    999: "CUPTI could not start. Either CUDA was not initialised before it, or another profiler started this "
    "process, or this libcupti does not fit the driver. Make a tensor on the GPU first; "
    "start without ncu or nsys.",
}


class CuptiError(RuntimeError):
    """The counters could not be read; the message is for the user: what happened, why, what to do.

    `code` is the CUptiResult, or None where it was not CUPTI that refused.
    """

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


AnyParams = TypeVar("AnyParams", bound=Params)


@dataclass(frozen=True)
class Cupti:
    """A loaded libcupti: where it lies, its API version (26 in CUDA 12.8, 130001 in 13.0), and its calls."""

    path: Path
    version: int
    library: ctypes.CDLL

    def call(self, params: AnyParams) -> AnyParams:
        """Makes the call that `params` belongs to; returns `params` with its outputs. Raises CuptiError."""
        try:
            function = getattr(self.library, params.function)
        except AttributeError as error:
            raise CuptiError(
                f"No GPU counters: {self.path} (API {self.version}) lacks {params.function}. "
                "Install another CUDA toolkit or torch."
            ) from error
        code = function(ctypes.byref(params))
        if code:
            raise CuptiError(explain(code, params.function, self.result_name(code)), code)
        return params

    def result_name(self, code: int) -> str:
        """CUPTI's own name of a CUptiResult, such as CUPTI_ERROR_HARDWARE_BUSY."""
        name = ctypes.c_char_p()
        self.library.cuptiGetResultString(code, ctypes.byref(name))
        return name.value.decode() if name.value else "a result without a name"


def explain(code: int, call: str, name: str) -> str:
    """The sentence for a failed call: what happened, why, what to do; then call, name and code."""
    what = EXPLANATIONS.get(code, "CUPTI failed. Repeat in a fresh process, without other profilers.")
    return f"No GPU counters: {what} ({call} answered {name}, {code}.)"


def find() -> tuple[Path, ...]:
    """Every libcupti on this machine, the preferred one first: torch's wheel, CUDA toolkits, Triton's copy.

    Imports none of the packages it looks into.
    """
    found: dict[Path, Path] = {}
    for path in _candidates():
        found.setdefault(path.resolve(), path)
    return tuple(found.values())


def _candidates() -> Iterator[Path]:
    yield from _in_package("nvidia", "cu13/lib")
    yield from _in_package("nvidia", "cuda_cupti/lib")
    for folder in TOOLKIT_FOLDERS:
        yield from sorted(TOOLKITS.glob(f"cuda*/{folder}/{SONAME}"))
    yield from _in_package("triton", "backends/nvidia/lib/cupti")


def _in_package(package: str, folder: str) -> Iterator[Path]:
    spec = find_spec(package)
    for root in (spec and spec.submodule_search_locations) or ():
        yield from sorted(Path(root).glob(f"{folder}/{SONAME}"))


_loaded: Cupti | None = None


def load(path: Path | None = None) -> Cupti:
    """The libcupti at `path`, or else the first that find() names and that has the range profiler.

    A process keeps the first one it loads: CUPTI looks its nvperf libraries up by name, so a second CUPTI
    would work with those of the first. Needs no GPU.
    Raises CuptiError where there is none, or another is in use.
    """
    global _loaded
    if _loaded is None:
        _loaded = _load_first((path,) if path else find())
    elif path and path.resolve() != _loaded.path.resolve():
        raise CuptiError(f"No GPU counters: {_loaded.path} is in use; load {path} in a fresh process.")
    return _loaded


def _load_first(paths: tuple[Path, ...]) -> Cupti:
    failures = []
    for path in paths:
        try:
            library = ctypes.CDLL(str(path))
            if hasattr(library, "cuptiRangeProfilerEnable") and hasattr(library, "cuptiGetVersion"):
                # Only now: the nvperf libraries of a CUPTI that is passed over would shadow the right ones.
                for name in NVPERF:
                    ctypes.CDLL(str(path.with_name(name)), mode=ctypes.RTLD_GLOBAL)
                return Cupti(path, _version(library), library)
            failures.append(f"{path} has no range profiler, which came with CUDA 12.6 Update 2")
        except OSError as error:
            failures.append(f"{path} does not load ({error})")
    tried = "; ".join(failures) or "no libcupti in torch's and Triton's wheels or under /usr/local/cuda*"
    raise CuptiError(f"No GPU counters: {tried}. Install torch with CUDA, Triton, or CUDA 12.8 or newer.")


def _version(library: ctypes.CDLL) -> int:
    version = ctypes.c_uint32()
    library.cuptiGetVersion(ctypes.byref(version))
    return version.value
