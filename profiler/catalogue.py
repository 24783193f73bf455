"""Folders of Run files as one DuckDB table: a row for each Run, a column for each fact and each measured quantity."""

import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb

from kernels.problem import Refused
from profiler.codec import NotARun, decode
from profiler.plausible import printable
from profiler.run import DERIVED, HALVES
from profiler.run_files import scan
from profiler.run_index import WORTH_KEEPING_BYTES, add_known, index_path, keep
from profiler.run_rows import COLUMNS, THREADS, add_rows, declared
from profiler.scratch import scratch
from profiler.store import StoreError, printable_name
from profiler.workload import Workload

MEMORY = "256MB"  # what DuckDB may take
MAX_QUANTITIES = 200
SOURCE = "_source"
WRAPPED = re.compile(r'"exception_message":("(?:[^"\\]|\\.)*")')
NEWEST_FIRST = "modified DESC, name DESC, position"
# Columns of `runs` that say where a Run stands, beside those that say what it is: the file's folder (its place in
# Catalogue.folders), name and time of change in ns, the Run's place in the file from 1, and its Workload as JSON.
KEYS = ("folder", "name", "modified", "position", "workload")


class UnusableFilter(Refused):
    """A filter that DuckDB does not take; the message is a sentence with the reason and the columns."""


@dataclass(frozen=True)
class Catalogue:
    """Runs to filter and to write; `faults` is a sentence for every file that holds none.

    The connection reaches no file but those in `scratch`, whatever a filter asks of it.
    """

    connection: duckdb.DuckDBPyConnection
    folders: tuple[Path, ...]
    faults: tuple[str, ...]
    scratch: Path

    @property
    def runs(self) -> duckdb.DuckDBPyRelation:
        """All Runs: `columns`, then KEYS."""
        return self.connection.view("runs")

    @property
    def columns(self) -> tuple[str, ...]:
        """What is known of a Run: its path, its facts, and each measured quantity with its source."""
        return tuple(name for name in self.runs.columns if name not in KEYS)

    def where(self, expression: str) -> duckdb.DuckDBPyRelation:
        """The Runs for which a DuckDB expression over `columns` holds. Raises UnusableFilter."""
        try:
            expression.encode()  # DuckDB takes no half characters
            found = self.runs.filter(duckdb.SQLExpression(expression))
            count(found)  # what is wrong with a value shows once the filter meets it
        except duckdb.IOException:
            raise  # the disk's fault, not the filter's
        except (duckdb.Error, UnicodeError) as fault:
            raise UnusableFilter(
                f"The filter cannot be used: {reason_of(fault)}. Give one DuckDB expression, such as "
                f"\"kernel = 'flash' and seq_len_q >= 4096\", over the columns {', '.join(map(spelled, self.columns))}."
            ) from fault
        return found

    def newest(self, runs: duckdb.DuckDBPyRelation, most: int) -> tuple[list["Stored"], tuple[str, ...]]:
        """The first `most` of some Runs, newest file first; a sentence for each whose Workload cannot be run here."""
        stored: list[Stored] = []
        faults: list[str] = []
        for row in runs.order(NEWEST_FIRST).limit(most).fetchall():
            known = dict(zip(runs.columns, row, strict=True))
            path = self.folders[known["folder"]] / known["name"]
            try:
                stored.append(Stored(path, decode(Workload, json.loads(known["workload"]), "workload"), known))
            except NotARun as fault:
                faults.append(f"{printable_name(path)}: {fault}")
        return stored, tuple(faults)


@dataclass(frozen=True)
class Stored:
    """One Run of a Catalogue: its file, its Workload, and its row by the names of the columns."""

    path: Path
    workload: Workload
    row: dict[str, Any]

    def text(self, column: str) -> str:
        """A fact in words; empty where the Run has none."""
        return self.row.get(column) or ""

    def measured(self, quantity: str) -> tuple[float | None, str]:
        """A quantity's value and its source; None and an empty source where the Run has none."""
        return self.row.get(quantity), self.text(quantity + SOURCE)


def reason_of(fault: BaseException) -> str:
    """What DuckDB says, without the end of the sentence; of a fault that it has wrapped into JSON, the message."""
    text = str(fault)
    if wrapped := WRAPPED.search(text):
        text = str(json.loads(wrapped[1]))
    return printable(text.partition("\n")[0]).rstrip("!.")


def count(runs: duckdb.DuckDBPyRelation) -> int:
    """How many rows a relation has."""
    ((rows,),) = runs.aggregate("count(*)").fetchall()
    return int(rows)


@contextmanager
def catalogue(folders: Sequence[Path] = (), files: Sequence[Path] = ()) -> Iterator[Catalogue]:
    """The Runs of folders, and of single files, newest file first; a folder that does not exist holds none.

    Raises StoreError where there is no room for temporary files, also while it is used.
    """
    try:
        with scratch() as folder, duckdb.connect(config=_CONFIG | {"temp_directory": str(folder)}) as opened:
            yield _read_all(opened, folders, files, folder)
    except (duckdb.IOException, duckdb.OutOfMemoryException) as fault:
        raise StoreError(
            f"There is no room for temporary files, so saved Runs cannot be read: {reason_of(fault)}."
        ) from fault


def _read_all(
    opened: duckdb.DuckDBPyConnection, folders: Sequence[Path], files: Sequence[Path], scratch: Path
) -> Catalogue:
    opened.execute(f"CREATE TABLE rows (folder BIGINT, {declared()})")
    places = _places(folders, files)
    faults = [fault for number, place in enumerate(places) for fault in sorted(_read(opened, number, *place))]
    # Nothing that a file or a person wrote is run before this point, and nothing gets out after it.
    opened.execute(f"SET allowed_directories = [{_literal(f'{scratch}/')}]")
    opened.execute("SET enable_external_access = false")
    opened.execute("SET lock_configuration = true")
    parents = tuple(folder for folder, _ in places)
    opened.execute(
        f"CREATE TABLE folders AS {_numbered}",
        [[os.fsencode(folder).decode(errors="replace") for folder in parents]],
    )
    opened.execute(f"CREATE VIEW runs AS {_view(opened)}")
    return Catalogue(opened, parents, tuple(faults), scratch)


_CONFIG: dict[str, str | bool | int | float | list[str]] = {
    "threads": THREADS,
    "memory_limit": MEMORY,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "python_enable_replacements": False,
}
_numbered = "SELECT unnest(generate_series(0, len($1) - 1)) AS folder, unnest($1::VARCHAR[]) AS place"


def _places(folders: Sequence[Path], files: Sequence[Path]) -> list[tuple[Path, frozenset[str] | None]]:
    """Each folder once, with the names of what is wanted of it; None means all."""
    named: dict[Path, set[str]] = defaultdict(set)
    for file in files:
        named[file.parent].add(file.name)
    whole: list[tuple[Path, frozenset[str] | None]] = [(folder, None) for folder in dict.fromkeys(folders)]
    return [*whole, *((folder, frozenset(names)) for folder, names in named.items() if folder not in folders)]


def _read(connection: duckdb.DuckDBPyConnection, number: int, folder: Path, names: frozenset[str] | None) -> list[str]:
    """Add a folder's Runs to `rows`: those of unchanged files from its index, the others from their files."""
    now = time.time_ns()
    files, faults = scan(folder, names)
    index = index_path(folder)
    known = add_known(connection, number, index, files)
    fresh = [file for file in files if file.name not in known]
    faults += add_rows(connection, number, folder, fresh)
    if names is None and sum(file.size for file in fresh) > WORTH_KEEPING_BYTES:
        keep(connection, number, index, files, now)
    return faults


def _view(connection: duckdb.DuckDBPyConnection) -> str:
    """The SELECT that makes `runs`: what is stored, then a column for each quantity that a Run of them has."""
    found = connection.execute(
        "SELECT quantity FROM (SELECT unnest(map_keys(found)) AS quantity FROM rows) GROUP BY quantity "
        f"ORDER BY count(*) DESC, quantity LIMIT {MAX_QUANTITIES}"
    ).fetchall()
    names = {name for (name,) in found}
    names |= {whole for whole, halves in HALVES.items() if names.intersection(halves)}
    # A quantity of any name may come from a file; none takes the place of a fact, nor of another's source.
    taken = {name.lower() for name in (*COLUMNS, *KEYS, "path", *(name + SOURCE for name in names))}
    quantities = [part for name in sorted(names - taken) for part in _quantity(name)]
    facts = ["concat(place, '/', name) AS path", *map(quoted, COLUMNS)]
    return f"SELECT {', '.join([*facts, *quantities, *KEYS])} FROM rows JOIN folders USING (folder)"


def _quantity(name: str) -> tuple[str, str]:
    """SQL of a quantity and of its source; of its halves' sum where a source tells it in two."""
    value, source = f"found['{name}'].value", f"found['{name}'].source"
    if name in HALVES:
        read, written = (f"found['{half}']" for half in HALVES[name])
        derived = ", ".join(f"'{one}'" for one in DERIVED)
        both = f"{read}.value + {written}.value"
        # A sum is only as good as its weaker part.
        weaker = f"CASE WHEN {written}.source IN ({derived}) AND {read}.source NOT IN ({derived}) THEN {written}.source"
        source = f"CASE WHEN {both} IS NULL THEN {source} ELSE {weaker} ELSE {read}.source END END"
        value = f"coalesce({both}, {value})"
    return f"{value} AS {quoted(name)}", f"{source} AS {quoted(name + SOURCE)}"


def quoted(name: str) -> str:
    """A name as SQL spells it, whatever is in it."""
    return '"' + name.replace('"', '""') + '"'


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def spelled(name: str) -> str:
    """A column's name as a filter needs it: quoted where SQL takes the word for its own."""
    return quoted(name) if name in ("window", "order") else name
