"""The code of a compiled launch as text: PTX, TTGIR, or SASS as nvdisasm reads it from the cubin."""

import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from profiler import compiling
from profiler.compile_pool import compilers
from profiler.failures import explain
from profiler.plausible import printable
from profiler.resource_cache import ResourceCache, resources_folder, triton_version
from profiler.resources import LaunchResources, Resources

KINDS = PTX, TTGIR, SASS = "ptx", "ttgir", "sass"
CUBIN = "cubin"
SECONDS = 120.0


class NoCode(RuntimeError):
    """Code that could not be had; the message is a sentence with the reason."""


def code_of(found: Resources, launch: LaunchResources, kind: str) -> str:
    """The launch's code of one of KINDS; compiled again where the cache has lost it. Raises NoCode."""
    if kind == SASS:
        return disassembled(_code(found, launch, CUBIN))
    return _code(found, launch, kind).decode()


def disassembled(cubin: bytes) -> str:
    """SASS of a cubin, by the nvdisasm that comes with Triton. Raises NoCode."""
    try:
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            words = [str(_tool("nvdisasm")), "--print-code", file.name]
            done = subprocess.run(words, capture_output=True, timeout=SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoCode(f"nvdisasm could not be run: {printable(str(error))}.") from error
    if done.returncode != 0:
        said = printable(done.stderr.decode(errors="replace"), 300)
        raise NoCode(f"nvdisasm ended with exit code {done.returncode}: {said.rstrip('.')}.")
    return done.stdout.decode(errors="replace")


def _code(found: Resources, launch: LaunchResources, kind: str) -> bytes:
    code = ResourceCache(resources_folder(), found.triton).find_code(getattr(launch.code, kind))
    return _compiled_again(found, launch)[kind] if code is None else code


def _compiled_again(found: Resources, launch: LaunchResources) -> dict[str, bytes]:
    if (installed := triton_version()) != found.triton:
        raise NoCode(
            f"The code is no longer in the cache, and Triton {found.triton}, which made it, is not installed "
            f"({installed or 'none'} is); compile again."
        )
    arguments = (found.configuration, launch.launch)
    with compilers(1) as pool:
        try:
            code: dict[str, bytes] = pool.schedule(compiling.compile_code, arguments, timeout=SECONDS).result()
        except Exception as error:
            raise NoCode(explain(error, SECONDS, "compile", found.configuration.kernel)) from error
    return code


def _tool(name: str) -> Path:
    """A program that comes with Triton, which is not imported for it. Raises NoCode."""
    spec = find_spec("triton")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = Path(folder) / "backends" / "nvidia" / "bin" / name
        if path.is_file():
            return path
    raise NoCode(f"{name}, which comes with Triton, is not here; install the versions of requirements.txt.")
