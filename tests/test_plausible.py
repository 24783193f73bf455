"""A file may be a Run in form and still be no Run that can have happened."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from profiler.codec import NotARun, PackedArray, encode
from profiler.run import DeviceInfo, LaunchSpan, Measurement
from profiler.run_document import from_json, to_document, to_json
from tests.fake_runs import flash_run, naive_run

EXAMPLES = Path(__file__).parents[1] / "examples"
Change = Callable[[dict[str, Any]], object]


def pack(values: list[int], dtype: str) -> dict[str, Any]:
    packed: dict[str, Any] = encode(PackedArray.pack(np.array(values, dtype)))
    return packed


def repeat(run: dict[str, Any], **changes: object) -> None:
    run["measurements"].append(run["measurements"][0] | changes)


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
        (lambda r: measured(r, unit="B"), "flops is in 'B'; what it names is in FLOP"),
        (lambda r: repeat(r), "has flops by model more than once; keep one of them"),
        (lambda r: repeat(r, launch="qk") or repeat(r, launch="qk"), "has flops by model of launch qk more than once"),
        (
            lambda r: repeat(r, name="copy_bytes_per_second", unit="B/s", value=0.0, source="cuda-event"),
            "no memory is as slow or as fast as that",
        ),
        (
            lambda r: repeat(r, name="l2_copy_bytes_per_second", unit="B/s", value=2e14, source="cuda-event"),
            "no memory is as slow or as fast as that",
        ),
        (lambda r: r["device"].update(device="gpu"), "device.device is 'gpu'; it should be cpu or like cuda:0"),
        (lambda r: r["device"].update(device="cuda:1"), "ran on cuda:0, but its device is cuda:1"),
        (lambda r: r["device"].update(name=" "), "device.name is empty"),
        (lambda r: r["device"].update(driver="\x1b[2J"), "device has a text that is longer"),
        (lambda r: r["device"].update(peak_hbm_source="x" * 501), "device has a text that is longer"),
        (lambda r: r["device"].update(memory_bytes=10**400), r"device.memory_bytes should be from 1 to 1e\+18, or"),
        (lambda r: r["device"].update(memory_bytes=0), "device.memory_bytes should be from 1"),
        (lambda r: r["device"].update(sm_count=-1), "device.sm_count should be from 1"),
        (lambda r: r["device"].update(sm_count=10**400), "device.sm_count should be from 1"),
        (lambda r: r["device"].update(l2_bytes=10**400), "device.l2_bytes should be from 1"),
        (lambda r: r["device"].update(shared_memory_per_block=-1), "device.shared_memory_per_block should be from 1"),
        (lambda r: r["device"].update(peak_hbm_bytes_per_second=1e300), "device.peak_hbm_bytes_per_second should be"),
        (lambda r: r["device"].update(peak_hbm_bytes_per_second=0), "device.peak_hbm_bytes_per_second should be"),
        (lambda r: r["device"].update(peak_flops_per_second=-1.0), "device.peak_flops_per_second should be from 1"),
        (lambda r: r["device"].update(compute_capability=[9, 10**400]), "device.compute_capability is not one"),
        (lambda r: r["device"].update(compute_capability=[-9, 0]), "device.compute_capability is not one"),
        (lambda r: r["softmax"].update(row_stop=10**6), "does not have"),
        (lambda r: r["softmax"].update(head=99), "does not have"),
        (lambda r: r["softmax"].update(BLOCK_N=32), "does not have"),
        (lambda r: r["softmax"]["m"].update(shape=[1, 1]), "should hold 256 rows of 128 KV tiles"),
        (lambda r: r["softmax"].update(acc_stride=0), "acc does not fit"),
        (lambda r: r["softmax"].update(acc_tile=-1), "acc does not fit"),
        (lambda r: r["softmax"]["m"].update(data="AAAA"), "cannot be unpacked"),
        (lambda r: r["timeline"].update(sm=pack([0], "int32")), "should hold 1,024 programs"),
        (lambda r: r["timeline"].update(timer_step_ns=0), "should hold 1,024 programs"),
        (lambda r: r["timeline"].update(sm=pack([2**30] * 1024, "int32")), "an SM or a time that no GPU gives"),
        (lambda r: r["timeline"].update(end_ns=pack([-1] * 1024, "int64")), "an SM or a time that no GPU gives"),
        (lambda r: r["timeline"].update(sm=pack([0] * 1024, "int64")), "not int32"),
        (lambda r: r["timeline"].update(crowd(33)), "more than 32 programs on one SM at once"),
        (lambda r: r["series"].append(series(seconds=[0.0, 1.0])), "more times than values"),
        (lambda r: r["series"].append(sampled(unit="W")), "bytes_per_second is in 'W'; what it names is in B/s"),
        (lambda r: r["series"].extend([sampled(), sampled()]), "by cupti-sampling more than once"),
        (lambda r: r["series"].append(series(seconds=[-1.0])), "begins before its first sample"),
        (lambda r: r["series"].append(series(seconds=[1e24])), "lasts longer than a day"),
        (lambda r: r["spans"].extend([span("drain", 0, 1), span("drain", 2, 3)]), "more than one span of 'drain'"),
        (lambda r: r["spans"].extend([span("flash", 0, 1), span("flash", 2, 3)]), "more than one span of 'flash'"),
        (lambda r: r["spans"].append(span("qk", 0, 1)), "a span of 'qk', which its workload does not run"),
        (lambda r: drained_unasked(r), "a span of 'drain', which its workload does not run"),
        # Timed at 1.28 ms: a pass of 4.84 ms is the longest, one of 0.0934 ms the shortest that may be the same.
        (lambda r: r["spans"].append(span("flash", 1e-3, 5.85e-3)), r"spans of 0\.00485 s, but .* timed at 0\.00128 s"),
        (lambda r: r["spans"].append(span("flash", 1e-3, 1.093e-3)), r"spans of 9\.3e-05 s, but .* timed at 0\.00128"),
        (lambda r: r["series"].append(crossings(1.01e14)), "l2_sm_bytes_per_second is above 100 TB/s"),
        (lambda r: measured(r, value=2.0, spread=[3.0, 1.0]), r"flops is 2\.0, outside its spread from 3\.0 to 1\.0"),
        (lambda r: measured(r, value=2.0, spread=[2.1, 3.0]), r"flops is 2\.0, outside its spread from 2\.1 to 3\.0"),
        (lambda r: measured(r, value=2.0, spread=[1.0, 1.9]), r"flops is 2\.0, outside its spread from 1\.0 to 1\.9"),
        (lambda r: measured(r, value=None, note="why", spread=[1.0, 2.0]), "flops has a spread, but no value"),
        (lambda r: r["spans"].extend([span("flash", 0, 2), span("drain", 1, 3)]), "begins before its pass ends"),
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


def sampled(**changes: object) -> dict[str, Any]:
    named = {"name": "hbm_read_bytes_per_second", "unit": "B/s", "source": "cupti-sampling", "interval": 2e-5}
    return series(**named | changes)


def crossings(rate: float) -> dict[str, Any]:
    return sampled(name="l2_sm_bytes_per_second", values=[rate])


def drained_unasked(run: dict[str, Any]) -> None:
    run["workload"]["drain"] = False
    run["spans"].append(span("drain", 0, 1))


def span(launch: str, start: float, end: float) -> dict[str, Any]:
    return {"launch": launch, "start": start, "end": end}


def test_several_reasons_and_one_value_of_a_source_pass() -> None:
    """One source may be asked in two ways, of which the first cannot answer."""
    run = naive_run()
    lost = [Measurement("kernels_launched", None, "1", "torch", f"reason {i}") for i in range(2)]
    found = Measurement("kernels_launched", 4.0, "1", "torch")
    run = dataclasses.replace(run, measurements=(*run.measurements, *lost, found))
    assert from_json(to_json([run]))[0].value("kernels_launched") == 4.0


@pytest.mark.parametrize(
    ("start", "end", "drain"),
    [(1e-3, 5.83e-3, True), (1e-3, 1.094e-3, True), (0.0, 1.3e-3, False)],
    ids=["longest", "shortest", "without a drain"],
)
def test_spans_about_as_long_as_the_timed_passes_pass(start: float, end: float, drain: bool) -> None:
    run = flash_run()
    spans = (LaunchSpan("flash", start, end), LaunchSpan("drain", end, end + 1))
    workload = dataclasses.replace(run.workload, drain=drain)
    run = dataclasses.replace(run, workload=workload, spans=spans if drain else spans[:1])
    assert from_json(to_json([run])) == (run,)


def test_a_launch_that_was_not_sampled_leaves_shorter_spans() -> None:
    """Timed at 6.4 ms: pv alone would be too short for the pass."""
    run = dataclasses.replace(naive_run(), spans=(LaunchSpan("pv", 0.0, 0.68e-3), LaunchSpan("drain", 1e-3, 2e-3)))
    assert from_json(to_json([run])) == (run,)


@pytest.mark.parametrize("factor", [1 - 1e-10, 1 + 1e-10])
def test_arithmetic_may_put_a_value_beside_its_spread(factor: float) -> None:
    run = naive_run()
    equal = Measurement("power_watts", 500.0 * factor, "W", "nvml", spread=(500.0, 500.0))
    run = dataclasses.replace(run, measurements=(*run.measurements, equal))
    assert from_json(to_json([run])) == (run,)


def test_l2_at_its_limit_passes() -> None:
    document = to_document([flash_run()])
    document["runs"][0]["series"].append(crossings(1e14))
    assert from_json(json.dumps(document))[0].series[0].values == (1e14,)


def test_a_device_of_which_little_is_known_passes() -> None:
    run = naive_run()
    run = dataclasses.replace(run, device=DeviceInfo("cuda:0", "NVIDIA GPU without a name"))
    assert from_json(to_json([run])) == (run,)


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.json")), ids=lambda path: path.stem)
def test_recorded_runs_pass(path: Path) -> None:
    assert from_json(path.read_bytes())


def test_what_can_have_happened_passes() -> None:
    runs = (naive_run(), dataclasses.replace(flash_run(), softmax=None))
    assert from_json(json.dumps(to_document(runs))) == runs
