"""Runs as one JSON document and back, whatever is handed in: read as what it claims to be, or refused in a sentence."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

from kernels.shown import shown
from profiler.codec import NotARun, PackedArray, decode, encode
from profiler.plausible import require_plausible
from profiler.run import Run
from profiler.strict_json import loads

FORMAT_VERSION = 1
MAX_FILE_BYTES = 64 * 2**20
MAX_UNPACKED_BYTES, MAX_RUNS = 512 * 2**20, 10_000


def to_document(runs: Sequence[Run]) -> dict[str, Any]:
    """The JSON document of some Runs."""
    return {"format_version": FORMAT_VERSION, "runs": [encode(run) for run in runs]}


def to_json(runs: Sequence[Run]) -> str:
    """Runs as one JSON document; `from_json` gives them back equal."""
    return json.dumps(to_document(runs), allow_nan=False, ensure_ascii=False)


def from_json(text: str | bytes) -> tuple[Run, ...]:
    """The Runs of a document. Raises NotARun with a sentence for anything that is not one."""
    if len(text) > MAX_FILE_BYTES:
        raise NotARun(f"The file is {len(text) / 2**20:.0f} MiB; Run files stay under {MAX_FILE_BYTES >> 20} MiB.")
    document = loads(text, "This is not a Run file")
    if not isinstance(document, dict) or "format_version" not in document or "runs" not in document:
        raise NotARun("This is not a Run file: it lacks format_version and runs.")
    version = document["format_version"]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise NotARun(f"format_version is {shown(version)}; it should be a whole number from 1.")
    if version > FORMAT_VERSION:
        raise NotARun(
            f"The file has format_version {shown(version)}; this Bytescope reads up to {FORMAT_VERSION}: update it."
        )
    unknown = [name for name in document if name not in ("format_version", "runs")]
    if unknown:
        raise NotARun(f"The file has a field that this version does not know: {shown(unknown[0])}.")
    if not isinstance(document["runs"], list) or not document["runs"]:
        raise NotARun("The file holds no runs.")
    if len(document["runs"]) > MAX_RUNS:
        raise NotARun(f"The file holds {len(document['runs']):,} Runs; {MAX_RUNS:,} are the most.")
    runs: tuple[Run, ...] = tuple(decode(Run, run, f"runs[{i}]") for i, run in enumerate(document["runs"]))
    _require_little_unpacked(runs)
    for i, run in enumerate(runs):
        require_plausible(run, f"runs[{i}]")
    distinct(runs)
    return runs


def distinct(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Each Run once. Raises NotARun for two of one id that differ: nothing could tell them apart."""
    by_id: dict[str, Run] = {}
    for run in runs:
        if by_id.setdefault(run.id, run) != run:
            raise NotARun(f"There are two Runs of one id, {run.id}, that differ; which of them is meant?")
    return tuple(by_id.values())


def _require_little_unpacked(runs: Sequence[Run]) -> None:
    """A few bytes unpack into a thousand times as many, and every Run may have some."""
    traces = [trace for run in runs for trace in (run.softmax, run.timeline) if trace is not None]
    arrays = [part for trace in traces for part in vars(trace).values() if isinstance(part, PackedArray)]
    size = sum(array.nbytes for array in arrays)
    if size > MAX_UNPACKED_BYTES:
        raise NotARun(
            f"The file's arrays are {size / 2**20:,.0f} MiB once unpacked; those of a Run file stay under "
            f"{MAX_UNPACKED_BYTES >> 20} MiB."
        )
