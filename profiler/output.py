"""Where a command's text goes: a file, replaced in one step, or stdout."""

import os
import sys
from pathlib import Path

from profiler.store import StoreError, replaced, shown_path


def put(text: str | bytes, out: Path | None) -> None:
    """Write it to `out`, or to stdout without one. Raises StoreError; a file that was there is then as it was."""
    data = text.encode() if isinstance(text, str) else text
    try:
        if out is None:
            sys.stdout.flush()
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            with replaced(out) as file:
                file.write(data)
    except OSError as fault:
        if out is None:
            _silence_stdout()
        place = "The output" if out is None else shown_path(out)
        raise StoreError(f"{place} could not be written: {fault.strerror or fault}.") from fault


def _silence_stdout() -> None:
    """What could not be written is tried once more when Python ends, which would change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
