"""Every Measurement of chosen Runs as rows of a DuckDB table, those of single launches and kernels included."""

from collections import defaultdict
from pathlib import Path

import duckdb

from profiler.catalogue import Catalogue, quoted
from profiler.plausible import MAX_TEXT
from profiler.run import UNITS
from profiler.run_files import RunFile, batches, contents, scan, why_not
from profiler.run_rows import COLUMNS, number, possible

IMPOSSIBLE = "The file's value is none that can be measured."
MEASURED = ("measurement", "launch", "value", "unit", "source", "p20", "p80", "note")


def measurements(
    catalogue: Catalogue, runs: duckdb.DuckDBPyRelation
) -> tuple[duckdb.DuckDBPyRelation, tuple[str, ...]]:
    """A row for each Measurement, beside the facts of its Run, newest file first; a sentence for each file lost since.

    A value that cannot have been measured is left out, and the note says so.
    """
    connection = catalogue.connection
    connection.execute("DROP TABLE IF EXISTS chosen")
    runs.project(", ".join(map(quoted, ("path", *COLUMNS, "folder", "name", "position")))).create("chosen")
    wanted: dict[int, set[str]] = defaultdict(set)
    for folder, name in connection.execute("SELECT DISTINCT folder, name FROM chosen").fetchall():
        wanted[folder].add(name)
    faults: list[str] = []
    parts: list[str] = []
    for folder, names in wanted.items():
        files, gone = scan(catalogue.folders[folder], frozenset(names))
        faults += gone
        # All rows at once would not fit into memory: each batch is a file of its own, and they are read in a row.
        for batch in batches(sorted(files, key=lambda file: (file.modified, file.name), reverse=True)):
            parts.append(str(catalogue.scratch / f"measurements-{len(parts)}.parquet"))
            faults += _write(connection, folder, catalogue.folders[folder], batch, parts[-1])
    return connection.read_parquet(parts), tuple(faults)


def _write(
    connection: duckdb.DuckDBPyConnection, number: int, folder: Path, batch: list[RunFile], part: str
) -> list[str]:
    files, texts, faults = contents(folder, batch)
    connection.execute(_PARSE, [[file.name for file in files], texts, IMPOSSIBLE])
    read = {name for (name,) in connection.execute("SELECT DISTINCT name FROM measured").fetchall()}
    facts = ", ".join(map(quoted, ("path", *COLUMNS)))
    connection.execute(
        f"COPY (SELECT {facts}, {', '.join(MEASURED)} FROM measured JOIN chosen USING (name, position) "
        "WHERE folder = $1 ORDER BY row, position, place) TO $2 (FORMAT parquet)",
        [number, part],
    )
    return [*faults, *(why_not(folder / file.name, file.stamp) for file in files if file.name not in read)]


def _clean(text: str) -> str:
    return f"regexp_replace(left({text}, {MAX_TEXT}), '[\\p{{C}}]', '\N{REPLACEMENT CHARACTER}', 'g')"


_FILE = """{"runs": [{"measurements": [{"name": "VARCHAR", "value": "JSON", "unit": "VARCHAR", "source": "VARCHAR",
    "note": "VARCHAR", "spread": "JSON", "launch": "VARCHAR"}]}]}"""
_UNITS = ", ".join(f"'{unit}'" for unit in sorted(UNITS))
_PARSE = f"""
CREATE OR REPLACE TABLE measured AS
WITH documents AS MATERIALIZED (
    SELECT name, row, try(from_json_strict(decode(content), '{_FILE}')) AS document FROM (
        SELECT unnest($1::VARCHAR[]) AS name, unnest($2::BLOB[]) AS content,
            unnest(generate_series(1, len($1))) AS row
    )
), runs AS MATERIALIZED (
    SELECT name, row, unnest(generate_series(1, len(document.runs))) AS position, unnest(document.runs) AS run
    FROM documents
), rows AS MATERIALIZED (
    SELECT name, row, position, unnest(generate_series(1, len(run.measurements))) AS place,
        unnest(run.measurements) AS m
    FROM runs
), numbers AS (
    SELECT name, row, position, place, m.name AS measurement, m.launch, m.unit, m.source, m.note, m.value AS told,
        {number("m.value")} AS value, {number("(m.spread->0)::VARCHAR")} AS p20,
        {number("(m.spread->1)::VARCHAR")} AS p80
    FROM rows
), judged AS (
    SELECT *, coalesce({possible("value", "measurement", "unit", "source", "unit")} AND unit IN ({_UNITS}), false)
        AS is_possible FROM numbers
)
SELECT name, row, position, place, {_clean("measurement")} AS measurement, {_clean("launch")} AS launch,
    CASE WHEN is_possible THEN value END AS value, {_clean("unit")} AS unit, {_clean("source")} AS source,
    CASE WHEN is_possible AND isfinite(p20) THEN p20 END AS p20,
    CASE WHEN is_possible AND isfinite(p80) THEN p80 END AS p80,
    CASE WHEN is_possible OR coalesce(told::VARCHAR, 'null') = 'null' THEN {_clean("note")} ELSE $3 END AS note
FROM judged
"""
