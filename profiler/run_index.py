"""What was read of a folder's Run files, kept as Parquet in the user's cache: it saves time and nothing else."""

import hashlib
import os
import tempfile
from contextlib import suppress
from pathlib import Path

import duckdb

from profiler.cache import cache_folder
from profiler.run_files import RunFile
from profiler.run_rows import FINGERPRINT, STORED
from profiler.store import write_atomically

# Two changes of a file within so short a time may leave the same stamp: it is then read again.
SETTLED_NANOSECONDS = 2 * 10**9
WORTH_KEEPING_BYTES = 4 * 2**20  # reading less again is quicker than writing the index


def index_path(folder: Path) -> Path:
    """The index of a folder; one for each way of reading, so that no version believes another's."""
    how = hashlib.sha256(os.fsencode(folder.absolute()) + b"\0" + FINGERPRINT.encode())
    return cache_folder() / f"runs-{how.hexdigest()[:32]}.parquet"


def add_known(connection: duckdb.DuckDBPyConnection, number: int, path: Path, files: list[RunFile]) -> set[str]:
    """Add to `rows`, under a folder's number, what the index holds of files unchanged since; their names."""
    columns = ", ".join(f'known."{name}"::{kind}' for name, kind in STORED.items())
    if not _is_whole(path):
        return set()
    connection.execute(
        "CREATE OR REPLACE TEMP TABLE here AS SELECT unnest($1::VARCHAR[]) AS name, unnest($2::VARCHAR[]) AS stamp",
        [[file.name for file in files], [file.stamp for file in files]],
    )
    try:
        connection.execute(
            f"INSERT INTO rows SELECT $1, {columns} FROM read_parquet($2) AS known JOIN here USING (name, stamp)",
            [number, str(path)],
        )
    except (duckdb.Error, UnicodeError):
        return set()  # a broken index is none
    known = connection.execute("SELECT DISTINCT name FROM rows WHERE folder = $1", [number])
    return {name for (name,) in known.fetchall()}


def _is_whole(path: Path) -> bool:
    """Whether the index is as it was written; Parquet would give other numbers for bytes that a disk has changed."""
    try:
        return _seal(path).read_text(encoding="ascii") == _digest(path)
    except (OSError, UnicodeError):
        return False


def _seal(path: Path) -> Path:
    return path.with_suffix(".sha256")


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def keep(connection: duckdb.DuckDBPyConnection, number: int, path: Path, files: list[RunFile], now: int) -> None:
    """Write the index anew from `rows`, in one step; where that cannot be done, the next reader takes longer."""
    settled = [file.name for file in files if file.changed < now - SETTLED_NANOSECONDS]
    with suppress(duckdb.Error, OSError, UnicodeError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
        os.close(handle)
        try:
            connection.execute(
                "COPY (SELECT * EXCLUDE (folder) FROM rows "
                "SEMI JOIN (SELECT unnest($1::VARCHAR[]) AS name) USING (name) WHERE folder = $2) "
                "TO $3 (FORMAT parquet, COMPRESSION zstd)",
                [settled, number, temporary],
            )
            digest = _digest(Path(temporary))
            os.replace(temporary, path)
            # Between the two lines the digest is another's, and the index none.
            write_atomically(_seal(path), digest, durable=False)
        finally:
            Path(temporary).unlink(missing_ok=True)
