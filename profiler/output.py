"""Where a command's text goes: a file, replaced in one step, or stdout."""

import os
import sys
from pathlib import Path

from profiler.store import StoreError, replaced, require_ordinary, require_writable, shown_path


def require_place(out: Path | None) -> None:
    """Raise StoreError where `put` could not write to a file there. No folder is made: its name may be a slip."""
    if out is None:
        return
    folder = out.absolute().parent
    try:
        if out.is_dir():
            raise StoreError(f"{shown_path(out)} is a folder; name a file.")
        if not folder.exists():
            why = f"for there is no folder {shown_path(folder)}; make it, or name another"
            raise StoreError(f"{shown_path(out)} could not be written, {why}.")
        require_ordinary(out)
    except StoreError:
        raise
    except OSError as fault:
        raise StoreError(f"{shown_path(out)} could not be written: {fault.strerror or fault}.") from fault
    require_writable(folder)


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
            silence_stdout()
        place = "The output" if out is None else shown_path(out)
        raise StoreError(f"{place} could not be written: {fault.strerror or fault}.") from fault


def silence_stdout() -> None:
    """Send the rest nowhere: Python tries it once more when it ends, which would change the exit code."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
