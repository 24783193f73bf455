"""Run files as rows of a DuckDB table: each is read once, by DuckDB's JSON reader, which gets bytes and no path."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import duckdb

from kernels.base import all_kernels
from kernels.own import SPELLING
from profiler.codec import decode
from profiler.plausible import CREATED, LARGEST, MAX_RUN_SECONDS, MAX_TEXT, SHORTEST_SECONDS, SMALLEST, UNIT_OF_NAME
from profiler.run import TRUST
from profiler.run_document import FORMAT_VERSION
from profiler.run_files import RunFile, batches, contents, is_refused, why_not
from profiler.strict_json import once
from profiler.workload import Workload

THREADS = 2
GROUP_FILES = 2048
NAME_OF_COLUMN = "[a-z][a-z0-9_]{0,62}"

# What is taken from a file; the traces and series in it are passed over.
_FILE = """{"format_version": "BIGINT", "runs": [{"id": "VARCHAR", "request": "VARCHAR", "created": "VARCHAR",
    "workload": "JSON", "device": {"device": "VARCHAR", "name": "VARCHAR", "driver": "VARCHAR"},
    "environment": "MAP(VARCHAR, VARCHAR)", "recorded": "VARCHAR",
    "measurements": [{"name": "VARCHAR", "value": "JSON", "unit": "VARCHAR", "source": "VARCHAR",
        "launch": "VARCHAR"}]}]}"""
_WORKLOAD = """{"kernel": "VARCHAR", "problem": {"batch": "BIGINT", "heads": "BIGINT", "kv_heads": "BIGINT",
    "seq_len_q": "BIGINT", "seq_len_kv": "BIGINT", "head_dim": "BIGINT", "dtype": "VARCHAR", "causal": "BOOLEAN",
    "window": "BIGINT", "backward": "BOOLEAN"}, "tile": {"BLOCK_M": "BIGINT", "BLOCK_N": "BIGINT",
    "num_warps": "BIGINT", "num_stages": "BIGINT", "order": "VARCHAR"}, "seed": "BIGINT", "l2": "VARCHAR",
    "repeats": "BIGINT",
    "counters": "VARCHAR", "drain": "BOOLEAN", "detail": "BOOLEAN"}"""

COLUMNS = {
    "id": "VARCHAR",
    "request": "VARCHAR",
    "created": "VARCHAR",
    "recorded": "VARCHAR",
    "kernel": "VARCHAR",
    **dict.fromkeys(("batch", "heads", "kv_heads", "seq_len_q", "seq_len_kv", "head_dim"), "BIGINT"),
    "dtype": "VARCHAR",
    "causal": "BOOLEAN",
    "window": "BIGINT",
    "backward": "BOOLEAN",
    **dict.fromkeys(("BLOCK_M", "BLOCK_N", "num_warps", "num_stages"), "BIGINT"),
    "order": "VARCHAR",
    "device": "VARCHAR",
    "device_name": "VARCHAR",
    "driver": "VARCHAR",
    "torch": "VARCHAR",
    "triton": "VARCHAR",
    "seed": "BIGINT",
    "l2": "VARCHAR",
    "repeats": "BIGINT",
    "counters": "VARCHAR",
    "drain": "BOOLEAN",
    "detail": "BOOLEAN",
}
STORED = {
    "name": "VARCHAR",
    "stamp": "VARCHAR",
    "modified": "BIGINT",
    "position": "BIGINT",
    **COLUMNS,
    "workload": "VARCHAR",
    "found": "MAP(VARCHAR, STRUCT(value DOUBLE, source VARCHAR))",
}


def declared() -> str:
    """The columns of the table of rows, for CREATE TABLE."""
    return ", ".join(f'"{name}" {kind}' for name, kind in STORED.items())


def add_rows(connection: duckdb.DuckDBPyConnection, number: int, folder: Path, files: Sequence[RunFile]) -> list[str]:
    """Add the Runs of files of a folder to `rows` under its number; a sentence for every file that holds none."""
    faults: list[str] = []
    for start in range(0, len(files), GROUP_FILES):
        faults += _add_group(connection, number, folder, files[start : start + GROUP_FILES])
    return faults


def _add_group(connection: duckdb.DuckDBPyConnection, number: int, folder: Path, files: Sequence[RunFile]) -> list[str]:
    def parse(batch: list[RunFile]) -> list[str]:
        read, texts, faults = contents(folder, batch)
        columns = [[getattr(file, name) for file in read] for name in ("name", "stamp", "modified")]
        with connection.cursor() as cursor:
            cursor.execute(_PARSE, [*columns, texts])
        return faults

    stamps = {file.name: file.stamp for file in files}
    try:
        connection.execute(_DOCUMENTS)
        with ThreadPoolExecutor(THREADS) as threads:
            faults = [fault for found in threads.map(parse, batches(files)) for fault in found]
        connection.execute(_LIST, [list(all_kernels())])
        _leave_out_impossible(connection)
        _leave_out_refused(connection, folder, stamps)
        connection.execute(
            "INSERT INTO rows SELECT $1, * EXCLUDE (is_plain, is_doubted) FROM parsed WHERE is_plain", [number]
        )
    except duckdb.OutOfMemoryException:
        # One file among them may be beyond the memory that is set aside: it alone is to be missing.
        half = len(files) // 2
        if half:
            parts = (files[:half], files[half:])
            return [fault for part in parts for fault in _add_group(connection, number, folder, part)]
        return [why_not(folder / file.name, file.stamp) for file in files]
    missed = connection.execute(
        "SELECT name FROM documents ANTI JOIN (SELECT name FROM parsed WHERE is_plain) USING (name)"
    ).fetchall()
    return [*faults, *(why_not(folder / name, stamps[name]) for (name,) in missed)]


def _leave_out_impossible(connection: duckdb.DuckDBPyConnection) -> None:
    """Of a file with a Workload that cannot be, or of another device than its Run's, no Run is listed."""
    found = connection.execute("SELECT DISTINCT workload, device FROM parsed WHERE is_plain").fetchall()
    if bad := [[text, device] for text, device in found if not _is_workload(text, device)]:
        connection.execute(
            "UPDATE parsed SET is_plain = false WHERE name IN (SELECT name FROM parsed WHERE list_contains($1, "
            "[workload, device]))",
            [bad],
        )


def _leave_out_refused(connection: duckdb.DuckDBPyConnection, folder: Path, stamps: Mapping[str, str]) -> None:
    """Of a file with a value that cannot have been measured whoever opens it decides, as where it is opened alone."""
    doubted = connection.execute("SELECT DISTINCT name FROM parsed WHERE is_plain AND is_doubted").fetchall()
    if refused := [name for (name,) in doubted if is_refused(folder / name, stamps[name])]:
        connection.execute("UPDATE parsed SET is_plain = false WHERE list_contains($1, name)", [refused])


def _is_workload(text: str, device: str) -> bool:
    try:
        workload: Workload = decode(Workload, json.loads(text, object_pairs_hook=once), "workload")
    except (ValueError, RecursionError):
        return False
    return workload.device == device


def _text(*columns: str) -> str:
    """SQL that holds where texts are short and printable, or absent."""
    names = ", ".join(f'"{column}"' for column in columns)
    # Everything of Unicode's class C, and of Z all but the space. One pattern for all: compiling it is what takes time.
    unprintable = r"[\p{C}]|[^\P{Z} ]"
    return (
        f"NOT regexp_matches(concat_ws(' ', {names}), '{unprintable}') "
        f"AND list_max(list_transform([{names}], lambda text: coalesce(length(text), 0))) <= {MAX_TEXT}"
    )


def possible(value: str, name: str, unit: str, source: str, untold: str) -> str:
    """SQL that holds where a number is one that can be measured, by a known source, in the unit that its name tells.

    `untold` is SQL of the unit where the name tells none.
    """
    units = " ".join(f"WHEN ends_with({name}, '{end}') THEN '{told}'" for end, told in UNIT_OF_NAME.items())
    sources = ", ".join(f"'{known}'" for known in TRUST)
    return (
        f"isfinite({value}) AND ({value} = 0 OR abs({value}) BETWEEN {SMALLEST} AND {LARGEST}) "
        f"AND ({unit} <> 's' OR {value} = 0 OR {value} BETWEEN {SHORTEST_SECONDS} AND {MAX_RUN_SECONDS}) "
        f"AND ({name} <> 'gpu_time_seconds' OR {value} > 0) "
        f"AND ({value} >= 0 OR {unit} = '°C') AND {unit} = CASE {units} ELSE {untold} END AND {source} IN ({sources})"
    )


def number(json: str) -> str:
    """SQL of a JSON value as a number, NULL where it is none: a text or a truth that could be read as one is not."""
    return f"CASE WHEN regexp_matches({json}, '^-?[0-9]') THEN try_cast({json} AS DOUBLE) END"


_TRUSTED = ", ".join(f"'{source}'" for source in TRUST)
_SIZES = ("batch", "heads", "kv_heads", "seq_len_q", "seq_len_kv", "head_dim")
_TILE = ("BLOCK_M", "BLOCK_N", "num_warps", "num_stages")
_DOCUMENTS = f"""
CREATE OR REPLACE TABLE documents AS
SELECT '' AS name, '' AS stamp, 0::BIGINT AS modified, try(from_json_strict('{{}}', '{_FILE}')) AS document LIMIT 0
"""
_PARSE = f"""
INSERT INTO documents SELECT name, stamp, modified, try(from_json_strict(decode(content), '{_FILE}'))
FROM (SELECT unnest($1::VARCHAR[]) AS name, unnest($2::VARCHAR[]) AS stamp, unnest($3::BIGINT[]) AS modified,
    unnest($4::BLOB[]) AS content)
"""
_LIST = f"""
CREATE OR REPLACE TABLE parsed AS
WITH runs AS MATERIALIZED (
    SELECT name, stamp, modified, unnest(generate_series(1, len(document.runs))) AS position,
        unnest(document.runs) AS run
    FROM documents WHERE document.format_version BETWEEN 1 AND {FORMAT_VERSION}
), measured AS (
    SELECT name, position, m.name AS quantity, m.unit, m.source, {number("m.value")} AS value, m.value AS told
    FROM (SELECT name, position, unnest(run.measurements) AS m FROM runs) WHERE m.launch IS NULL
), doubted AS (
    SELECT DISTINCT name FROM measured WHERE coalesce(told::VARCHAR, 'null') <> 'null'
        AND NOT coalesce({possible("value", "quantity", "unit", "source", "unit")}, false)
), best AS (
    SELECT name, position, quantity,
        arg_min({{'value': value, 'source': source}}, list_position([{_TRUSTED}], source)) AS one
    FROM measured WHERE regexp_full_match(quantity, '{NAME_OF_COLUMN}')
        AND {possible("value", "quantity", "unit", "source", "'1'")} GROUP BY ALL
), found AS (
    SELECT name, position, map_from_entries(list({{'k': quantity, 'v': one}})) AS found FROM best GROUP BY ALL
), spread AS (
    SELECT name, stamp, modified, position, run, from_json(run.workload, '{_WORKLOAD}') AS w FROM runs
), listed AS (
    SELECT name, stamp, modified, position, run.id, run.request, run.created, run.recorded, w.kernel,
        {", ".join(f"w.problem.{size}" for size in _SIZES)}, w.problem.dtype, w.problem.causal, w.problem."window",
        coalesce(w.problem.backward, false) AS backward,
        {", ".join(f"w.tile.{part}" for part in _TILE)}, w.tile."order", run.device.device,
        run.device.name AS device_name, run.device.driver, run.environment['torch'] AS torch,
        run.environment['triton'] AS triton, w.seed, w.l2, w.repeats, coalesce(w.counters, 'auto') AS counters,
        coalesce(w.drain, true) AS drain, coalesce(w.detail, false) AS detail, run.workload::VARCHAR AS workload
    FROM spread
), judged AS (
    SELECT listed.*, coalesce(found, MAP {{}}) AS found, coalesce(
        regexp_full_match(id, '[\\p{{L}}\\p{{N}}_-]+') AND length(id) <= 80
        AND regexp_full_match(created, '{CREATED.pattern}')
        AND (list_contains($1, kernel) OR regexp_full_match(kernel, '{SPELLING}'))
        AND least({", ".join(_SIZES)}, seed + 1) >= 1 AND causal IS NOT NULL
        AND length(workload) <= 4000 AND trim(device_name) <> '' AND request IS NOT NULL AND recorded IS NOT NULL
        AND dtype IS NOT NULL AND l2 IS NOT NULL AND device IS NOT NULL
        AND {_text(*(name for name, kind in COLUMNS.items() if kind == "VARCHAR"))}, false) AS is_plain
    FROM listed LEFT JOIN found USING (name, position)
)
SELECT * EXCLUDE (is_plain), bool_and(is_plain) OVER (PARTITION BY name) AS is_plain,
    name IN (SELECT name FROM doubted) AS is_doubted
FROM judged
"""
# Two ways of reading that differ in anything have two fingerprints.
FINGERPRINT = hashlib.sha256("".join((_PARSE, _LIST, *all_kernels())).encode()).hexdigest()
