"""How far apart resident programs are on K and V: worked out by hand, and what the orders of flash make of it."""

import dataclasses

import numpy as np
import pytest

from app.spread import MOMENTS, Spread, spread
from app.spread_chart import MOST_POINTS, Axes, drawn_programs, spread_chart
from app.style import LIGHT
from app.subject import schedule_of
from kernels.problem import AttentionProblem, TileConfig
from kernels.row_walk import RowWalk
from profiler.run import Measurement, ProgramTrace, Run
from profiler.workload import Workload
from tests import fake_runs
from tests.fake_timelines import scheduled, traced

ARTICLE = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32")
TILE_BYTES = 4 * 2 * 16 * 4  # K and V of a KV tile of 4 keys
LONG = AttentionProblem(
    heads=2, kv_heads=2, seq_len_q=131_072, seq_len_kv=131_072, head_dim=128, dtype="bfloat16", causal=True
)
MIB = 2**20
AT_ONCE = Measurement("programs_at_once", 132, "1", "model")


def run_of(
    problem: AttentionProblem, tile: TileConfig, timeline: ProgramTrace | None = None, kernel: str = "flash"
) -> Run:
    """A Run of a kernel; without a timeline one of 132 SMs of which the slowest takes 2% longer than the fastest."""
    work = Workload(kernel, problem, tile, "cuda:0")
    made = Run("fake-spread", "fake", "2026-11-29T12:00:01Z", work, fake_runs.H200, fake_runs.ENVIRONMENT, (AT_ONCE,))
    walk = schedule_of(made).walk
    assert walk is not None
    return dataclasses.replace(
        made,
        id=f"fake-{abs(hash((kernel, problem, tile, timeline)))}",
        timeline=timeline or scheduled(walk, 132, 8_000, 0.02),
    )


def spread_of(run: Run) -> Spread:
    found = spread(run)
    assert found is not None
    return found


def one_tile_apart(heads: int) -> ProgramTrace:
    """Of each head, program 0 runs from 0 to 400 µs and program 1 from 100 to 500; the others take no time."""
    start, end = [0, 100_000, 500_000, 500_000], [400_000, 500_000, 500_000, 500_000]
    return traced(range(4 * heads), start * heads, end * heads)


def test_two_programs_one_tile_apart_by_hand() -> None:
    """A step takes 100 µs: program 1 is one KV tile behind from 100 to 400 of 500 µs, and else alone."""
    found = spread_of(run_of(ARTICLE, TileConfig(4, 4), one_tile_apart(1)))
    assert len(found.moments) == MOMENTS
    expected = np.where((found.moments > 100_000) & (found.moments < 400_000), 2 * TILE_BYTES, TILE_BYTES)
    np.testing.assert_array_equal(found.spanned, expected)
    assert (found.largest, found.median, found.head_bytes) == (2 * TILE_BYTES, 2 * TILE_BYTES, 4 * TILE_BYTES)
    assert found.share_above(TILE_BYTES) == pytest.approx(0.6)
    at = np.flatnonzero((found.moment == 200) & (found.program == 1))[0]
    assert (found.moments[200], found.kv_tile[at]) == (250_625.0, 1)


@pytest.mark.parametrize(("kv_heads", "times"), [(1, 1), (2, 2)])
def test_heads_that_share_k_and_v_count_once(kv_heads: int, times: int) -> None:
    problem = dataclasses.replace(ARTICLE, heads=2, kv_heads=kv_heads)
    found = spread_of(run_of(problem, TileConfig(4, 4), one_tile_apart(2)))
    assert (found.largest, found.spanned.min()) == (2 * TILE_BYTES * times, TILE_BYTES * times)


def test_the_last_tile_may_be_ragged() -> None:
    """Two programs in step are at the last of the KV tiles of 14 keys at the end: 2 keys."""
    problem = dataclasses.replace(ARTICLE, seq_len_q=8, seq_len_kv=14)
    found = spread_of(run_of(problem, TileConfig(4, 4), traced([0, 1], [0, 0], [400_000, 400_000])))
    assert found.spanned[[0, 299, 300, 399]].tolist() == [TILE_BYTES, TILE_BYTES, TILE_BYTES // 2, TILE_BYTES // 2]


def test_programs_that_share_nothing_span_nothing() -> None:
    """One program a head: however far they are apart, none can use what another read. Two heads of a group can."""
    problem = dataclasses.replace(ARTICLE, heads=2, kv_heads=2, seq_len_q=4)
    alone = spread_of(run_of(problem, TileConfig(4, 4), traced([0, 1], [0, 100_000], [400_000, 500_000])))
    assert (alone.parts, alone.largest) == (0, 0)
    assert len(spread_chart(alone, Axes.common([alone], None), None, 0, LIGHT).data) == 4  # no spanned bytes
    problem = dataclasses.replace(problem, kv_heads=1)
    shared = spread_of(run_of(problem, TileConfig(4, 4), traced([0, 1], [0, 100_000], [400_000, 500_000])))
    assert (shared.parts, shared.largest) == (1, 2 * TILE_BYTES)


def test_shares_of_split_kv_are_not_spanned_together() -> None:
    """4 programs a head, each on a KV tile of its own: two heads of a group are at the same tile, 4 · TILE_BYTES."""
    problem = dataclasses.replace(ARTICLE, heads=2, kv_heads=1, seq_len_q=4)
    run = run_of(problem, TileConfig(4, 4), traced(range(8), [0] * 8, [400_000] * 8), "split_kv")
    walk = schedule_of(run).walk
    assert isinstance(walk, RowWalk) and walk.share_first.tolist() == [0, 1, 2, 3]
    found = spread_of(run)
    assert (found.parts, set(found.spanned.tolist())) == (4, {4 * TILE_BYTES})
    alone = dataclasses.replace(problem, heads=1)
    assert spread_of(run_of(alone, TileConfig(4, 4), traced(range(4), [0] * 4, [9] * 4), "split_kv")).parts == 0


def test_causal_programs_fall_out_of_step_in_linear_order_and_not_longest_first() -> None:
    """Half of L2 is 30 MiB: linear order needs more of K and V for most of the time, longest_first hardly ever."""
    linear, longest_first = (
        spread_of(run_of(LONG, TileConfig(128, 128, 8, 3, order))) for order in ("linear", "longest_first")
    )
    assert linear.median > 30 * MIB > 5 * longest_first.median
    assert linear.share_above(30 * MIB) > 0.6 and longest_first.share_above(30 * MIB) < 0.1


def test_a_sawtooth_turns_where_it_is() -> None:
    """Without a mask a linear wave begins at one end of K and V while the one before ends at the other."""
    problem = dataclasses.replace(LONG, seq_len_q=65_536, seq_len_kv=65_536, causal=False)
    linear, sawtooth = (
        spread_of(run_of(problem, TileConfig(128, 128, 8, 3, order))) for order in ("linear", "sawtooth")
    )
    assert linear.largest > 0.95 * linear.head_bytes
    assert sawtooth.largest < 0.5 * sawtooth.head_bytes


def test_a_timeline_that_does_not_fit_has_no_spread() -> None:
    assert spread(run_of(ARTICLE, TileConfig(4, 4), traced([0, 1], [0, 0], [10, 10]))) is None
    assert spread(fake_runs.naive_run()) is None


def test_the_chart_draws_positions_by_wave_and_both_limits() -> None:
    found = spread_of(run_of(ARTICLE, TileConfig(4, 4), one_tile_apart(1)))
    axes = Axes.common([found], 3 * TILE_BYTES)
    assert axes == Axes(500_000, 4 * TILE_BYTES)
    chart = spread_chart(found, axes, 3 * TILE_BYTES, 1, LIGHT)
    first, second, third, chosen, spanned = chart.data
    # Each program has an SM of its own here, so all are of the first wave; a NaN stands between two lines.
    assert (len(second.x), len(third.x), int(np.isnan(first.x).sum())) == (0, 0, 1)
    # From the middle of the first KV tile, key 2, to that of the last, key 14.
    assert (chosen.y[0], chosen.y[-1]) == (2, 14)
    assert (chosen.x[0], chosen.x[-1]) == (pytest.approx(100.625), pytest.approx(499.375))
    np.testing.assert_allclose(spanned.y, found.spanned / MIB, rtol=1e-6)
    assert [shape.y0 * MIB for shape in chart.layout.shapes] == [4 * TILE_BYTES, 3 * TILE_BYTES, 1.5 * TILE_BYTES]
    words = [note.text for note in chart.layout.annotations]
    assert words == ["K and V of a head, 2.00 KiB", "L2, 1.50 KiB", "half of L2"]


def test_65536_programs_are_sampled_by_whole_lanes_and_sent_in_little() -> None:
    problem = AttentionProblem(heads=64, kv_heads=64, seq_len_q=16_384, seq_len_kv=16_384, head_dim=64)
    found = spread_of(run_of(problem, TileConfig(16, 64)))
    drawn = drawn_programs(found)
    lanes = np.unique(found.found.lane[drawn])
    assert np.isin(found.found.lane, lanes).sum() >= len(drawn) > 0
    assert 2 * len(drawn) < MOST_POINTS
    assert len(spread_chart(found, Axes.common([found], None), None, 0, LIGHT).to_json()) < 2_000_000
