"""The rules of the Chrome trace event format, as a checker: what ui.perfetto.dev expects of a JSON trace."""

import json
import math
from itertools import pairwise
from typing import Any

PHASES = {"X", "M", "C"}
METADATA = {
    "process_name": ("name", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}


def checked(text: str) -> dict[str, Any]:
    """The document; raises AssertionError with the event that breaks a rule."""
    document: dict[str, Any] = json.loads(text, parse_constant=_refuse)
    assert isinstance(document["traceEvents"], list)
    assert document["displayTimeUnit"] in ("ms", "ns")
    assert all(isinstance(value, str) for value in document["otherData"].values())
    named: dict[str, set[object]] = {"process_name": set(), "thread_name": set()}
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    counted: dict[tuple[int, str], list[float]] = {}
    for event in document["traceEvents"]:
        assert event["ph"] in PHASES and isinstance(event["name"], str) and event["name"], event
        assert all(type(event[key]) is int and event[key] >= 0 for key in ("pid", "tid")), event
        track = (event["pid"], event["tid"])
        if event["ph"] == "M":
            key, kind = METADATA[event["name"]]
            assert type(event["args"][key]) is kind, event
            if event["name"] in named:
                subject = event["pid"] if event["name"] == "process_name" else track
                assert subject not in named[event["name"]], f"named twice: {event}"
                named[event["name"]].add(subject)
            continue
        assert _is_time(event["ts"]), event
        if event["ph"] == "X":
            assert _is_time(event["dur"]), event
            tracks.setdefault(track, []).append((event["ts"], event["ts"] + event["dur"]))
        else:
            assert event["args"] and all(_is_number(value) for value in event["args"].values()), event
            counted.setdefault((event["pid"], event["name"]), []).append(event["ts"])
    assert {pid for pid, _ in tracks} | {pid for pid, _ in counted} == named["process_name"]
    assert set(tracks) == named["thread_name"]
    for track, slices in tracks.items():
        slices.sort()
        # Complete events of one track nest or follow each other; these follow. 1e-6 µs is what floats lose.
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(slices)), track
    for counter, times in counted.items():
        assert times == sorted(times) and len(set(times)) == len(times), counter
    return document


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]


def _is_time(value: object) -> bool:
    return _is_number(value) and value >= 0  # type: ignore[operator]


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is no JSON")
