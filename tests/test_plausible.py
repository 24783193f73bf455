"""A file may be a Run in form and still be no Run that can have happened."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from profiler.codec import NotARun, PackedArray, encode
from profiler.run import from_json, to_document
from tests.fake_runs import flash_run, naive_run

Change = Callable[[dict[str, Any]], object]


def pack(values: list[int], dtype: str) -> dict[str, Any]:
    packed: dict[str, Any] = encode(PackedArray.pack(np.array(values, dtype)))
    return packed


def measured(run: dict[str, Any], **changes: object) -> None:
    run["measurements"][0] |= changes


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda r: r.update(created="0001-01-01T00:00:00+14:00"), "should be like 2026-11-29T15:59:09Z"),
        (lambda r: measured(r, value=1e308), "which cannot be measured"),
        (lambda r: measured(r, value=5e-324), "which cannot be measured"),
        (lambda r: measured(r, value=-127e6), "cannot be negative"),
        (lambda r: measured(r, spread=[0.0, 1e300]), "which cannot be measured"),
        (lambda r: r["device"].update(name="x" * 501), "longer than 500 characters or cannot be printed"),
        (lambda r: r["device"].update(name="H200\n# title"), "longer than 500 characters or cannot be printed"),
        (lambda r: r["softmax"].update(row_stop=10**6), "does not have"),
        (lambda r: r["softmax"].update(head=99), "does not have"),
        (lambda r: r["softmax"].update(BLOCK_N=32), "does not have"),
        (lambda r: r["softmax"]["m"].update(shape=[1, 1]), "should hold 256 rows of 128 KV tiles"),
        (lambda r: r["softmax"].update(acc_stride=0), "acc does not fit"),
        (lambda r: r["softmax"].update(acc_tile=-1), "acc does not fit"),
        (lambda r: r["softmax"]["m"].update(data="AAAA"), "cannot be unpacked"),
        (lambda r: r["timeline"].update(sm=pack([0], "int32")), "should hold 1024 programs"),
        (lambda r: r["timeline"].update(timer_step_ns=0), "should hold 1024 programs"),
        (lambda r: r["timeline"].update(sm=pack([2**30] * 1024, "int32")), "an SM or a time that no GPU gives"),
        (lambda r: r["timeline"].update(end_ns=pack([-1] * 1024, "int64")), "an SM or a time that no GPU gives"),
        (lambda r: r["timeline"].update(sm=pack([0] * 1024, "int64")), "not int32"),
        (lambda r: r["timeline"].update(crowd(33)), "more than 32 programs on one SM at once"),
        (lambda r: r["series"].append(series(seconds=[0.0, 1.0])), "more times than values"),
    ],
)
def test_what_cannot_have_happened_is_refused(change: Change, sentence: str) -> None:
    document = to_document([naive_run(), flash_run()])
    change(document["runs"][1])
    with pytest.raises(NotARun, match=sentence) as refusal:
        from_json(json.dumps(document))
    assert str(refusal.value).startswith("runs[1]")


def crowd(together: int) -> dict[str, Any]:
    """1,024 programs on one SM, `together` at a time."""
    start = [index // together * 32 for index in range(1024)]
    end = [begun + 32 for begun in start]
    return {"sm": pack([7] * 1024, "int32"), "start_ns": pack(start, "int64"), "end_ns": pack(end, "int64")}


def test_a_full_sm_passes() -> None:
    document = to_document([flash_run()])
    document["runs"][0]["timeline"].update(crowd(32))
    assert from_json(json.dumps(document))[0].timeline is not None


def series(**changes: object) -> dict[str, Any]:
    return {"name": "power_watts", "unit": "W", "source": "nvml", "seconds": [0.0], "values": [1.0]} | changes


def test_what_can_have_happened_passes() -> None:
    runs = (naive_run(), dataclasses.replace(flash_run(), softmax=None))
    assert from_json(json.dumps(to_document(runs))) == runs
