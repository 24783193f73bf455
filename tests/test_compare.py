"""Two Runs compared: ratios and verdicts worked out by hand, what has no ratio and why, what differs around them."""

from dataclasses import replace

import pytest

from kernels.problem import Refused
from profiler.compare import Compared, compare
from profiler.compare_limits import Limit, check, limit
from profiler.compare_row import (
    BEYOND,
    BEYOND_ONE,
    EXACT,
    LESS,
    MISSING,
    MORE,
    ONCE,
    SAME,
    UNRELATED,
    WITHIN,
    WITHIN_ONE,
    Row,
)
from profiler.differences import Difference
from profiler.own_kernel import OWN_REFERENCE
from profiler.run import Measurement, Run
from tests.fake_runs import PROBLEM, TILE, cpu_run, flash_run, naive_run

pytestmark = pytest.mark.computes


def with_(run: Run, *found: Measurement) -> Run:
    """The Run with these Measurements and no others."""
    return replace(run, measurements=found)


def time(value: float | None, spread: tuple[float, float] | None = None, source: str = "cuda-event") -> Measurement:
    return Measurement("gpu_time_seconds", value, "s", source, "" if value is not None else "no clock", spread)


def moved(value: float, source: str = "cupti-range", name: str = "hbm_read_bytes") -> Measurement:
    return Measurement(name, value, "B", source)


def single(before: Measurement, after: Measurement) -> Row:
    (row,) = compare(with_(flash_run(), before), with_(flash_run(), after)).rows
    return row


def row_of(compared: Compared, name: str, launch: str | None = None) -> Row:
    found = compared.find(name, launch)
    assert found is not None
    return found


def test_a_whole_that_one_side_lacks_has_the_reason_of_its_halves() -> None:
    told = [Measurement(f"requested_{way}_bytes", 4e9, "B", "schedule") for way in ("read", "write")]
    untold = [Measurement(f"requested_{way}_bytes", None, "B", "interpreter", "too large") for way in ("read", "write")]
    found = row_of(compare(with_(flash_run(), *told), with_(flash_run(), *untold)), "requested_bytes")
    assert found.verdict == MISSING and found.before is not None and found.before.value == 8e9
    assert found.reason == "the second Run: too large (interpreter)"
    without = row_of(compare(with_(flash_run(), *told), with_(flash_run())), "requested_bytes")
    assert without.reason == "the second Run does not hold it"


def test_naive_against_flash() -> None:
    found = compare(naive_run(), flash_run())
    assert found.names == ("naive", "flash") and found.warnings == ()
    # 0.101 GB + 0.034 GB of 6.610 GB + 6.480 GB.
    assert row_of(found, "hbm_bytes").ratio == pytest.approx(0.135 / 13.09)
    assert row_of(found, "gpu_time_seconds").ratio == pytest.approx(1.28 / 6.40)
    assert row_of(found, "compulsory_bytes").verdict == SAME
    # Flash has one launch, so naive's softmax has none to be held against.
    softmax = row_of(found, "hbm_read_bytes", "softmax")
    assert (softmax.ratio, softmax.verdict, softmax.reason) == (None, MISSING, "the second Run does not hold it")


def test_every_measurement_of_either_has_a_row() -> None:
    one, other = naive_run(), flash_run()
    found = compare(one, other)
    held = {(m.name, m.launch, m.source) for run in (one, other) for m in run.measurements}
    shown = {
        (side.name, side.launch, side.source)
        for row in found.rows
        for side in (row.before, row.after)
        if side is not None
    }
    assert held <= shown


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        (time(1.00, (0.98, 1.02)), time(1.03, (1.01, 1.05)), WITHIN),  # 1.01 to 1.02 is in both
        (time(1.00, (0.98, 1.02)), time(1.04, (1.02, 1.06)), WITHIN),  # they touch
        (time(1.00, (0.98, 1.02)), time(1.05, (1.03, 1.07)), BEYOND),
        (time(1.05, (1.03, 1.07)), time(1.00, (0.98, 1.02)), BEYOND),
        (time(1.00, (0.98, 1.02)), time(1.01), WITHIN_ONE),
        (time(1.03), time(1.00, (0.98, 1.02)), BEYOND_ONE),
        (time(1.00), time(1.01), ONCE),
        (time(1.00), time(1.00), SAME),
        (moved(10, "schedule"), moved(11, "schedule"), EXACT),
        (moved(10, "interpreter"), moved(11, "interpreter"), EXACT),
        (moved(10, "ncu"), moved(11, "ncu"), ONCE),
    ],
)
def test_whether_a_change_is_beyond_the_spread(before: Measurement, after: Measurement, verdict: str) -> None:
    assert single(before, after).verdict == verdict


def test_what_has_no_ratio_says_why() -> None:
    spills = Measurement("spill_read_bytes", 0.0, "B", "cupti-range")
    assert (single(spills, spills).ratio, single(spills, spills).reason) == (None, "both are 0")
    some = replace(spills, value=64.0)
    assert (single(spills, some).ratio, single(spills, some).reason) == (None, "there is no ratio to 0")
    heat = Measurement("temperature_celsius", 40.0, "°C", "nvml")
    assert single(heat, replace(heat, value=80.0)).reason == "degrees Celsius have no ratio"
    lost = single(time(1.0), time(None))
    assert (lost.ratio, lost.verdict, lost.reason) == (None, MISSING, "the second Run: no clock (cuda-event)")
    neither = single(time(None), time(None))
    assert neither.reason == "the first Run: no clock (cuda-event); the second Run: no clock (cuda-event)"


def test_values_of_one_source_are_held_against_each_other_and_others_named() -> None:
    found = compare(
        with_(flash_run(), moved(100), moved(102, "cupti-sampling")),
        with_(flash_run(), moved(110, "cupti-sampling"), moved(200, "ncu")),
    )
    rows = [(row.sources, row.ratio, row.verdict) for row in found.rows]
    assert rows[0] == (("cupti-sampling",), pytest.approx(110 / 102), ONCE)
    # Each other source is on one side only, and is not held against another one.
    assert sorted(rows[1:]) == [(("cupti-range",), None, MISSING), (("ncu",), None, MISSING)]


def test_where_no_source_is_common_the_best_are_compared_and_said() -> None:
    row = single(moved(100), moved(90, "ncu"))
    assert (row.ratio, row.reason) == (0.9, "by cupti-range against ncu")
    assert row.sources == ("cupti-range", "ncu")


def test_halves_are_summed_where_a_source_tells_no_whole() -> None:
    read = Measurement("hbm_read_bytes", 100.0, "B", "cupti-range", "", (98.0, 103.0))
    written = Measurement("hbm_write_bytes", 50.0, "B", "cupti-range", "", (49.0, 51.0))
    whole = row_of(compare(with_(flash_run(), read, written), with_(flash_run(), read, written)), "hbm_bytes")
    assert whole.before is not None
    assert (whole.before.value, whole.before.spread) == (150.0, (147.0, 154.0))
    told = Measurement("hbm_bytes", 151.0, "B", "cupti-range")
    kept = [
        m.value
        for m in compare(with_(flash_run(), read, written, told), flash_run()).rows[0:1]
        for m in [m.before]
        if m
    ]
    assert kept == [100.0]  # what the source tells itself is not told again
    alone = compare(with_(flash_run(), read), with_(flash_run(), read))
    assert alone.find("hbm_bytes") is None


def test_better_and_worse() -> None:
    hits = Measurement("l2_hit_percent", 50.0, "%", "cupti-range")
    row = single(hits, replace(hits, value=40.0))
    assert (row.better, row.ratio, row.worsening) == (MORE, 0.8, 1.25)
    row = single(time(1.0), time(1.5))
    assert (row.better, row.worsening) == (LESS, 1.5)
    error = Measurement("max_abs_error", 1e-3, "1", "torch")
    assert single(error, replace(error, value=2e-3)).worsening == 2
    clock = Measurement("sm_clock_hertz", 1e9, "Hz", "nvml")
    assert single(clock, replace(clock, value=2e9)).better == ""


def test_of_two_problems_only_what_does_not_grow_with_them_has_a_ratio() -> None:
    longer = replace(PROBLEM, seq_len_q=16384, seq_len_kv=16384)
    found = compare(flash_run(), flash_run(longer, run_id="longer"))
    assert found.names == ("flash seq_len 8192", "flash seq_len 16384")
    assert found.warnings[0].startswith("Two problems: (1, 16, 8192, 128) bfloat16, full mask and (1, 16, 16384, 128)")
    assert found.differences[:2] == (
        Difference("seq_len_q", "8192", "16384"),
        Difference("seq_len_kv", "8192", "16384"),
    )
    for name in ("hbm_bytes", "gpu_time_seconds", "flops", "peak_allocated_bytes"):
        assert (row_of(found, name).ratio, row_of(found, name).verdict) == (None, UNRELATED)
    assert row_of(found, "relative_error").ratio == 1


def test_what_differs_is_listed_problem_first_and_versions_last() -> None:
    before = flash_run()
    after = replace(
        flash_run(tile=replace(TILE, BLOCK_M=64), run_id="other"),
        device=replace(before.device, name="NVIDIA A100", driver=None, l2_bytes=40 * 2**20),
        environment={**before.environment, "torch": "2.12.0", "commit": "0123456789ab"},
    )
    after = replace(after, workload=replace(after.workload, l2="warm", drain=False))
    assert compare(before, after).differences == (
        Difference("BLOCK_M", "128", "64"),
        Difference("L2 before each pass", "cold", "warm"),
        Difference("write-back drain", "yes", "no"),
        Difference("device", "NVIDIA H200 (cuda:0)", "NVIDIA A100 (cuda:0)"),
        Difference("driver", "580.159.04", "–"),
        Difference("L2", "60.0 MiB", "40.0 MiB"),
        Difference("torch", "2.11.0+cu130", "2.12.0"),
        Difference("commit", "–", "0123456789ab"),
    )
    assert compare(before, before).differences == ()
    assert compare(before, before).warnings == ("Both are the same Run.",)


def test_a_gpu_against_the_interpreter_is_said() -> None:
    found = compare(cpu_run(), flash_run())
    assert any("on a CPU" in sentence for sentence in found.warnings)
    assert row_of(found, "hbm_read_bytes").verdict == MISSING


def test_errors_against_something_else_than_attention_are_said() -> None:
    note = f"{OWN_REFERENCE}, all 8192 rows"
    error = Measurement("relative_error", 1e-3, "1", "torch", note)
    own = with_(flash_run(), error)
    own = replace(own, workload=replace(own.workload, kernel="my_module:mine", tile=None, trace=None))
    assert any("and not against attention" in sentence for sentence in compare(flash_run(), own).warnings)
    assert compare(flash_run(), flash_run()).warnings == ("Both are the same Run.",)


def test_names_tell_runs_of_one_kernel_apart() -> None:
    one = flash_run()
    assert compare(one, flash_run(tile=replace(TILE, BLOCK_N=128))).names == ("flash 128×64", "flash 128×128")
    other = replace(one, id="b", environment={"commit": "bbb"})
    assert compare(replace(one, environment={"commit": "aaa"}), other).names == ("flash aaa", "flash bbb")
    assert compare(one, replace(one, created="2026-11-29T13:00:00Z")).names == (
        "flash 11-29 12:00:01",
        "flash 11-29 13:00:00",
    )


def test_limits_pass_and_fail() -> None:
    before = with_(flash_run(), moved(100), time(1.0))
    after = with_(flash_run(), moved(105), time(1.06))
    kept, passed_by = check(compare(before, after), (Limit(1.05, ("hbm_read_bytes", "gpu_time_seconds")),))
    assert (kept.passed, passed_by.passed) == (True, False)
    assert passed_by.sentence == (
        "gpu_time_seconds went from 1 s to 1.06 s by cuda-event: 1.06 times, above the limit of 1.05; "
        "differs, measured once."
    )


@pytest.mark.parametrize(
    ("before", "after", "passed"),
    [
        (0.0, 0.0, True),
        (0.0, 32.0, False),  # spills that were not there
        (32.0, 0.0, True),
    ],
)
def test_limits_where_there_is_no_ratio_to_zero(before: float, after: float, passed: bool) -> None:
    spills = Measurement("spill_read_bytes", before, "B", "cupti-range")
    found = compare(with_(flash_run(), spills), with_(flash_run(), replace(spills, value=after)))
    assert check(found, (Limit(1.05, ("spill_read_bytes",)),))[0].passed is passed


def test_limits_turn_round_where_more_is_better() -> None:
    hits = Measurement("l2_hit_percent", 80.0, "%", "cupti-range")
    better = compare(with_(flash_run(), hits), with_(flash_run(), replace(hits, value=96.0)))
    worse = compare(with_(flash_run(), hits), with_(flash_run(), replace(hits, value=64.0)))
    one = (Limit(1.05, ("l2_hit_percent",)),)
    assert check(better, one)[0].passed and not check(worse, one)[0].passed
    assert "1.25 times worse" in check(worse, one)[0].sentence


def test_what_cannot_be_told_does_not_pass() -> None:
    lost = compare(with_(flash_run(), time(1.0)), with_(flash_run(), time(None)))
    (one,) = check(lost, (Limit(9.0, ("gpu_time_seconds",)),))
    assert not one.passed
    assert one.sentence == "gpu_time_seconds cannot be held against 9: the second Run: no clock (cuda-event)."
    longer = replace(PROBLEM, seq_len_q=16384, seq_len_kv=16384)
    other = compare(flash_run(), flash_run(longer))
    (one,) = check(other, (Limit(9.0, ("hbm_read_bytes",)),))
    assert not one.passed and "the problems differ" in one.sentence


def test_a_limit_on_one_launch_and_on_the_most_trusted_source() -> None:
    found = compare(naive_run(), naive_run())
    (one,) = check(found, (Limit(1.0, ("hbm_read_bytes:softmax",)),))
    assert one.passed and one.name == "hbm_read_bytes:softmax"
    before = with_(flash_run(), moved(100), moved(100, "nvml-gpm"))
    after = with_(flash_run(), moved(100), moved(300, "nvml-gpm"))
    assert check(compare(before, after), (Limit(1.0, ("hbm_read_bytes",)),))[0].passed


@pytest.mark.parametrize(
    ("ratio", "names", "words"),
    [
        ("x", ["a"], "give a ratio"),
        ("nan", ["a"], "give a ratio"),
        ("inf", ["a"], "give a ratio"),
        ("0", ["a"], "give a ratio"),
        ("-1", ["a"], "give a ratio"),
        ("1.05", [], "names no measurement"),
        ("1.05", ["a"] * 101, "100 are the most"),
    ],
)
def test_limits_that_make_no_sense_are_refused(ratio: str, names: list[str], words: str) -> None:
    with pytest.raises(Refused, match=words):
        limit(ratio, names)


def test_a_name_that_no_run_holds_is_refused_with_those_near_it() -> None:
    with pytest.raises(Refused, match="Neither Run holds 'hbm_reed_bytes'; near it are hbm_read_bytes"):
        check(compare(flash_run(), flash_run()), (Limit(1.05, ("hbm_reed_bytes",)),))
