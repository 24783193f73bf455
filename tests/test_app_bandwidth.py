"""Bandwidth over time: sums over all samples, bins that keep them, one time axis, and what is not drawn as fact."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.bandwidth import MOST_ROWS, TITLE, bandwidth_over_time
from app.bandwidth_sums import under_the_curve
from app.picture import Picture, Table
from app.report_html import html
from app.resample import resample
from app.sampled import MOST_BINS, Sampled, drawn, sampled
from app.selection import compare
from app.style import DARK, LIGHT, Theme
from profiler.run import LaunchSpan, Measurement, Run, Series
from profiler.run_document import from_json, to_json
from tests import fake_runs

NAMES = ("hbm_read_bytes_per_second", "hbm_write_bytes_per_second", "l2_sm_bytes_per_second")
PEAK = 4.814e12


def run_of(
    read: Sequence[float],
    write: Sequence[float],
    l2_sm: Sequence[float] | None = None,
    *,
    seconds: Sequence[float] | None = None,
    interval: float | None = 20e-6,
    spans: tuple[LaunchSpan, ...] = (),
    run_id: str = "by-hand",
) -> Run:
    """Flash on an H200 with samples in TB/s, one after the other unless `seconds` says when."""
    times = tuple(seconds) if seconds is not None else tuple(20e-6 * index for index in range(len(read)))
    series = tuple(
        Series(name, "B/s", "cupti-sampling", times, tuple(value * 1e12 for value in values), interval)
        for name, values in zip(NAMES, (read, write, l2_sm), strict=True)
        if values is not None
    )
    return replace(fake_runs.flash_run(run_id=run_id), series=series, spans=spans)


def found_in(run: Run) -> Sampled:
    found = sampled(run)
    assert isinstance(found, Sampled), found
    return found


def picture_of(*runs: Run, theme: Theme = LIGHT) -> Picture:
    picture = bandwidth_over_time(compare(runs), theme)
    assert isinstance(picture, Picture)
    return picture


def trace(chart: go.Figure, name: str) -> go.Scatter:
    return next(trace for trace in chart.data if trace.name == name)


def area(one: go.Scatter) -> float:
    """Σ height × width below a drawn outline: TB/s × ms = GB."""
    x, y = np.asarray(one.x, np.float64), np.nan_to_num(np.asarray(one.y, np.float64))
    return float((np.diff(x) * y[:-1]).sum())


def test_bins_hold_means_with_the_highest_beside_them() -> None:
    """Five samples in two bins: 3 in the first, the 2 that remain in the second."""
    values = np.array([1.0, 3.0, 5.0, 7.0, 10.0])
    bins = resample(np.arange(5.0), 1.0, most=2)
    assert bins.mean(values).tolist() == [3.0, 8.5]
    assert bins.highest(values).tolist() == [5.0, 10.0]
    assert (bins.start.tolist(), bins.end.tolist(), bins.size.tolist()) == ([0.0, 3.0], [3.0, 5.0], [3, 2])
    x, y, index = bins.outline(bins.mean(values))
    assert (x.tolist(), index.tolist()) == ([0.0, 3.0, 5.0, 5.0], [0, 1, 1, 1])
    assert y[:3].tolist() == [3.0, 8.5, 8.5] and np.isnan(y[3])


def test_no_bin_and_no_line_goes_over_missing_samples() -> None:
    """After the third sample two are missing: 0 1 2 · · 5 6 in pairs is {0 1} {2} {5 6}."""
    bins = resample(np.array([0.0, 1, 2, 5, 6]), 1.0, most=3)
    assert (bins.size.tolist(), bins.start.tolist(), bins.end.tolist()) == ([2, 1, 2], [0, 2, 5], [2, 3, 7])
    x, y, _ = bins.outline(np.array([4.0, 6.0, 8.0]))
    assert x.tolist() == [0, 2, 3, 3, 5, 7, 7]
    assert np.isnan(y).tolist() == [False, False, False, True, False, False, True]
    x, y, _ = bins.outline(np.array([4.0, np.nan, 8.0]))
    assert x[:3].tolist() == [0, 2, 2] and np.isnan(y[2]), "a height that is not known ends the line before it"


@given(
    st.lists(st.floats(0, 1e13), min_size=1, max_size=400),
    st.integers(1, 50),
    st.sets(st.integers(1, 399), max_size=5),
)
def test_bins_keep_the_area_and_the_highest_sample(values: list[float], most: int, late: set[int]) -> None:
    gaps = [index for index in late if index < len(values)]
    seconds = 20e-6 * (np.arange(len(values)) + sum((np.arange(len(values)) >= gap) * 3 for gap in gaps))
    sample = np.array(values)
    bins = resample(seconds, 20e-6, most)
    assert len(bins.size) <= most + len(gaps)
    assert bins.size.sum() == len(values)
    assert (bins.mean(sample) * bins.size).sum() == pytest.approx(sample.sum(), rel=1e-12)
    assert (bins.mean(sample) * (bins.end - bins.start)).sum() == pytest.approx(sample.sum() * 20e-6, rel=1e-9)
    assert bins.highest(sample).max() == sample.max()


def test_bytes_between_two_times_take_their_share_of_a_sample() -> None:
    """1, 2, 3 TB/s over 20 µs each; from the middle of the first to a quarter into the third: 10 + 40 + 15 MB."""
    found = found_in(run_of([1, 2, 3], [0, 0, 0], spans=(LaunchSpan("flash", 0.0, 60e-6),)))
    assert found.between(found.read, 10e-6, 45e-6) == pytest.approx(10e6 + 40e6 + 15e6)
    assert found.total(found.read) == pytest.approx(120e6)


def test_sums_stand_beside_the_counted_bytes() -> None:
    """Naive: 6.610 GB read by the launches, 0.126 by the drain; 6.394 + 0.086 GB written, counted 6.48."""
    table = under_the_curve(compare([fake_runs.sampled_naive_run(), fake_runs.sampled_flash_run()]))
    assert table is not None
    assert table.rows == (
        ("naive", "HBM, read", "6.74 GB", "126 MB", "6.61 GB", "6.61 GB", "<0.1%"),
        ("naive", "HBM, written", "6.48 GB", "86.0 MB", "6.48 GB", "6.48 GB", "<0.1%"),
        ("naive", "L2↔SM", "15.6 GB", "126 MB", "15.5 GB", "15.5 GB", "<0.1%"),
        ("flash", "HBM, read", "227 MB", "126 MB", "101 MB", "101 MB", "<0.1%"),
        ("flash", "HBM, written", "34.0 MB", "28.0 MB", "34.0 MB", "34.0 MB", "<0.1%"),
        ("flash", "L2↔SM", "2.86 GB", "126 MB", "2.73 GB", "2.73 GB", "<0.1%"),
    )
    assert table.sources[0] == ("", "", "cupti-sampling", "", "", "cupti-range", "")


def test_a_difference_is_told_in_percent_and_a_missing_number_is_a_dash() -> None:
    """0.2 GB sampled against 0.101 GB counted: +98.0%; nothing else counted L2↔SM, and the Run has no drain."""
    run = run_of([5.0, 5.0], [0.85, 0.85])
    counted = tuple(m for m in run.measurements if m.name in ("hbm_read_bytes", "hbm_write_bytes"))
    without = replace(run, measurements=counted, workload=replace(run.workload, drain=False))
    table = under_the_curve(compare([without]))
    assert table is not None
    assert table.rows[0][2:] == ("200 MB ⚠", "–", "200 MB ⚠", "101 MB", "+98.0%")
    assert table.rows[1][2:] == ("34.0 MB ⚠", "–", "34.0 MB ⚠", "34.0 MB", "<0.1%")
    assert table.rows[2][2:] == ("–", "–", "–", "–", "–")
    assert table.reasons[0][3] == "This Run was made without a drain."
    assert table.reasons[2][2:5] == ("L2↔SM was not sampled.",) * 3
    assert table.reasons[2][5].startswith("Not counted. Open a Run with the same settings, counted by cupti-range")
    assert under_the_curve(compare([fake_runs.naive_run()])) is None


def test_a_drain_that_is_not_marked_is_not_taken_for_the_pass() -> None:
    """Where clocks could not be matched no span is known: what the drain read cannot be told from the pass."""
    run = fake_runs.sampled_flash_run()
    table = under_the_curve(compare([replace(run, spans=())]))
    assert table is not None
    assert table.rows[0][2:] == ("227 MB", "–", "–", "101 MB", "–")
    assert table.rows[1][2:] == ("34.0 MB", "–", "34.0 MB", "34.0 MB", "<0.1%"), "what it wrote is the pass's"
    assert all(table.reasons[0][i].startswith("The drain is not marked") for i in (3, 4, 6))


def test_bytes_counted_in_a_run_that_differs_in_counters_alone_stand_beside_the_samples() -> None:
    """Who forces the sampler gets no other counter in that Run; a warm L2 would be another thing to measure."""
    run = fake_runs.sampled_flash_run()
    forced = replace(run, measurements=(), workload=replace(run.workload, counters="cupti-sampling"))
    alone = under_the_curve(compare([forced]))
    beside = under_the_curve(compare([forced, fake_runs.flash_run()]))
    warm = replace(fake_runs.flash_run(), workload=replace(run.workload, l2="warm"))
    unlike = under_the_curve(compare([forced, warm]))
    assert alone is not None and beside is not None and unlike is not None
    assert [table.rows[0][5:] for table in (alone, beside, unlike)] == [("–", "–"), ("101 MB", "<0.1%"), ("–", "–")]


def test_a_sample_that_ends_after_the_pass_is_the_passs() -> None:
    """30 µs at 1 TB/s from 10 µs on fall into two samples of 20 µs: 10 and 20 MB, all of one pass of 30 µs."""
    run = run_of([0.5, 1.0, 0.0], [0.0] * 3, spans=(LaunchSpan("flash", 10e-6, 40e-6),))
    assert picture_of(run).caption.startswith(
        "On average flash moves 1.00 TB/s through HBM for 30.0 µs, 21% of the peak."
    )


def test_caption_begins_with_what_each_pass_needs() -> None:
    """(6.610 + 6.394) GB / 6.4 ms = 2.03 TB/s, 42% of 4.814; (0.101 + 0.006) GB / 1.28 ms = 0.0836 TB/s, 1.7%."""
    caption = picture_of(fake_runs.sampled_naive_run(), fake_runs.sampled_flash_run()).caption
    assert caption.startswith(
        "On average naive moves 2.03 TB/s through HBM for 6.40 ms, 42% of the peak; flash 0.0836 TB/s for 1.28 ms, "
        "2% of the peak. Read and written on top of each other, means over 20 µs, of the whole GPU."
    )


def test_drawn_areas_are_the_bytes() -> None:
    """All samples at work lie in the window: 6.736 GB read, 6.736 + 6.480 in all; TB/s × ms is GB."""
    chart = picture_of(fake_runs.sampled_naive_run()).chart
    assert area(trace(chart, "naive, read")) == pytest.approx(6.610 + fake_runs.DRAIN_READ, rel=1e-5)
    assert area(trace(chart, "naive, read and write")) == pytest.approx(13.090 + fake_runs.DRAIN_READ, rel=1e-5)
    assert area(trace(chart, "naive, L2↔SM")) == pytest.approx(15.5 + fake_runs.DRAIN_READ, rel=1e-5)


def test_time_begins_at_the_first_launch_of_each_run() -> None:
    """Naive's first launch begins 0.4 ms after the first sample, the other's after 40 µs; both are at 0 ms."""
    early = run_of([0, 0, 1, 1, 0], [0] * 5, spans=(LaunchSpan("flash", 40e-6, 80e-6),))
    chart = picture_of(fake_runs.sampled_naive_run(), early).chart
    strips = [one for one in chart.data if one.name == "launches"]
    assert [list(one.text) for one in strips] == [["QKᵀ", "scale", "softmax", "PV"], ["flash"]]
    assert strips[0].base == pytest.approx([0.0, 0.65, 1.62, 5.72]) and strips[1].base == pytest.approx([0.0])
    assert strips[0].x == pytest.approx([0.65, 0.97, 4.1, 0.68]) and strips[1].x == pytest.approx([0.04])
    read = trace(chart, "flash, read")
    assert np.asarray(read.x)[np.flatnonzero(np.asarray(read.y))[0]] == pytest.approx(0.0, abs=1e-6)
    assert chart.layout.xaxis.title.text == "ms after the first launch"


def test_the_drain_is_hatched_and_not_one_of_the_launches() -> None:
    run = fake_runs.sampled_naive_run()
    drain = trace(picture_of(run).chart, "drain")
    assert (list(drain.text), drain.marker.pattern.shape) == (["drain"], "/")
    assert drain.base == pytest.approx([6.9]) and drain.x == pytest.approx([0.06])
    assert found_in(run).one_pass == pytest.approx((0.0, 6.4e-3))


def test_a_run_without_marked_launches_begins_with_its_first_work() -> None:
    """Noise of 1% of the highest sample is no work."""
    picture = picture_of(run_of([0.01, 0.01, 1.0, 0.5, 0.0], [0.0] * 5))
    read = trace(picture.chart, "flash, read")
    assert (read.x[0], read.y[0]) == (pytest.approx(-0.02), pytest.approx(0.01))
    assert (read.x[1], read.y[1]) == (pytest.approx(0.0, abs=1e-7), pytest.approx(1.0))
    assert "Launches of flash are not marked" in picture.caption and "On average" not in picture.caption
    assert not [one for one in picture.chart.data if one.name == "launches"]


def notes(chart: go.Figure, start: str) -> list[str]:
    """The texts in the figure that begin so, without their markup."""
    texts = [re.sub("<[^>]*>", "", note.text.replace("<br>", " ")) for note in chart.layout.annotations]
    return [text for text in texts if text.startswith(start)]


def test_busy_rows_share_one_scale_and_name_the_peak_with_its_source_once() -> None:
    """Naive, and flash at 0.6 TB/s: above a tenth of 1.22 × 4.814 = 5.873 TB/s."""
    chart = picture_of(fake_runs.sampled_naive_run(), run_of([0.6], [0], spans=(LaunchSpan("flash", 0, 20e-6),))).chart
    assert chart.layout.yaxis2.range == chart.layout.yaxis4.range == (0, pytest.approx(1.22 * 4.814))
    assert notes(chart, "peak") == ["peak 4.81 TB/s (NVML: 2 × 3201 MHz × 6016 bit)"]
    assert notes(chart, "flash") == ["flash  HBM, TB/s"]
    lines = [(shape.yref, shape.y0) for shape in chart.layout.shapes if shape.type == "line"]
    assert lines == [("y2", pytest.approx(4.814)), ("y4", pytest.approx(4.814))]
    assert "magnified" not in picture_of(fake_runs.sampled_naive_run()).caption


def low_run(drain: float = 4.0, launch: float = 0.2) -> Run:
    """A launch of two samples, 0.1 TB/s and `launch`, a pause, and a drain of two, half of `drain` and all of it."""
    spans = (LaunchSpan("flash", 0.0, 40e-6), LaunchSpan("drain", 60e-6, 100e-6))
    return run_of([0.1, launch, 0, drain / 2, drain], [0] * 5, spans=spans)


def test_a_low_run_has_a_scale_of_its_own_that_says_so() -> None:
    """Highest 0.2 TB/s: its panel ends at 260 GB/s, 5.873 / 0.26 = 22.6 times below; the peak is 18.5 times that."""
    picture = picture_of(fake_runs.sampled_naive_run(), low_run())
    chart = picture.chart
    assert chart.layout.yaxis2.range == (0, pytest.approx(1.22 * 4.814))
    assert chart.layout.yaxis4.range == (0, pytest.approx(260.0))
    assert max(trace(chart, "flash, read").y[:2]) == pytest.approx(200.0)
    assert notes(chart, "flash") == ["flash  HBM, GB/s, magnified 23×"]
    named = "peak 4.81 TB/s (NVML: 2 × 3201 MHz × 6016 bit)"
    assert notes(chart, "peak") == [named, "peak 4.81 TB/s, 19× this scale"]
    assert [shape.yref for shape in chart.layout.shapes if shape.type == "line"] == ["y2"]
    assert "A magnified panel has a scale of its own; a drain that is higher is cut off there (△)." in picture.caption
    alone = notes(picture_of(low_run()).chart, "peak")
    assert alone == ["peak 4.81 TB/s, 19× this scale (NVML: 2 × 3201 MHz × 6016 bit)"]


def test_a_drain_beyond_the_own_scale_is_cut_off_and_marked_with_its_highest_sample() -> None:
    """Its second sample, from 80 to 100 µs; 0.25 TB/s would fit below 0.26. The note on the peak keeps left of it."""
    chart = picture_of(low_run()).chart
    mark = trace(chart, "flash, cut off")
    assert list(mark.x) == [pytest.approx(0.09)] and mark.y[0] < 260.0
    assert list(mark.hovertext) == ["cut off, up to 4.00 TB/s"]
    assert [note.x for note in chart.layout.annotations if note.text.startswith("peak")] == [pytest.approx(0.06)]
    assert area(trace(chart, "flash, read")) == pytest.approx(1e3 * 0.02 * (0.1 + 0.2 + 2 + 4)), "drawn, but outside"
    names = [one.name for one in picture_of(low_run(drain=0.25)).chart.data]
    assert "flash, cut off" not in names and "drain" in names


def test_what_a_sample_shares_with_the_drain_sets_no_scale() -> None:
    """The drain begins within the second sample, of 3 TB/s; the first, of 0.2, is all that is the launch's alone."""
    spans = (LaunchSpan("flash", 0.0, 30e-6), LaunchSpan("drain", 30e-6, 60e-6))
    assert picture_of(run_of([0.2, 3, 3], [0] * 3, spans=spans)).chart.layout.yaxis2.range[1] == pytest.approx(260.0)


def test_a_low_run_of_a_slow_memory_keeps_the_line_of_its_peak() -> None:
    """300 GB/s of 320: low beside an H200, and its own scale of 390 GB/s holds its peak."""
    run = run_of([0.3], [0], spans=(LaunchSpan("flash", 0.0, 20e-6),))
    slow = replace(run, device=replace(run.device, peak_hbm_bytes_per_second=320e9, peak_hbm_source=""))
    chart = picture_of(fake_runs.sampled_naive_run(), slow).chart
    lines = [(shape.yref, shape.y0) for shape in chart.layout.shapes if shape.type == "line"]
    assert lines[1] == ("y4", pytest.approx(320.0)) and chart.layout.yaxis4.range[1] == pytest.approx(390.0)
    assert notes(chart, "peak")[1] == "peak 320 GB/s"


def test_a_sample_above_the_peak_is_marked_on_a_magnified_panel_too() -> None:
    """9 TB/s in the launch cannot be true, so 0.1 TB/s is its highest; 9 in the drain is no height to tell."""
    for run in (low_run(launch=9), low_run(drain=9)):
        picture = picture_of(run)
        mark = trace(picture.chart, "flash, above the peak")
        assert list(mark.hovertext) == ["9.00 TB/s sampled"]
        assert list(mark.y) == [picture.chart.layout.yaxis2.range[1]]
        assert "1 of 5 samples of flash are above the peak, up to 9.00 TB/s" in picture.caption
    assert picture_of(low_run(launch=9)).chart.layout.yaxis2.range[1] == pytest.approx(130.0)
    assert list(trace(picture_of(low_run(drain=9)).chart, "flash, cut off").hovertext) == ["cut off, up to 4.50 TB/s"]


def test_a_sample_above_the_peak_is_marked_and_not_drawn() -> None:
    """3 + 3 TB/s on a memory of 4.81: neither half is drawn, a triangle stands at the peak instead."""
    picture = picture_of(run_of([1, 3, 1], [1, 3, 1], spans=(LaunchSpan("flash", 0.0, 60e-6),)))
    both, read = trace(picture.chart, "flash, read and write"), trace(picture.chart, "flash, read")
    assert max(both.y) == pytest.approx(2.0) and max(read.y) == pytest.approx(1.0)
    assert area(both) == pytest.approx(2 * 0.02 + 2 * 0.02)
    mark = trace(picture.chart, "flash, above the peak")
    assert (list(mark.x), list(mark.y)) == ([pytest.approx(0.03)], [pytest.approx(4.814)])
    assert list(mark.hovertext) == ["6.00 TB/s sampled"]
    assert "1 of 3 samples of flash are above the peak, up to 6.00 TB/s: marked ▲ and not drawn" in picture.caption
    assert not [one for one in picture_of(run_of([1], [1])).chart.data if one.name == "flash, above the peak"]


def test_an_average_above_the_peak_is_not_told() -> None:
    caption = picture_of(run_of([3, 3], [3, 3], spans=(LaunchSpan("flash", 0.0, 40e-6),))).caption
    assert "On average" not in caption and "2 of 2 samples of flash are above the peak" in caption
    assert caption.startswith("The average of flash would be above the peak, so it is not told.")


def test_without_a_peak_nothing_is_flagged_and_the_caption_says_why() -> None:
    run = run_of([3, 3], [3, 3], spans=(LaunchSpan("flash", 0.0, 40e-6),))
    picture = picture_of(replace(run, device=replace(run.device, peak_hbm_bytes_per_second=None)))
    assert "The peak of flash is not known." in picture.caption
    assert picture.caption.startswith("On average flash moves 6.00 TB/s through HBM for 40.0 µs. ")
    assert not picture.chart.layout.shapes


def long_run(run_id: str, samples: int = 100_000) -> Run:
    """Idle but for one launch at 1 TB/s read and 0.5 written, with a single sample of 4 TB/s in it."""
    read = np.zeros(samples)
    read[100:-100] = 1.0
    read[samples // 2] = 4.0
    write = np.where(read > 0, 0.5, 0.0)
    spans = (LaunchSpan("flash", 100 * 20e-6, (samples - 100) * 20e-6),)
    return run_of(read.tolist(), write.tolist(), (2 * read).tolist(), spans=spans, run_id=run_id)


def test_long_runs_are_thinned_for_drawing_and_never_for_summing() -> None:
    """99,800 samples at work, 67 to a bin: (99,799 × 1 + 4) TB/s × 20 µs = 1,996.06 GB read; the peak of 4.5 shows."""
    run = long_run("long")
    part = drawn(found_in(run))
    assert len(part.bins.size) <= MOST_BINS and part.bins.size.max() == 67
    assert part.highest.max() == pytest.approx(4.5e12)
    picture = picture_of(run)
    assert area(trace(picture.chart, "flash, read")) == pytest.approx(1996.06, rel=1e-5)
    assert max(trace(picture.chart, "flash, highest").y) == pytest.approx(4.5)
    assert max(trace(picture.chart, "flash, read and write").y) == pytest.approx(1.5 + 3 / 67)
    assert "Drawn: means of up to 67 samples" in picture.caption
    table = under_the_curve(compare([run]))
    assert table is not None and table.rows[0][2] == "2.00 TB"
    assert found_in(run).total(found_in(run).read) == pytest.approx(1996.06e9, rel=1e-12)


def test_the_highest_sample_is_never_drawn_above_the_peak() -> None:
    """One sample of 9 TB/s among 67 of 1.5: the bin's mean is possible, its highest is cut and marked."""
    run = long_run("long")
    read = run.series[0]
    values = list(read.values)
    values[50_000] = 9e12
    chart = picture_of(replace(run, series=(replace(read, values=tuple(values)), *run.series[1:]))).chart
    assert max(trace(chart, "flash, highest").y) == pytest.approx(4.814)
    assert list(trace(chart, "flash, above the peak").hovertext) == ["9.50 TB/s sampled"]
    assert max(trace(chart, "flash, read and write").y) == pytest.approx(1.5 + 8 / 67)


def test_two_long_runs_make_a_small_figure() -> None:
    runs = (long_run("one"), replace(long_run("two"), created="2026-11-29T12:00:09Z"))
    assert len(picture_of(*runs).chart.to_json()) < 2e6


def test_missing_samples_are_left_blank() -> None:
    """Samples 0 1 · · 4 5: between 40 and 80 µs nothing is drawn."""
    times = [index * 20e-6 for index in (0, 1, 4, 5)]
    picture = picture_of(run_of([1] * 4, [0] * 4, [1] * 4, seconds=times, spans=(LaunchSpan("flash", 0.0, 120e-6),)))
    read, l2_sm = trace(picture.chart, "flash, read"), trace(picture.chart, "flash, L2↔SM")
    assert area(read) == pytest.approx(4 * 0.02)
    assert not np.isnan(read.y).any(), "Plotly fills an area across NaN"
    assert np.isnan(l2_sm.y).sum() == 2, "but a line stops there"
    assert "2 samples of flash are missing: left blank, in no average." in picture.caption


def hover(chart: go.Figure, name: str = "launches") -> list[str]:
    """What each span of the strip above the panel says, without its own name and time."""
    return [text.partition("<br>")[2] for text in trace(chart, name).hovertext]


def test_an_average_is_over_the_samples_that_there_are() -> None:
    """A pass of 100 µs at 2 + 1 TB/s whose last three samples are missing: 3.00 TB/s, not 1.20."""
    times = [0.0, 20e-6, 100e-6]
    spans = (LaunchSpan("a", 0.0, 60e-6), LaunchSpan("b", 60e-6, 100e-6))
    picture = picture_of(run_of([2, 2, 0], [1, 1, 0], seconds=times, spans=spans))
    assert picture.caption.startswith(
        "On average flash moves 3.00 TB/s through HBM for 100 µs, 62% of the peak (without 3 missing samples). "
        "3 samples of flash are missing: left blank, in no average."
    )
    assert hover(picture.chart) == ["on average read 2.00, write 1.00 TB/s, without 1 missing sample", "not sampled"]


def test_a_launch_outside_the_samples_has_no_average() -> None:
    """The samples end after 40 µs; a launch from 60 to 80 µs was never sampled, which is not 0 B/s."""
    spans = (LaunchSpan("a", 0.0, 40e-6), LaunchSpan("b", 60e-6, 80e-6))
    picture = picture_of(run_of([1, 1], [0, 0], spans=spans))
    assert hover(picture.chart) == ["on average read 1.00, write 0 TB/s", "not sampled"]
    assert "2 samples of flash are missing" in picture.caption
    apart = picture_of(run_of([1, 1], [0, 0], spans=spans[1:]))
    assert "On average" not in apart.caption
    assert apart.caption.startswith("No sample lies in the pass of flash, so it has no average.")


def test_sums_of_a_pass_with_missing_samples_are_not_known() -> None:
    """4 samples of 1 TB/s read are 80 MB under the curve, but what the two missing ones held nobody knows."""
    times = [index * 20e-6 for index in (0, 1, 4, 5)]
    run = run_of([1] * 4, [0] * 4, seconds=times, spans=(LaunchSpan("flash", 0.0, 120e-6),))
    table = under_the_curve(compare([replace(run, workload=replace(run.workload, drain=False))]))
    assert table is not None
    assert table.rows[0][2:] == ("80.0 MB ⚠", "–", "–", "101 MB", "–")
    assert table.reasons[0][2] == "2 samples are missing, and their bytes with them."
    why = "2 samples are missing, and nobody knows what moved meanwhile."
    assert (table.reasons[0][4], table.reasons[0][6]) == (why, why)


def test_a_drain_outside_the_samples_is_not_zero_bytes() -> None:
    """The samples end with the pass, at 40 µs; the drain ran from 100 to 140 µs: 5 samples are missing, 2 in it."""
    spans = (LaunchSpan("flash", 0.0, 40e-6), LaunchSpan("drain", 100e-6, 140e-6))
    run = run_of([1, 1], [0, 0], spans=spans)
    table = under_the_curve(compare([run]))
    assert table is not None
    assert table.rows[0][2:] == ("40.0 MB ⚠", "–", "–", "101 MB", "–")
    assert table.reasons[0][3] == "2 samples are missing in the drain."
    assert hover(picture_of(run).chart, "drain") == ["not sampled"]


def test_a_sample_lasts_until_the_next_begins() -> None:
    """Samples at 0, 18 and 40 µs, 20 µs on average, of 1, 2 and 3 TB/s: 18 + 44 + 60 MB."""
    found = found_in(run_of([1, 2, 3], [0, 0, 0], seconds=[0.0, 18e-6, 40e-6]))
    assert found.total(found.read) == pytest.approx(122e6)
    assert found.missing(*found.extent) == 0


def test_a_drain_above_the_peak_is_flagged() -> None:
    """9 TB/s during the drain, on a memory of 4.81."""
    spans = (LaunchSpan("flash", 0.0, 20e-6), LaunchSpan("drain", 40e-6, 60e-6))
    run = run_of([1, 0, 9], [0, 0, 0], spans=spans)
    table = under_the_curve(compare([run]))
    assert table is not None and table.rows[0][3] == "180 MB ⚠"
    assert table.reasons[0][3] == "Holds samples above the peak, which cannot be true."
    assert hover(picture_of(run).chart, "drain") == ["on average above the peak, so not told"]


def test_an_impossible_sample_does_not_make_the_others_look_idle() -> None:
    """Work begins with the second sample, at 1 TB/s, though the third claims a billion TB/s."""
    read = trace(picture_of(run_of([0, 1, 1e9, 0], [0] * 4)).chart, "flash, read")
    assert np.asarray(read.x)[np.flatnonzero(np.asarray(read.y))[0]] == pytest.approx(0.0, abs=1e-6)
    assert max(read.y) == pytest.approx(1.0)


def test_l2_sm_is_one_panel_for_all_runs_on_its_own_scale() -> None:
    chart = picture_of(fake_runs.sampled_naive_run(), fake_runs.sampled_flash_run()).chart
    axes = {one.yaxis for one in chart.data if one.name.endswith("L2↔SM")}
    assert axes == {"y5"} and chart.layout.yaxis5.range[1] > chart.layout.yaxis2.range[1]
    without = picture_of(run_of([1, 1], [1, 1])).chart
    assert not [one for one in without.data if one.name.endswith("L2↔SM")]
    assert chart.layout.height > without.layout.height


def test_two_runs_of_one_kernel_differ_by_their_dashes() -> None:
    one, other = run_of([1], [1], [2], run_id="one"), run_of([1], [1], [2], run_id="two")
    other = replace(other, created="2026-11-29T12:00:09Z")
    chart = picture_of(one, other).chart
    assert [line.line.dash for line in chart.data if line.name.endswith("L2↔SM")] == ["solid", "dot"]


def test_a_slow_memory_has_a_scale_in_its_own_unit() -> None:
    run = run_of([0.2, 0.1], [0.0, 0.0])
    slow = replace(run, device=replace(run.device, peak_hbm_bytes_per_second=320e9, peak_hbm_source="NVML"))
    chart = picture_of(slow).chart
    assert any("HBM, GB/s" in note.text for note in chart.layout.annotations)
    assert max(trace(chart, "flash, read").y) == pytest.approx(200.0)


def test_only_the_newest_runs_have_a_row() -> None:
    runs = [replace(run_of([1], [1]), id=f"run-{i}", created=f"2026-11-29T12:00:0{i}Z") for i in range(MOST_ROWS + 2)]
    picture = picture_of(*runs)
    assert len([one for one in picture.chart.data if one.name.endswith("read and write")]) == MOST_ROWS
    assert f"The newest {MOST_ROWS} of {MOST_ROWS + 2} sampled Runs." in picture.caption


def reason_of(*runs: Run) -> str:
    found = bandwidth_over_time(compare(runs), LIGHT)
    assert isinstance(found, Table) and not found.rows and found.title == TITLE
    return found.caption


def test_without_samples_one_line_says_why() -> None:
    naive, flash = fake_runs.naive_run(), fake_runs.flash_run()
    choose = "This Run has no samples over time: choose cupti-sampling under More settings → bytes counted by."
    assert reason_of(naive, flash) == choose
    assert reason_of(fake_runs.cpu_run()) == fake_runs.NO_COUNTERS
    refused = Measurement("hbm_read_bytes", None, "B", "cupti-sampling", "the driver holds the counters back")
    forbidden = replace(flash, measurements=(*flash.measurements, refused))
    assert reason_of(forbidden) == "The driver holds the counters back."
    assert (
        reason_of(naive, forbidden)
        == f"No row for naive. {choose} No row for flash. The driver holds the counters back."
    )


def test_a_run_without_samples_beside_one_with_them_is_named() -> None:
    picture = picture_of(fake_runs.sampled_naive_run(), fake_runs.flash_run())
    assert "No row for flash. This Run has no samples over time" in picture.caption


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        (run_of([], []), "is empty"),
        (run_of([1, 1], [1, 1], interval=None), "does not say how long a sample lasts"),
        (run_of([1, 1], [1, 1], seconds=[1e-3, 0.0]), "out of order"),
        (run_of([1, -1], [1, 1]), "below zero"),
        (run_of([1, 1, 1], [1, 1, 1], seconds=[0.0, 1e-5, 2e-5]), "overlap: one begins every 10 µs, and each lasts 20"),
        (run_of([1, 1], [1, 1], seconds=[0.0, 2.8e-5]), "leave time between them: one begins every 28 µs"),
        (run_of([1] * 102, [1] * 102, seconds=[float(i) for i in range(102)]), "more than 100 gaps"),
    ],
)
def test_series_that_no_sampler_made_are_refused_with_a_sentence(run: Run, sentence: str) -> None:
    assert sentence in reason_of(run)


def test_series_taken_at_different_times_share_no_axis() -> None:
    run = run_of([1, 1], [1, 1])
    read, write = run.series
    assert "not taken at the same times" in reason_of(replace(run, series=(read, replace(write, seconds=(0.0, 3e-5)))))


def test_an_idle_gpu_is_drawn_as_zero() -> None:
    picture = picture_of(run_of([0, 0], [0, 0], [0, 0]))
    assert max(trace(picture.chart, "flash, read and write").y) == 0.0


def test_texts_of_a_file_are_escaped() -> None:
    bad = "<a href='javascript:alert(1)'>x</a>"
    run = run_of([1, 1], [1, 1], [1, 1], spans=(LaunchSpan(bad, 0.0, 40e-6), LaunchSpan("drain", 40e-6, 40e-6)))
    device = replace(run.device, name=bad, peak_hbm_source=bad)
    runs = (replace(run, device=device), replace(run, id="other", created="2026-11-29T12:00:09Z"))
    # Plotly's own JSON spells every "<" as an escape, so the figure itself is searched.
    assert "<a" not in str(picture_of(*runs).chart.to_dict())


def test_light_and_dark_draw_the_same_bytes() -> None:
    run = fake_runs.sampled_flash_run()
    light, dark = picture_of(run).chart, picture_of(run, theme=DARK).chart
    assert area(trace(light, "flash, read")) == area(trace(dark, "flash, read"))
    assert light.layout.hoverlabel.bgcolor != dark.layout.hoverlabel.bgcolor


def test_picture_sums_and_samples_are_in_the_report_and_in_the_file() -> None:
    runs = (fake_runs.sampled_naive_run(), fake_runs.sampled_flash_run())
    assert from_json(to_json(runs)) == runs
    text = html(runs)
    assert f'aria-label="{TITLE}"' in text and "Bytes under the curve" in text
    assert "378 samples of hbm_read_bytes_per_second" in text


def test_the_made_up_samples_hold_the_bytes_of_the_facts() -> None:
    """What the other tests rely on: sums of the fakes are those of their spans, and no sample is below zero."""
    for run, spans in (
        (fake_runs.sampled_naive_run(), fake_runs.NAIVE_SPANS),
        (fake_runs.sampled_flash_run(), fake_runs.FLASH_SPANS),
    ):
        for index, series in enumerate(run.series):
            assert min(series.values) >= 0
            total = sum(series.values) * fake_runs.INTERVAL
            assert total == pytest.approx(1e9 * sum(part[index] for part in spans.values()))
