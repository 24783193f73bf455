"""The Perfetto export, held to the format's rules, on a recorded Run and far above its limit of events."""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from app.lanes import lanes
from app.perfetto_slices import lane_slices
from app.report import FORMATS
from app.report_perfetto import MOST_EVENTS
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.run import LaunchSpan, Run, Series
from profiler.run_document import from_json
from profiler.workload import Workload
from tests import fake_runs
from tests.fake_timelines import scheduled, traced
from tests.trace_rules import checked

pytestmark = pytest.mark.computes

EXAMPLE = Path(__file__).resolve().parent.parent / "examples" / "full_8k.json"
MANY = AttentionProblem(heads=64, kv_heads=64, seq_len_q=16_384, seq_len_kv=16_384, head_dim=64)


def flash_run(sm: list[int], start: list[int], end: list[int]) -> Run:
    return dataclasses.replace(fake_runs.flash_run(), id="few", timeline=traced(sm, start, end))


def test_a_recorded_run_follows_the_rules_and_keeps_every_program_and_sample() -> None:
    runs = from_json(EXAMPLE.read_text(encoding="utf-8"))
    flash = next(run for run in runs if run.timeline is not None)
    document = checked(FORMATS["perfetto"](runs))
    assert flash.timeline is not None
    programs = [event for event in document["traceEvents"] if event.get("cat") == "program"]
    assert sorted(event["args"]["program"] for event in programs) == list(range(1024))
    # 64 Q tiles a head; a Q tile, O and LSE of 128 rows and all of K and V are asked for.
    one = next(event for event in programs if event["args"]["program"] == 64 * 3 + 5)
    asked = 2 * 128 * 256 + 4 * 128 + 2 * 8192 * 256
    assert {key: one["args"][key] for key in ("batch", "head", "q_tile", "kv_tiles", "requested_bytes")} == {
        "batch": 0,
        "head": 3,
        "q_tile": 5,
        "kv_tiles": "0 to 127",
        "requested_bytes": asked,
    }
    took = int(flash.timeline.end_ns.numpy()[197] - flash.timeline.start_ns.numpy()[197])
    assert one["dur"] == pytest.approx(took / 1000, abs=flash.timeline.timer_step_ns / 1000)
    counters = [event for event in document["traceEvents"] if event["ph"] == "C"]
    assert {event["name"] for event in counters} == {"hbm_read_bytes_per_second", "hbm_write_bytes_per_second"}
    series = [one for run in runs for one in run.series if one.name.startswith("hbm_")]
    values = sorted(value for one in series if one.source == "cupti-sampling" for value in one.values)
    assert sorted(event["args"]["B/s"] for event in counters) == pytest.approx(values)
    assert document["otherData"]["down-sampled"] == "no"


def test_each_sm_has_a_lane_and_overlapping_ctas_lanes_of_their_own() -> None:
    # SM 3 holds programs 0 and 1 at once and takes 3 when 0 is done; SM 5 holds program 2.
    run = flash_run([3, 3, 5, 3], [0, 320, 0, 960], [960, 1600, 640, 1280])
    events = checked(FORMATS["perfetto"]((fake_runs.naive_run(), run)))["traceEvents"]
    threads = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    slices = {
        event["name"]: (threads[event["tid"]], event["ts"], event["dur"]) for event in events if event["ph"] == "X"
    }
    assert slices == {
        "program 0": ("SM 3", 0.0, 0.96),
        "program 1": ("SM 3, CTA 2", 0.32, 1.28),
        "program 2": ("SM 5", 0.0, 0.64),
        "program 3": ("SM 3", 0.96, 0.32),
    }
    titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert titles == ["flash, programs of flash"]


def test_a_tick_of_overlap_is_cut_off() -> None:
    """Program 1 seems to begin one tick of 32 ns before 0 ends: 0 ends where 1 begins."""
    events = checked(FORMATS["perfetto"]((flash_run([0, 0], [0, 968], [1000, 2000]),)))["traceEvents"]
    assert [(event["ts"], event["dur"]) for event in events if event["ph"] == "X"] == [(0, 0.968), (0.968, 1.032)]


def test_hbm_is_a_process_of_its_own_with_launches_as_slices() -> None:
    """Samples of 20 µs; the launch begins 30 µs after the first one."""
    seconds, interval = (0.0, 20e-6, 40e-6, 60e-6), 20e-6
    series = tuple(
        Series(f"hbm_{name}_bytes_per_second", "B/s", "cupti-sampling", seconds, values, interval)
        for name, values in (("read", (0.0, 1e12, 2e12, 3e12)), ("write", (0.0, 4e12, 5e11, 6e11)))
    )
    run = dataclasses.replace(flash_run([0], [0], [1000]), series=series, spans=(LaunchSpan("flash", 30e-6, 70e-6),))
    events = checked(FORMATS["perfetto"]((run,)))["traceEvents"]
    names = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    assert names == {1: "flash, programs of flash", 2: "flash, HBM of another pass"}
    shown = [(event["ts"], event["args"]["B/s"]) for event in events if event["name"] == "hbm_read_bytes_per_second"]
    assert [part for pair in shown for part in pair] == pytest.approx([0, 0, 20, 1e12, 40, 2e12, 60, 3e12])
    launch = next(event for event in events if event.get("cat") == "launch")
    assert (launch["pid"], launch["name"]) == (2, "flash")
    assert (launch["ts"], launch["dur"]) == (pytest.approx(30), pytest.approx(40))


def test_a_window_merges_the_shortest_neighbours_of_a_lane() -> None:
    """With 1,000 ns: 0 and 1 lie within the first stretch, 2 lies across a border, 3 is alone, 4 is another lane's."""
    run = flash_run([0, 0, 0, 0, 1], [0, 400, 900, 1200, 0], [400, 900, 1100, 1900, 100])
    assert run.timeline is not None
    found = lanes(run.timeline)
    assert found is not None
    slices = lane_slices(run, found)
    assert slices.first_of(1000).tolist() == [0, 2, 3, 4]
    merged = next(event for event in slices.events(1, 1000) if event["ph"] == "X")
    assert (merged["name"], merged["ts"], merged["dur"]) == ("2 programs", 0, 0.9)
    assert merged["args"] == {
        "sm": 0, "wave": 0, "programs": 2, "first_program": 0, "last_program": 1, "busy_us": 0.9,
    }  # fmt: skip


def test_four_runs_of_65536_programs_stay_below_the_limit_and_lose_none() -> None:
    """Two of each head's programs in a row ask for the bytes of two."""
    work = Workload("flash", MANY, TileConfig(16, 64), "cuda:0")
    base = Run("many", "fake", "2026-11-29T12:00:01Z", work, fake_runs.H200, fake_runs.ENVIRONMENT, ())
    walk = work.attention_kernel.schedule(MANY, TileConfig(16, 64)).walk
    assert walk is not None and walk.total_programs == 65_536
    trace = scheduled(walk, 132, 400, 0.1)
    created = [f"2026-11-29T12:00:0{i}Z" for i in range(4)]
    runs = [dataclasses.replace(base, id=f"many-{at[-2]}", timeline=trace, created=at) for at in created]
    document = checked(FORMATS["perfetto"](runs))
    events = document["traceEvents"]
    assert MOST_EVENTS / 4 < len(events) <= MOST_EVENTS
    titles = [event["args"]["name"] for event in events if event["name"] == "process_name"]
    assert len(titles) == 4 and all("µs of a lane are merged" in title for title in titles)
    assert all(title.split(", ")[-1] in document["otherData"]["down-sampled"] for title in titles)
    slices = [event for event in events if event["ph"] == "X" and event["pid"] == 1]
    assert sum(event["args"].get("programs", 1) for event in slices) == 65_536
    asked = 2 * 16 * 128 + 4 * 16 + 2 * 16_384 * 128
    assert sum(event["args"]["requested_bytes"] for event in slices) == 65_536 * asked
    busy = sum(event["args"].get("busy_us", event["dur"]) for event in slices)
    assert busy == pytest.approx(float((trace.end_ns.numpy() - trace.start_ns.numpy()).sum()) / 1000)


def test_many_samples_are_averaged_and_said_so() -> None:
    count = 120_000
    seconds, values = tuple((np.arange(count) * 20e-6).tolist()), (1e12, 3e12) * (count // 2)
    series = tuple(
        Series(f"hbm_{name}_bytes_per_second", "B/s", "cupti-sampling", seconds, values, 20e-6)
        for name in ("read", "write")
    )
    run = dataclasses.replace(flash_run([0], [0], [1000]), series=series, spans=())
    document = checked(FORMATS["perfetto"]((run,)))
    shown = [event["args"]["B/s"] for event in document["traceEvents"] if event["ph"] == "C"]
    assert len(shown) == 2 * 24_000 and np.mean(shown) == pytest.approx(2e12)
    assert "means of up to 5 samples" in document["otherData"]["down-sampled"]


def test_nothing_is_invented() -> None:
    with pytest.raises(Refused, match="timeline"):
        FORMATS["perfetto"]((fake_runs.naive_run(),))


def test_the_checker_finds_what_is_wrong() -> None:
    text = FORMATS["perfetto"]((flash_run([0, 0], [0, 1000], [1000, 2000]),))
    for key, wrong in (("ph", "?"), ("ts", "0"), ("dur", -1.0), ("tid", 0.5), ("pid", 7), ("dur", 1.5)):
        document = json.loads(text)
        event = next(event for event in document["traceEvents"] if event["ph"] == "X")
        event[key] = wrong
        with pytest.raises(AssertionError):
            checked(json.dumps(document))
