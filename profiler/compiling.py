"""The compile processes' side: compile a configuration for a GPU that is not here, and read what the code takes.

Triton's JIT compiles what a launch would, told by AbsentGpu what GPU it is for: signature, constants, attributes and
options, and so the key of its disk cache, are its own.
"""

import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

from profiler.child import words_of
from profiler.orphans import end_with_parent
from profiler.plausible import printable
from profiler.resource_cache import ResourceCache
from profiler.resources import Code, Configuration, LaunchResources, Resources

if TYPE_CHECKING:
    from kernels.launching import TritonLaunch

TOOL_SECONDS = 60.0
USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:\d+ LOCAL:(\d+)")
MOST_WORDS = 300


def start(triton_cache: str | None) -> None:
    """Prepare a fresh process before it imports torch and Triton: nothing is interpreted, and no GPU is touched.

    `triton_cache` is where Triton keeps what it compiles; None for where it always does, so that launches find it.
    """
    if triton_cache is not None:
        os.environ["TRITON_CACHE_DIR"] = triton_cache
    os.environ.pop("TRITON_INTERPRET", None)
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    # ptxas runs in a process of its own, which must not outlive this one where that is stopped.
    os.setpgid(0, 0)
    signal.signal(signal.SIGTERM, lambda *_: os.killpg(0, signal.SIGKILL))
    end_with_parent()


class AbsentGpu:
    """What Triton's JIT asks of a driver to compile; it numbers its devices by compute capability."""

    def __init__(self, compute_capability: tuple[int, int]) -> None:
        self._arch = compute_capability[0] * 10 + compute_capability[1]

    def get_current_device(self) -> int:
        """Of each there is a cache of compiled kernels in memory."""
        return self._arch

    def get_current_stream(self, device: int) -> int:
        """Nothing is launched."""
        return 0

    def get_current_target(self) -> Any:
        """What to compile for."""
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._arch, 32)


def compile_configuration(configuration: Configuration, cache: ResourceCache) -> Resources:
    """What it takes, or the reason why Triton cannot compile it; kept in the cache.

    Raises OSError, ImportError and MemoryError, which say nothing about the configuration.
    """
    found = _compile(configuration, cache)
    cache.keep(found)
    return found


def compile_code(configuration: Configuration, launch: str) -> dict[str, bytes]:
    """PTX, TTGIR and cubin of one launch. Raises what compiling does."""
    with _quiet():
        kernels = {one.name: kernel for one, kernel in _compiled(configuration)}
    return _code(kernels[launch])


def _compile(configuration: Configuration, cache: ResourceCache) -> Resources:
    with _quiet() as said:
        try:
            launches = tuple(_read(launch, kernel, cache) for launch, kernel in _compiled(configuration))
        except (OSError, ImportError, MemoryError):
            raise
        # Triton raises whatever a pass, the code generator or ptxas did not like.
        except Exception as error:
            said.seek(0)
            return Resources(configuration, cache.triton, reason=_reason(error, said.read(), cache.triton))
    return Resources(configuration, cache.triton, launches)


def _compiled(configuration: Configuration) -> "Iterator[tuple[TritonLaunch, Any]]":
    """Each launch and its compiled kernel."""
    from triton.runtime import driver

    driver.set_active(AbsentGpu(configuration.compute_capability))
    for launch in configuration.attention_kernel.launches(configuration.problem, configuration.tile):
        yield launch, launch.compile()


def _read(launch: "TritonLaunch", kernel: Any, cache: ResourceCache) -> LaunchResources:
    registers, spill_bytes = _usage(kernel)
    metadata = kernel.metadata
    return LaunchResources(
        launch.name,
        registers,
        spill_bytes,
        int(metadata.shared),
        int(getattr(metadata, "tmem_size", None) or 0),
        int(metadata.num_warps),
        launch.programs,
        Code(**{kind: cache.keep_code(code) for kind, code in _code(kernel).items()}),
    )


def _code(kernel: Any) -> dict[str, bytes]:
    texts = {kind: kernel.asm[kind].encode() for kind in ("ptx", "ttgir")}
    return {**texts, "cubin": kernel.asm["cubin"]}


def _usage(kernel: Any) -> tuple[int, int]:
    """Registers, and bytes of local memory, of a thread, as cuobjdump reads them from the cubin."""
    import triton

    cubin = next(path for name, path in kernel.metadata_group.items() if name.endswith(".cubin"))
    words = [triton.knobs.nvidia.cuobjdump.path, "--dump-resource-usage", str(cubin)]
    told = subprocess.run(words, capture_output=True, text=True, timeout=TOOL_SECONDS, check=True).stdout
    (usage,) = USAGE.findall(told)
    registers, stack, local = map(int, usage)
    return registers, stack + local


def _reason(error: Exception, said: str, triton: str) -> str:
    """What went wrong, in one sentence: the compiler's own words where it printed some."""
    complaints = re.findall(r"(?:error|fatal)\s*: (.+)", f"{error}\n{said}")
    words = printable(complaints[0], MOST_WORDS) if complaints else words_of(error)
    return f"Triton {triton} cannot compile it: {words.rstrip(' .')}."


@contextmanager
def _quiet() -> Iterator[IO[str]]:
    """Keep what Triton and its tools print from the terminal, and yield it as a file."""
    with tempfile.TemporaryFile("w+", errors="replace") as said:
        kept = [os.dup(stream) for stream in (1, 2)]
        try:
            for stream in (1, 2):
                os.dup2(said.fileno(), stream)
            yield said
        finally:
            for stream, copy in zip((1, 2), kept, strict=True):
                os.dup2(copy, stream)
                os.close(copy)
