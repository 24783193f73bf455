"""Caches of what is compiled, of a test module's own: nothing of an earlier run is found in them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def caches_in(folder: Path) -> Iterator[None]:
    """Bytescope's and Triton's caches stand in a folder meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYTESCOPE_CACHE", str(folder))
        patch.setenv("TRITON_CACHE_DIR", str(folder / "triton"))
        yield
