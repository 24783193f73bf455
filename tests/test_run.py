"""A Run as a file: comes back equal, and what is not a Run is refused with a sentence."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from profiler import run_document as run_module
from profiler.codec import NotARun
from profiler.run import LaunchedKernel, LaunchSpan, Measurement, Run, Series, spread_of
from profiler.run_document import from_json, to_document, to_json
from profiler.workload import LADDER
from tests.fake_runs import SMALL, cpu_run, flash_run, naive_run

Document = dict[str, Any]


def full_run() -> Run:
    """A Run with something in every field."""
    return replace(
        flash_run(SMALL),
        series=(
            Series("hbm_read_bytes_per_second", "B/s", "cupti-sampling", (0.0, 2e-5), (1e12, 0.0), 2e-5),
            Series("power", "W", "nvml", (0.0, 0.05), (120.0, 300.5)),
        ),
        spans=(LaunchSpan("flash", 1e-5, 1.3e-3),),
        kernels=(LaunchedKernel("flash", "flash_kernel"),),
        samples={"gpu_time_seconds": (1e-3, 2e-3)},
        phases={"time": 0.5},
        recorded="ü",
    )


def test_comes_back_equal() -> None:
    runs = (naive_run(), full_run(), cpu_run())
    found = from_json(to_json(runs))
    assert found == runs
    assert found[1] == full_run() and found[1].softmax == full_run().softmax
    assert from_json(to_json(runs).encode()) == runs


def test_the_document_is_what_design_says() -> None:
    document = json.loads(to_json([naive_run()]))
    assert list(document) == ["format_version", "runs"] and document["format_version"] == 1
    (run,) = document["runs"]
    assert {"workload", "device", "measurements"} < set(run)
    assert all({"name", "value", "unit", "source", "note", "spread"} < set(m) for m in run["measurements"])


def changed(change: Callable[[Document], object]) -> str:
    document = to_document([cpu_run()])
    change(document)
    return json.dumps(document)


def first(document: Document) -> Document:
    run: Document = document["runs"][0]
    return run


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda d: d.update(format_version=2), "format_version 2; this Bytescope reads up to 1: update it."),
        (lambda d: d.update(format_version=0), "format_version is 0; it should be a whole number from 1."),
        (lambda d: d.update(format_version=True), "format_version is True;"),
        (lambda d: d.update(format_version="1"), "format_version is '1';"),
        (lambda d: d.update(format_version=None), "format_version is None;"),
        (lambda d: d.pop("format_version"), "it lacks format_version and runs."),
        (lambda d: d.pop("runs"), "it lacks format_version and runs."),
        (lambda d: d.update(color="red"), "a field that this version does not know: 'color'."),
        (lambda d: d.update(runs=[]), "The file holds no runs."),
        (lambda d: d.update(runs={}), "The file holds no runs."),
        (lambda d: d.update(runs=[3]), "runs[0] should be an object."),
        (lambda d: first(d).update(color="red"), "runs[0] has a field that this version does not know: 'color'."),
        (lambda d: first(d).pop("device"), "runs[0] lacks the field 'device'."),
        (lambda d: first(d).update(id=3), "runs[0].id should be str, not int."),
        (lambda d: first(d)["workload"].update(kernel="slow"), "Kernel 'slow' is not known; choose naive, row_"),
        (lambda d: first(d)["workload"].update(tile=None), "Kernel flash needs a tile."),
        (lambda d: first(d)["workload"].update(device="tpu"), "Device 'tpu' is not known"),
        (lambda d: first(d)["workload"]["problem"].update(head_dim=0), "head_dim is 0; it must be at least 1."),
        (lambda d: first(d)["workload"]["problem"].update(heads=10**30, kv_heads=7), "heads 1000"),
        (lambda d: first(d)["workload"]["tile"].update(BLOCK_M=17), "BLOCK_M is 17; it must be a power of two"),
        (lambda d: first(d)["workload"]["trace"].update(head=2), "The traced head is 2; this problem has 0 to 1."),
        (lambda d: first(d)["measurements"][0].update(source="guess"), "flops: source 'guess' is not known."),
        (lambda d: first(d)["measurements"][0].update(unit="KB"), "flops: unit 'KB' is not known."),
        (lambda d: first(d)["measurements"][0].update(value=None), "flops has neither a value nor a reason."),
        (lambda d: first(d)["measurements"][0].update(value="1"), "runs[0].measurements[0].value should be float"),
        (lambda d: first(d)["softmax"]["m"].update(dtype="object"), "An array has dtype 'object'"),
        (lambda d: first(d)["softmax"]["m"].update(shape=[2**40]), "is impossible or above 64 MiB."),
    ],
)
def test_what_is_not_a_run_is_a_sentence(change: Callable[[Document], object], words: str) -> None:
    with pytest.raises(NotARun) as fault:
        from_json(changed(change))
    assert words in str(fault.value)
    assert "\n" not in str(fault.value) and str(fault.value).endswith(".")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_a_value_that_is_not_finite_is_refused(value: str) -> None:
    text = changed(lambda d: first(d)["measurements"][0].update(value=12345.25)).replace("12345.25", value)
    with pytest.raises(NotARun, match=r"a measured value is finite or absent\.$"):
        from_json(text)


def test_nothing_that_is_not_finite_is_written() -> None:
    run = replace(cpu_run(), measurements=(Measurement("flops", float("nan"), "FLOP", "model"),))
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json([run])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        b"\xff\xfe\x00",
        b"PK\x03\x04",
        "[" * 100_000,
        '{"a":' * 100_000,
        '{"format_version": ' + "1" * 5000 + ', "runs": []}',
        "[]",
        "null",
        '"text"',
        "{}",
    ],
    ids=["empty", "cut", "not utf-8", "zip", "deep list", "deep object", "long number", "list", "null", "text", "{}"],
)
def test_what_is_not_json_is_a_sentence(text: str | bytes) -> None:
    with pytest.raises(NotARun, match=r"^This is not a Run file: ") as fault:
        from_json(text)
    assert len(str(fault.value)) < 250


def test_the_largest_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = to_json([cpu_run()])
    monkeypatch.setattr(run_module, "MAX_FILE_BYTES", len(text))
    assert from_json(text)
    with pytest.raises(NotARun, match=r"Run files stay under"):
        from_json(text + " ")


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "a\\b", "a.json", "a b", "a\0", "x" * 81, "<b>"])
def test_an_id_that_could_be_a_path_is_refused(run_id: str) -> None:
    with pytest.raises(NotARun, match=r"^A Run's id is .*letters, digits, - and _ only\.$"):
        replace(cpu_run(), id=run_id)
    with pytest.raises(NotARun, match=r"^runs\[0\] is not valid: A Run's id is"):
        from_json(changed(lambda d: first(d).update(id=run_id)))


def test_find_prefers_measured_and_then_any_value() -> None:
    derived = Measurement("requested_read_bytes", 1.0, "B", "schedule")
    measured = Measurement("requested_read_bytes", 2.0, "B", "interpreter")
    absent = Measurement("requested_read_bytes", None, "B", "ncu", "not here")
    part = Measurement("requested_read_bytes", 3.0, "B", "interpreter", launch="qk")
    run = replace(cpu_run(), measurements=(absent, derived, part, measured))
    assert run.find("requested_read_bytes") is measured
    assert run.find("requested_read_bytes", source="schedule") is derived
    assert replace(run, measurements=(absent, derived)).find("requested_read_bytes") is derived
    assert replace(run, measurements=(absent,)).find("requested_read_bytes") is absent
    assert run.value("requested_read_bytes", "qk") == 3.0
    assert run.value("hbm_bytes") is None and run.find("hbm_bytes") is None
    assert run.launches("requested_read_bytes") == [part]


def test_the_first_of_the_ladder_is_believed_and_the_others_stay() -> None:
    answers = [Measurement("hbm_read_bytes", float(i), "B", source) for i, source in enumerate(reversed(LADDER))]
    run = replace(cpu_run(), measurements=tuple(answers))
    found = run.find("hbm_read_bytes")
    assert found is not None and found.source == "cupti-range"
    for best, next_best in pairwise(LADDER):
        run = replace(run, measurements=tuple(m for m in run.measurements if m.source != best))
        found = run.find("hbm_read_bytes")
        assert found is not None and found.source == next_best


def test_a_file_from_before_counters_could_be_chosen_opens() -> None:
    document = to_document([naive_run()])
    for name in ("counters", "drain", "detail"):
        del first(document)["workload"][name]
    for name in ("spans", "kernels"):
        del first(document)[name]
    assert from_json(json.dumps(document)) == (naive_run(),)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("series", {"interval": 0.0}, "has a series whose samples cover no time, or more than an hour."),
        ("series", {"interval": 1e5}, "has a series whose samples cover no time, or more than an hour."),
        ("spans", {"start": 2.0, "end": 1.0}, "has a launch that ends before it starts or lasts longer than an hour."),
        ("spans", {"end": 4e3}, "has a launch that ends before it starts or lasts longer than an hour."),
        ("spans", {"launch": "x" * 501}, "has a text that is longer than 500 characters or cannot be printed."),
        ("kernels", {"kernel": "a\nb"}, "has a text that is longer than 500 characters or cannot be printed."),
    ],
)
def test_impossible_samples_are_refused(name: str, value: Document, words: str) -> None:
    document = to_document([full_run()])
    first(document)[name][0].update(value)
    with pytest.raises(NotARun, match=re.escape(words)):
        from_json(json.dumps(document))


def test_spread_is_the_20th_and_80th_percentile() -> None:
    assert spread_of(tuple(float(x) for x in range(11))) == (2.0, 8.0)
    assert spread_of((1.0,)) is None


def test_two_runs_of_one_id_that_differ_are_refused() -> None:
    """One given twice is one Run; of two, Compare would draw one beside itself."""
    run = flash_run()
    assert from_json(to_json([run, run])) == (run, run)
    with pytest.raises(NotARun, match=rf"^There are two Runs of one id, {run.id}, that differ"):
        from_json(to_json([run, replace(run, recorded="another")]))
