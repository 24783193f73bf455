"""Who runs beside the chosen program, and how far apart on K and V: by hand, and as app.spread counts it."""

import dataclasses

import numpy as np
import pytest

from app.level_table import levels
from app.resident import Resident, resident, why_none
from app.spread import spread
from app.style import LIGHT
from app.subject import Subject, schedule_of
from app.tile_moment import Moment
from app.tile_pages import matrix
from kernels.problem import AttentionProblem, TileConfig
from kernels.walk import Walk
from profiler.run import ProgramTrace, Run
from profiler.workload import Workload
from tests import fake_runs
from tests.fake_timelines import scheduled, traced
from tests.test_tile_moment import ARTICLE

FOURS = TileConfig(4, 4)
TILE_BYTES = 4 * 2 * 16 * 4  # K and V of a KV tile of 4 keys


def run_of(problem: AttentionProblem, timeline: ProgramTrace | None, tile: TileConfig = FOURS) -> Run:
    work = Workload("flash", problem, tile, "cuda:0")
    return Run(
        f"fake-{abs(hash((problem, tile, timeline)))}", "fake", "2026-11-29T12:00:01Z", work, fake_runs.H200,
        fake_runs.ENVIRONMENT, (), timeline=timeline,
    )  # fmt: skip


def staggered(heads: int) -> ProgramTrace:
    """Of each head, programs 0 to 3 of 400 µs each begin 0, 100, 200 and 1,000 µs after the first start."""
    start = [0, 100_000, 200_000, 1_000_000]
    return traced(range(4 * heads), start * heads, [at + 400_000 for at in start] * heads)


def found_at(run: Run, program: int, step: int) -> Resident:
    found = resident(run, program, step)
    assert found is not None
    return found


def walk_of(run: Run) -> Walk:
    walk = schedule_of(run).walk
    assert walk is not None
    return walk


@pytest.mark.parametrize(
    ("program", "step", "time", "programs", "kv_tiles", "tiles"),
    [
        (0, 0, 50_000, [0], [0], 1),
        (0, 2, 250_000, [0, 1, 2], [2, 1, 0], 3),
        (1, 3, 450_000, [1, 2], [3, 2], 2),
        (3, 1, 1_150_000, [3], [1], 1),
    ],
)
def test_programs_of_one_moment_by_hand(
    program: int, step: int, time: float, programs: list[int], kv_tiles: list[int], tiles: int
) -> None:
    """A step takes 100 µs, and the time is the middle of the chosen one."""
    found = found_at(run_of(ARTICLE, staggered(1)), program, step)
    assert (found.time, found.program.tolist(), found.kv_tile.tolist()) == (time, programs, kv_tiles)
    assert found.spanned == tiles * TILE_BYTES


@pytest.mark.parametrize(("kv_heads", "times"), [(1, 1), (2, 2)])
def test_heads_that_share_k_and_v_count_once_and_ticks_are_of_one_head(kv_heads: int, times: int) -> None:
    problem = dataclasses.replace(ARTICLE, heads=2, kv_heads=kv_heads)
    run = run_of(problem, staggered(2))
    found = found_at(run, 4, 2)
    assert (len(found.program), found.spanned) == (6, 3 * TILE_BYTES * times)
    assert found.tiles_of(walk_of(run), 1).tolist() == [0, 1, 2]


@pytest.mark.parametrize("order", ["linear", "longest_first", "sawtooth"])
def test_bytes_agree_with_the_spread_of_the_timeline(order: str) -> None:
    """A causal problem with GQA: at moments that both look at, both find as many bytes and the same KV tiles."""
    problem = AttentionProblem(1, 4, 2, 2048, 2048, 64, causal=True)
    tile = TileConfig(64, 64, order=order)
    bare = run_of(problem, None, tile)
    run = run_of(problem, scheduled(walk_of(bare), 16, 8_000, 0.02), tile)
    whole = spread(run)
    assert whole is not None
    walk, compared = walk_of(run), 0
    for program in range(0, walk.total_programs, 3):
        for step in range(int(walk.steps[program % walk.programs])):
            found = found_at(run, program, step)
            near = int(np.abs(whole.moments - found.time).argmin())
            there = whole.moment == near
            if np.array_equal(whole.program[there], found.program) and np.array_equal(
                whole.kv_tile[there], found.kv_tile
            ):
                assert whole.spanned[near] == found.spanned
                compared += 1
    assert compared > 50


def test_programs_that_share_nothing_span_nothing() -> None:
    """One program a head, each head with a K and V of its own."""
    problem = dataclasses.replace(ARTICLE, heads=2, kv_heads=2, seq_len_q=4)
    run = run_of(problem, traced([0, 1], [0, 100_000], [400_000, 500_000]))
    found = found_at(run, 0, 2)
    assert (found.kv_tile.tolist(), found.spanned) == ([2, 1], None)
    table = levels(Subject("flash", "flash", problem, FOURS, run, run.device), Moment(walk_of(run), 0, 2))
    at = next(index for index, row in enumerate(table.rows) if row[1] == "K, V between running programs")
    assert table.rows[at][2:5] == ("–", "–", "2 programs") and "nothing to share" in table.reasons[at][2]


def test_a_clock_too_coarse_still_sees_the_chosen_program() -> None:
    found = found_at(run_of(ARTICLE, traced([0] * 4, [0] * 4, [0] * 4)), 2, 3)
    assert (found.program.tolist(), found.kv_tile.tolist()) == ([2], [0])


def test_l2_row_and_ticks_and_what_they_are_called() -> None:
    """3 tiles of 512 B of an L2 of 3,072 B: 50%; tiles 0, 1 and 2 have their middles at keys 2, 6 and 10."""
    run = run_of(ARTICLE, staggered(1))
    device = dataclasses.replace(fake_runs.H200, l2_bytes=6 * TILE_BYTES)
    shown = Subject("flash", "flash", ARTICLE, FOURS, run, device)
    moment = Moment(walk_of(run), 0, 2)
    table = levels(shown, moment)
    at = next(index for index, row in enumerate(table.rows) if row[1] == "K, V between running programs")
    assert table.rows[at] == ("", "K, V between running programs", "1.50 KiB", "50%", "3 programs", "")
    assert (table.fills[at][3], table.sources[at][1]) == (0.5, "model")
    assert "those that ran 250 µs after the first start" in table.caption
    picture = matrix(shown, moment, LIGHT)
    ticks = picture.chart.data[-1]
    np.testing.assert_array_equal(ticks.x, [2, 2, np.nan, 6, 6, np.nan, 10, 10, np.nan])
    assert picture.sources == ("schedule", "globaltimer", "model") and "Ticks on K and V" in picture.caption


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (None, "run this kernel on a GPU, or open a recorded H200 run"),
        (fake_runs.cpu_run(), "it ran through the interpreter, one program after another"),
        (run_of(ARTICLE, None), "it was not traced"),
        (run_of(ARTICLE, traced([0], [0], [10])), "does not fit together"),
    ],
)
def test_without_a_timeline_there_is_a_dash_and_its_reason(run: Run | None, reason: str) -> None:
    assert run is None or resident(run, 0, 0) is None
    assert reason in why_none(run)
    bare = Subject("flash", "flash", ARTICLE, FOURS, run, fake_runs.H200)
    assert bare.schedule.walk is not None
    moment = Moment(bare.schedule.walk)
    table = levels(bare, moment)
    at = next(index for index, row in enumerate(table.rows) if row[1] == "K, V between running programs")
    assert table.rows[at][2:5] == ("–", "–", "–") and reason in table.reasons[at][2]
    assert "Ticks" not in matrix(bare, moment, LIGHT).caption
