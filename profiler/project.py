"""The project file, bytescope.toml in the working directory: which kernels of the user's own the dashboard offers.

    [kernels]
    own = ["my_module:my_attention"]

It is read once, when Bytescope starts, and nothing that it names is imported here.
"""

import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from kernels.own import is_own
from profiler.plausible import printable

FILE = "bytescope.toml"
MAX_BYTES, MAX_OWN = 2**16, 32
MOST_WORDS = 200  # of the parser's, which quotes keys as long as the file


@dataclass(frozen=True)
class Project:
    """Names of own kernels, as in Workload.kernel; `fault` is why the file tells none, as a sentence."""

    own: tuple[str, ...] = ()
    fault: str = ""


@cache
def project() -> Project:
    """The project of the working directory; empty where there is no file."""
    return read_project(Path.cwd())


def read_project(folder: Path) -> Project:
    """The project of a folder."""
    path = folder / FILE
    try:
        if not path.exists() and not path.is_symlink():
            return Project()
        if path.exists() and not path.is_file() and not path.is_dir():
            return _faulty("it is no ordinary file")  # a pipe would be waited for
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        if len(text) > MAX_BYTES:
            return _faulty(f"it is above {MAX_BYTES >> 10} KiB")
        return _project(tomllib.loads(text.decode("utf-8-sig")))
    except OSError as error:
        return _faulty(f"it cannot be read ({error.strerror or error})")
    except (ValueError, RecursionError) as error:  # not TOML, or not UTF-8
        return _faulty(f"it is not TOML ({str(error)[:MOST_WORDS]})")


def _project(data: dict[str, Any]) -> Project:
    kernels = data.get("kernels", {})
    own = kernels.get("own", []) if isinstance(kernels, dict) else None
    if unknown := [*(set(data) - {"kernels"}), *(set(kernels) - {"own"} if isinstance(kernels, dict) else ())]:
        return _faulty(f"it has {sorted(unknown)[0]!r:.60}, which is not known")
    if not isinstance(own, list) or len(own) > MAX_OWN:
        return _faulty(
            f'own under [kernels] is not a list of up to {MAX_OWN} names, such as ["my_module:my_attention"]'
        )
    for name in own:
        if not isinstance(name, str) or not is_own(name):
            return _faulty(f"{name!r:.60} under [kernels] own is not spelled module:function")
    return Project(tuple(dict.fromkeys(own)))


def _faulty(reason: str) -> Project:
    return Project(fault=printable(f"{FILE} is left out of account: {reason}. Correct it and start Bytescope again."))
