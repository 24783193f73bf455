"""Compiled resources on the disk: one small JSON for each configuration, and its code once, by its content."""

import hashlib
import json
import os
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from profiler.cache import cache_folder
from profiler.codec import NotARun, decode, encode
from profiler.resources import Configuration, Resources
from profiler.store import replaced, write_atomically

FORMAT_VERSION = 1
ROOT = Path(__file__).resolve().parent.parent
MAX_FILE_BYTES = 2**20
MAX_CODE_BYTES = 64 * 2**20
# What changes the code that Triton makes, apart from where it keeps it.
COMPILER_VARIABLES = ("TRITON_", "DISABLE_", "PTXAS_", "MLIR_", "LLVM_", "NVPTX_")
PLACES = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TRITON_INTERPRET")


def resources_folder() -> Path:
    """Where compiled resources are kept."""
    return cache_folder() / "resources"


def triton_version() -> str | None:
    """The version of Triton that is installed; None where it is not."""
    try:
        return version("triton")
    except PackageNotFoundError:
        return None


@dataclass(frozen=True)
class ResourceCache:
    """The cache of one version of Triton. What cannot be read is not there; what cannot be written is let go."""

    folder: Path
    triton: str

    def find(self, configuration: Configuration) -> Resources | None:
        """What was kept of it, or None."""
        try:
            text = _read(self._path(configuration), MAX_FILE_BYTES)
            found: Resources = decode(Resources, json.loads(text), "resources")
        except (OSError, ValueError, RecursionError, NotARun):
            return None
        return found if found.configuration == configuration and found.triton == self.triton else None

    def keep(self, found: Resources) -> None:
        """Write it; a reader never sees half a file."""
        with suppress(OSError):
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self._path(found.configuration), json.dumps(encode(found)), durable=False)

    def keep_code(self, code: bytes) -> str:
        """Write it, unless it is there, and return its SHA-256."""
        digest = hashlib.sha256(code).hexdigest()
        path = self._code_path(digest)
        with suppress(OSError):
            if not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                with replaced(path, durable=False) as file:
                    file.write(zlib.compress(code))
        return digest

    def find_code(self, digest: str) -> bytes | None:
        """The code of that SHA-256; None where it is not there, or is another."""
        try:
            unpacker = zlib.decompressobj()
            code = unpacker.decompress(_read(self._code_path(digest), MAX_CODE_BYTES), MAX_CODE_BYTES)
        except (OSError, ValueError, zlib.error):
            return None
        return code if hashlib.sha256(code).hexdigest() == digest else None

    def _path(self, configuration: Configuration) -> Path:
        of = json.dumps([self._makers, encode(configuration)])
        return self.folder / f"{hashlib.sha256(of.encode()).hexdigest()}.json"

    def _code_path(self, digest: str) -> Path:
        # A digest may have been read from a file: never a path of its own.
        return self.folder / "code" / f"{hashlib.sha256(digest.encode()).hexdigest()}.z"

    @cached_property
    def _makers(self) -> list[object]:
        """What made the code: this format, Triton, the kernels, what compiles them, and the compiler's variables."""
        sources = sorted([*(ROOT / "kernels").rglob("*.py"), ROOT / "profiler" / "compiling.py"])
        digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()
        set_to = {n: v for n, v in os.environ.items() if n.startswith(COMPILER_VARIABLES) and n not in PLACES}
        return [FORMAT_VERSION, self.triton, digest, sorted(set_to.items())]


def _read(path: Path, most: int) -> bytes:
    """A file of at most so many bytes. Raises OSError, and ValueError for a larger one."""
    with path.open("rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise ValueError(f"{path.name} is too large.")
    return content
