"""Measured timelines as lanes: figures worked out by hand, and what is drawn of them."""

import dataclasses

import numpy as np
import pytest

from app.lane_shades import by_head, by_time, by_wave, ramp
from app.lanes import Lanes, lanes
from app.program_work import Work, requested, walk_of
from app.style import DARK, LIGHT
from app.timeline_chart import MOST_BARS, TIME_BINS, story, timeline
from profiler.codec import PackedArray
from profiler.run import ProgramTrace
from tests import fake_runs
from tests.fake_timelines import traced


def found(sm: list[int], start: list[int], end: list[int]) -> Lanes:
    shown = lanes(traced(sm, start, end))
    assert shown is not None
    return shown


# SM 0 runs program 0 and then 2, SM 1 runs program 1.
THREE = ([0, 1, 0], [0, 0, 200_000], [200_000, 300_000, 400_000])


def test_timeline_counts_waves_and_finds_a_program() -> None:
    """1,024 programs dealt to 132 SMs one at a time: 8 waves, program 500 is the fourth on SM 500 − 3 · 132."""
    shown = lanes(fake_runs.timeline(1024, sms=132, program_ns=160_000))
    assert shown is not None
    assert (shown.at_once, shown.waves, shown.longest_queue, shown.sms, shown.slots) == (132, 8, 8, 132, 1)
    assert "ran on SM 104 from 480 µs to 640 µs, 3 programs before it in its lane" in story(shown, 500)


def test_programs_that_share_an_sm_get_slots() -> None:
    shown = found([0, 0, 0, 0], [0, 0, 100, 150], [100, 150, 200, 300])
    assert shown.slot.tolist() == [0, 1, 0, 1] and shown.wave.tolist() == [0, 0, 1, 1]
    assert (shown.at_once, shown.waves, shown.lane.tolist()) == (2, 2, [0, 1, 0, 1])


def test_tail_imbalance_and_busiest_lane_by_hand() -> None:
    """Lanes end at 400 and 300 µs of 400: 100 of 800 lane-µs are idle at the end.

    Programs took 200, 300 and 200 µs: 300 / 200. Lanes were busy for 400 and 300 µs: 400 / 350.
    """
    shown = found(*THREE)
    assert shown.tail_idle == pytest.approx(100 / 800)
    assert shown.imbalance == pytest.approx(1.5)
    assert shown.busiest == pytest.approx(400 / 350)


def test_time_before_a_lanes_last_program_is_no_tail() -> None:
    """SM 1 waits from 100 to 300 and then runs to the end."""
    assert found([0, 1, 1], [0, 0, 300], [400, 100, 400]).tail_idle == 0


def test_a_clock_that_saw_no_time_pass_gives_no_ratio() -> None:
    shown = found([0, 1], [0, 0], [0, 0])
    assert (shown.tail_idle, shown.imbalance, shown.busiest) == (0.0, None, None)


def test_broken_timelines_are_left_out() -> None:
    few, many = PackedArray.pack(np.zeros(2, np.int64)), PackedArray.pack(np.zeros(3, np.int64))
    assert lanes(ProgramTrace("flash", few, many, many, 32)) is None
    damaged = PackedArray((2,), "int64", "AAAA")
    assert lanes(ProgramTrace("flash", damaged, few, few, 32)) is None


def test_few_programs_are_a_path_for_each_shade_and_can_be_clicked() -> None:
    """Of 160 moments over 400 µs, SM 0 runs program 0 at the first 80 and 2 at the others, SM 1 runs 1 at 120."""
    first, second, third, targets, chosen = timeline(found(*THREE), 1, LIGHT).data
    nan = np.nan
    np.testing.assert_array_equal(first.x, [0, 200, 200, 0, nan, 0, 300, 300, 0, nan])
    np.testing.assert_array_equal(first.y, [-0.5, -0.5, 0.5, 0.5, nan, 0.5, 0.5, 1.5, 1.5, nan])
    np.testing.assert_array_equal(second.x, [200, 400, 400, 200, nan])
    np.testing.assert_array_equal(second.y, [-0.5, -0.5, 0.5, 0.5, nan])
    assert len(third.x) == 0
    assert np.bincount(targets.customdata[:, 0]).tolist() == [80, 120, 80]
    at = np.flatnonzero(targets.customdata[:, 0] == 2)[0]
    assert (targets.x[at], targets.y[at], targets.customdata[at].tolist()) == (201.25, 0.0, [2, 1, 0])
    assert (targets.marker.maxdisplayed, targets.marker.color) == (1, "rgba(0,0,0,0)")
    assert chosen.zorder > 0, "bars lie below paths otherwise"
    assert (list(chosen.base), list(chosen.x), list(chosen.y), chosen.width) == ([0], [300], [1.0], 1.0)


def test_a_program_between_two_moments_can_be_clicked() -> None:
    *_, targets = timeline(found([0, 0], [0, 400_000], [399_000, 400_100]), 9, LIGHT).data
    assert targets.customdata[-1].tolist() == [1, 1, 0]
    assert targets.x[-1] == pytest.approx(400.05)


def test_a_page_of_many_programs_is_few_nodes_for_a_browser() -> None:
    """Points and bars are nodes of a page, paths and maps of any size are one."""
    shown = lanes(fake_runs.timeline(MOST_BARS, sms=132, program_ns=50_000))
    assert shown is not None
    assert [trace.type for trace in timeline(shown, 0, LIGHT).data] == ["scatter"] * 4 + ["bar"]
    assert len(timeline(shown, 0, LIGHT).to_json()) < 1_500_000


def test_many_programs_are_drawn_by_how_long_they_took() -> None:
    """20,000 programs on 132 SMs, of which number 9,000 took 5 times as long as the others."""
    trace = fake_runs.timeline(MOST_BARS * 5, sms=132, program_ns=50_000)
    start, end = trace.start_ns.numpy().copy(), trace.end_ns.numpy().copy()
    lane = np.arange(9000 % 132, len(start), 132)
    later = lane[lane > 9000]
    start[later] += 200_000
    end[[9000, *later]] += 200_000
    shown = found(trace.sm.numpy().tolist(), start.tolist(), end.tolist())
    drawn, _, chosen = timeline(shown, 9000, LIGHT).data
    assert drawn.type == "heatmap" and drawn.z.shape == (132, TIME_BINS)
    at = int((start[9000] + 100_000) / shown.stretch(TIME_BINS))
    assert (drawn.z[9000 % 132, at], drawn.z[0, at]) == (4, 0)
    # The last of 152 waves has 68 programs, so SM 69 is idle during the last stretch and SM 24 ends last.
    assert (drawn.z[69, -1], drawn.z[24, -1]) == (-1, 0)
    assert list(chosen.base) == [pytest.approx(9000 // 132 * 0.05)]
    assert len(timeline(shown, 0, LIGHT).to_json()) < 1_500_000


def test_programs_that_share_an_sm_are_drawn_in_lanes_of_their_own() -> None:
    """Of 400 moments over 400 µs, a runs at the first 100, b all the time, c from 200 on; shaded 0 and 4 by time."""
    ends = [400_000] * MOST_BARS
    shown = found([0] * (MOST_BARS + 3), [0, 0, 200_000, *ends], [100_000, 400_000, 400_000, *ends])
    first, second = timeline(shown, 0, LIGHT).data[0].z
    # In steps of a fifth of 400 µs: 100 µs is the second, 200 µs the third.
    assert shown.slots == 2
    assert (first[:100] == 1).all() and (first[100:200] == -1).all() and (first[200:] == 2).all()
    assert (second == 4).all()


def test_65536_programs_in_4224_lanes_are_sent_in_little() -> None:
    """32 programs on each of 132 SMs at once, 16 one after another in a lane."""
    program = np.arange(65_536)
    sm, start = program % 132, program // 4224 * 1000
    shown = lanes(traced(sm, start, start + 960))
    assert shown is not None and (shown.slots, shown.at_once) == (32, 4224)
    drawn, targets, _ = timeline(shown, 0, LIGHT).data
    assert drawn.z.shape == (4224, 118) and 0 < len(targets.x) <= 40_000
    assert len(timeline(shown, 0, LIGHT).to_json()) < 2_000_000


def test_shades_tell_waves_heads_and_times_apart() -> None:
    """1,024 programs of 16 heads, 64 a head: heads take turns in five shades."""
    run = fake_runs.flash_run()
    assert run.timeline is not None
    shown = lanes(run.timeline)
    assert shown is not None
    walk = walk_of(run, shown)
    assert by_wave(shown, walk).shade[[0, 131, 132, 264, 396]].tolist() == [0, 0, 1, 2, 0]
    assert by_head(shown, walk).shade[[0, 63, 64, 128, 192, 256, 320]].tolist() == [0, 0, 2, 4, 1, 3, 0]
    assert by_head(shown, None).count == 1
    assert by_time(found([0, 0, 0], [0, 10, 30], [10, 30, 130]), None).shade.tolist() == [0, 0, 4]


def test_shades_lead_away_from_the_background() -> None:
    assert ramp(LIGHT, 3) == ["#B8D7D6", "#3F9A95", "#073F3C"]
    assert ramp(DARK, 3) == ["#2E7072", "#2BA39B", "#D6F5F1"]
    assert ramp(LIGHT, 1) == ["#B8D7D6"]


def test_the_work_of_a_program_by_hand() -> None:
    """(1, 16, 8192, 128) bf16 in 128 × 64: Q tile and O are 32 KiB each, LSE 512 B, K and V 2 MiB each."""
    run = fake_runs.flash_run()
    assert run.timeline is not None
    shown = lanes(run.timeline)
    assert shown is not None
    walk = walk_of(run, shown)
    assert walk is not None
    asked = 2 * 128 * 256 + 4 * 128 + 2 * 8192 * 256
    assert Work.of(walk, 64 * 3 + 5) == Work(0, 3, (5, 5), (0, 127), 128, asked)
    assert (requested(walk) == asked).all() and len(requested(walk)) == 64
    assert walk_of(run, found(*THREE)) is None, "a timeline of other programs than the schedule's"
    assert walk_of(dataclasses.replace(run, timeline=None), shown) is not None


def test_a_clock_too_coarse_to_see_programs_run_still_gives_waves() -> None:
    """Three programs that start and end at the same tick, one after another on one SM."""
    ticks = np.array([0, 32, 64])
    packed = PackedArray.pack(ticks)
    trace = ProgramTrace("flash", PackedArray.pack(np.zeros(3, dtype=np.int32)), packed, packed, 32)
    found = lanes(trace)
    assert found is not None and (found.at_once, found.waves) == (1, 3)
