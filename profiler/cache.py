"""Where Bytescope keeps what it could make again."""

import os
from pathlib import Path


def cache_folder() -> Path:
    """$BYTESCOPE_CACHE, else a folder of our own in the user's cache folder."""
    chosen = os.environ.get("BYTESCOPE_CACHE")
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bytescope"
