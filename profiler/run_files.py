"""The files of a folder that may be Runs: found without opening one, read in batches, and named where they are none."""

import os
import stat
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from profiler.codec import NotARun
from profiler.run_document import MAX_FILE_BYTES
from profiler.store import StoreError, load, printable_name, require_text_name

UNLISTED = "It can be opened, but not listed; please report this line."
BATCH_BYTES, BATCH_FILES = 8 * 2**20, 1024


class RunFile(NamedTuple):
    """A file as it is now; `stamp` changes whenever the file does, `modified` and `changed` are in ns."""

    name: str
    stamp: str
    modified: int
    changed: int
    size: int


def scan(folder: Path, names: frozenset[str] | None = None) -> tuple[list[RunFile], list[str]]:
    """The JSON files of a folder that may be Runs, and a sentence for each that cannot be one; none is opened.

    With `names`, only those files, whatever they end with.
    """
    files, faults = [], []
    try:
        with os.scandir(folder) as entries:
            named = [one for one in entries if (one.name.endswith(".json") if names is None else one.name in names)]
    except FileNotFoundError:
        return [], []
    except OSError as fault:
        return [], [f"{printable_name(folder)} could not be listed: {fault.strerror or fault}."]
    for entry in named:
        file = _seen(entry)
        if isinstance(file, RunFile):
            files.append(file)
        elif file:
            faults.append(file)
    return files, faults


def _seen(entry: "os.DirEntry[str]") -> RunFile | str:
    """The file, or why it can be none; empty where it has gone meanwhile."""
    try:
        facts = entry.stat()
    except FileNotFoundError:
        return _reason(Path(entry.path)) if entry.is_symlink() else ""
    except OSError:
        return _reason(Path(entry.path))
    modified, changed, size = facts.st_mtime_ns, facts.st_ctime_ns, facts.st_size
    if not stat.S_ISREG(facts.st_mode) or size > MAX_FILE_BYTES or not _is_text(entry.name):
        return _reason(Path(entry.path))
    # A file that is written over within one tick of the clock has another inode, since it was renamed into its place.
    return RunFile(entry.name, f"{modified} {changed} {facts.st_ino} {size}", modified, changed, size)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


@lru_cache(maxsize=4096)
def why_not(path: Path, stamp: str) -> str:
    """Why a file is not listed, as a sentence that names it; `stamp` is there to notice a change."""
    return _reason(path)


def is_refused(path: Path, stamp: str) -> bool:
    """Whether a file cannot be opened; why_not says why."""
    return not why_not(path, stamp).endswith(UNLISTED)


def _reason(path: Path) -> str:
    try:
        require_text_name(path)
        load(path)
    except (NotARun, StoreError) as fault:
        return f"{printable_name(path)}: {fault}"
    return f"{printable_name(path)}: {UNLISTED}"


def batches(files: Iterable[RunFile]) -> Iterator[list[RunFile]]:
    """Files in lists of about BATCH_BYTES, so that few of them are in memory at once."""
    batch: list[RunFile] = []
    size = 0
    for file in files:
        batch.append(file)
        size += file.size
        if size >= BATCH_BYTES or len(batch) >= BATCH_FILES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def contents(folder: Path, files: Iterable[RunFile]) -> tuple[list[RunFile], list[bytes], list[str]]:
    """What can be read of some files: the files, their bytes, and a sentence for each that cannot be read."""
    read: list[RunFile] = []
    texts: list[bytes] = []
    faults: list[str] = []
    for file in files:
        try:
            with (folder / file.name).open("rb") as opened:
                texts.append(opened.read(MAX_FILE_BYTES + 1))
            read.append(file)
        except FileNotFoundError:
            continue  # it has gone since the folder was listed
        except OSError:
            faults.append(why_not(folder / file.name, file.stamp))
    return read, texts, faults
