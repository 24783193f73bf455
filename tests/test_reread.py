"""How long ago K and V were last read: worked out by hand on few tiles, and what the orders of flash make of it."""

import dataclasses
import time
from collections.abc import Sequence

import numpy as np
import pytest

from app.reread import MOST_REREADS, Reread, reread
from app.reread_chart import reread_chart
from app.style import LIGHT
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from profiler.run import Measurement, Run
from profiler.workload import Workload
from tests import fake_runs
from tests.fake_timelines import scheduled, traced

# Two programs, one Q tile each, on 4 KV tiles of 512 B of K and V.
TWO = AttentionProblem(seq_len_q=8, seq_len_kv=16, head_dim=16, dtype="float32")
TILE_BYTES = 4 * 2 * 16 * 4
LONG = AttentionProblem(heads=1, kv_heads=1, seq_len_q=65_536, seq_len_kv=65_536, head_dim=128, dtype="bfloat16")
MIB = 2**20


def run_of(
    problem: AttentionProblem, start: Sequence[int], order: str = "linear", kernel: str = "flash", at_once: int = 1
) -> Run:
    """A Run whose programs start at so many µs, take 400 each, and go backwards in every second wave of `at_once`."""
    tile = all_kernels()[kernel].cut(problem, TileConfig(4, 4, order=order))
    work = Workload(kernel, problem, tile, "cuda:0")
    begin = np.array(start) * 1000
    waves = (Measurement("programs_at_once", at_once, "1", "model"),)
    made = Run("fake-reread", "fake", "2026-11-29T12:00:01Z", work, fake_runs.H200, fake_runs.ENVIRONMENT, waves)
    return dataclasses.replace(
        made,
        id=f"fake-{abs(hash((problem, tuple(start), order, kernel)))}",
        timeline=traced(range(len(start)), begin, begin + 400_000),
    )


def scheduled_run(problem: AttentionProblem, order: str) -> Run:
    """Flash on 132 SMs of which the slowest takes 1% longer than the fastest."""
    tile = TileConfig(128, 128, 8, 3, order)
    plan = all_kernels()["flash"].schedule(problem, tile).with_wave(132)
    assert plan.walk is not None
    made = run_of(TWO, [0, 400])
    work = Workload("flash", problem, tile, "cuda:0")
    waves = (Measurement("programs_at_once", 132, "1", "model"),)
    timeline = scheduled(plan.walk, 132, 8_000, 0.01)
    return dataclasses.replace(
        made, id=f"fake-{order}-{problem.causal}", workload=work, measurements=waves, timeline=timeline
    )


def found(run: Run) -> Reread:
    made = reread(run)
    assert isinstance(made, Reread), made
    return made


def tiles(run: Run) -> list[float]:
    """The distances in tiles."""
    return (found(run).distance / TILE_BYTES).tolist()


def test_a_linear_wave_reads_all_again_after_a_whole_head() -> None:
    one = found(run_of(TWO, [0, 400]))
    assert (one.distance / TILE_BYTES).tolist() == [4, 4, 4, 4]
    assert one.weight.tolist() == [TILE_BYTES] * 4 and one.first_bytes == 4 * TILE_BYTES
    assert (one.median, one.share_above(3 * TILE_BYTES), one.share_above(4 * TILE_BYTES)) == (4 * TILE_BYTES, 1, 0)


def test_a_sawtooth_reads_again_the_sooner_the_nearer_to_its_turn() -> None:
    """The last tile is read by the second wave one step after the first did, together with it."""
    one = found(run_of(TWO, [0, 400], "sawtooth"))
    assert (one.distance / TILE_BYTES).tolist() == [2, 3, 4]
    assert one.median == 3 * TILE_BYTES and one.share_above(2 * TILE_BYTES) == pytest.approx(2 / 3)


def test_programs_near_to_each_other_read_together() -> None:
    """One step, 100 µs, behind: together. Three steps behind: the first tile after 3 tiles, the others after 4."""
    together = found(run_of(TWO, [0, 100]))
    assert (len(together.distance), together.median, together.share_above(0)) == (0, None, 0)
    assert tiles(run_of(TWO, [0, 300])) == pytest.approx([3, 4, 4, 4])


@pytest.mark.parametrize(("kv_heads", "distance", "count"), [(1, 4, 4), (2, 8, 8)])
def test_other_heads_push_tiles_out_too(kv_heads: int, distance: int, count: int) -> None:
    """Two heads side by side: with K and V of its own, the other one moves over 4 more tiles."""
    problem = dataclasses.replace(TWO, heads=2, kv_heads=kv_heads)
    assert tiles(run_of(problem, [0, 400, 0, 400])) == [distance] * count


def test_where_v_follows_after_all_of_k_they_are_read_apart() -> None:
    """row_streaming, one row a program: K is read again after all of K and V, and V after all of V and K."""
    one = found(run_of(dataclasses.replace(TWO, seq_len_q=2), [0, 400], kernel="row_streaming"))
    assert (one.distance / TILE_BYTES).tolist() == pytest.approx([4] * 8)
    assert one.weight.tolist() == [TILE_BYTES / 2] * 8 and one.first_bytes == 4 * TILE_BYTES


def test_a_tile_that_is_longer_than_k_and_v_counts_what_is_there() -> None:
    """query_tiled on 18 keys: one tile of 32."""
    one = found(run_of(dataclasses.replace(TWO, seq_len_kv=18), [0, 400], kernel="query_tiled"))
    assert one.distance.tolist() == one.weight.tolist() == [18 * 2 * 16 * 4] and one.first_bytes == 18 * 2 * 16 * 4


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (fake_runs.naive_run(), "no timeline"),
        (run_of(TWO, [0, 400, 800]), "no timeline that fits"),
        (run_of(dataclasses.replace(TWO, seq_len_q=4), [0]), "No two programs"),
        (run_of(dataclasses.replace(TWO, seq_len_q=4), [0] * 4, kernel="split_kv"), "No two programs"),
        (run_of(TWO, [0], kernel="flash_kv_outer"), "Each program reads K and V of its head once"),
    ],
)
def test_what_has_no_re_reads_says_why(run: Run, why: str) -> None:
    assert why in str(reread(run))


def test_orders_differ_where_l2_decides() -> None:
    """Half of L2 is 30 MiB and K and V of a head are 32: a linear wave is too late for all, a sawtooth for few.

    Under a causal mask programs out of step move over all of K and V between two reads, those in step do not.
    """
    linear, sawtooth = (found(scheduled_run(LONG, order)) for order in ("linear", "sawtooth"))
    assert linear.share_above(30 * MIB) > 0.8 and linear.median == pytest.approx(32 * MIB, rel=0.02)
    assert sawtooth.share_above(30 * MIB) < 0.2 and sawtooth.median is not None and sawtooth.median < 20 * MIB
    causal = dataclasses.replace(LONG, seq_len_q=131_072, seq_len_kv=131_072, causal=True)
    linear, longest_first = (found(scheduled_run(causal, order)) for order in ("linear", "longest_first"))
    assert linear.share_above(30 * MIB) > 2 * longest_first.share_above(30 * MIB)
    assert linear.median is not None and longest_first.median is not None
    assert linear.median > 2 * longest_first.median


def test_many_programs_are_sampled() -> None:
    problem = AttentionProblem(heads=64, kv_heads=64, seq_len_q=16_384, seq_len_kv=16_384, head_dim=64)
    run = scheduled_run(LONG, "linear")
    tile = TileConfig(16, 64)
    walk = all_kernels()["flash"].schedule(problem, tile).walk
    assert walk is not None and walk.total_programs == 65_536
    work = Workload("flash", problem, tile, "cuda:0")
    run = dataclasses.replace(run, id="fake-many", workload=work, timeline=scheduled(walk, 528, 1_000, 0.02))
    began = time.perf_counter()
    one = found(run)
    assert time.perf_counter() - began < 5
    assert 0 < len(one.distance) <= MOST_REREADS
    # The tiles looked at stand for all: 64 heads of 16,384 keys of 64 values of 2 B, of K and of V.
    assert one.first_bytes == pytest.approx(64 * 16_384 * 64 * 2 * 2, rel=0.01)


def test_the_chart_rises_to_all_of_them() -> None:
    shown = [(order, "flash", found(run_of(TWO, [0, 400], order))) for order in ("sawtooth", "linear")]
    chart = reread_chart(shown, 2 * MIB, LIGHT)
    linear, sawtooth = chart.data  # the first Run's line lies above the others
    np.testing.assert_allclose(sawtooth.x[:4] * MIB / TILE_BYTES, [0, 2, 3, 4], rtol=1e-6)
    np.testing.assert_allclose(sawtooth.y, [0, 100 / 3, 200 / 3, 100, 100], rtol=1e-6)
    np.testing.assert_allclose(linear.x[:5] * MIB / TILE_BYTES, [0, 4, 4, 4, 4], rtol=1e-6)
    assert [shape.x0 for shape in chart.layout.shapes] == [2, 1]
    assert [note.text for note in chart.layout.annotations] == ["L2", "half of L2", "sawtooth", "linear"]
