"""Where a Run goes that could not be saved: it took long to measure, and the disk may have filled up meanwhile."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from profiler.cache import cache_folder
from profiler.run import Run
from profiler.store import StoreError, save

IN_MEMORY = Path("/dev/shm")  # no disk, and gone when the machine restarts


def rescue(run: Run, fault: StoreError) -> StoreError:
    """Keep a Run elsewhere whose saving failed with `fault`; the sentences that say so, or that it is lost."""
    refused: list[str] = []
    for place in places():
        try:
            kept = save(run, place)
        except StoreError as other:
            refused.append(str(other))
            continue
        until = " until this machine restarts" if place.is_relative_to(IN_MEMORY) else ""
        return StoreError(f"{fault} The Run is kept in {kept}{until}: open it on the Runs page.")
    return StoreError(
        f"{fault} Nor could it be kept elsewhere, so the Run of {run.workload.kernel} is lost. Free some space and run "
        f"again. ({' '.join(refused)})"
    )


def places() -> Iterator[Path]:
    """Folders to try one after the other, each this user's own: another's may not be written to."""
    own = f"bytescope-rescued-{os.geteuid()}"
    with suppress(OSError):  # there is no folder for temporary files
        yield Path(tempfile.gettempdir()) / own
    yield cache_folder() / "rescued"
    if IN_MEMORY.is_dir():
        yield IN_MEMORY / own
