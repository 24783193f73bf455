"""ColumnWalk against plain loops over the mask, and numbers worked out by hand."""

import time
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.column_walk import ColumnWalk
from kernels.problem import AttentionProblem
from kernels.schedule import Launch
from kernels.tile_grid import TileGrid

pytestmark = pytest.mark.computes

BLOCKS = st.sampled_from([1, 4, 8, 16])
CAUSAL = ColumnWalk(TileGrid(AttentionProblem(1, 1, 1, 16, 16, 2, "float16", causal=True), 4, 4))


@st.composite
def walks(draw_: st.DrawFn) -> ColumnWalk:
    problem = AttentionProblem(
        batch=2,
        heads=2,
        seq_len_q=draw_(st.integers(1, 40)),
        seq_len_kv=draw_(st.integers(1, 40)),
        head_dim=draw_(st.sampled_from([1, 5])),
        causal=draw_(st.booleans()),
        window=draw_(st.none() | st.integers(1, 20)),
    )
    return ColumnWalk(TileGrid(problem, draw_(BLOCKS), draw_(BLOCKS)))


def visits_of(walk: ColumnWalk) -> list[tuple[int, int]]:
    """(Q tile, KV tile) as two loops over the mask meet them."""
    grid = walk.grid
    columns = ((i, j) for j in range(grid.kv_tiles) for i in range(grid.q_tiles))
    return [pair for pair in columns if grid.mask_of(*pair) != "skipped"]


def bytes_by_loops(walk: ColumnWalk) -> list[Counter[tuple[str, str]]]:
    """{(tensor, direction): bytes} before the first step and after each one."""
    grid, problem = walk.grid, walk.grid.problem
    rows, visits = problem.seq_len_q, visits_of(walk)
    sizes = {"acc": problem.head_dim * 4, "m": 4, "l": 4}
    found: Counter[tuple[str, str]] = Counter({(name, "write"): rows * size for name, size in sizes.items()})
    after = [found.copy()]
    for step, (i, j) in enumerate(visits):
        tall = min(grid.BLOCK_M, rows - i * grid.BLOCK_M)
        found["q", "read"] += tall * grid.row_bytes
        if step == 0 or visits[step - 1][1] != j:
            for name in ("k", "v"):
                found[name, "read"] += min(grid.BLOCK_N, problem.seq_len_kv - j * grid.BLOCK_N) * grid.row_bytes
        for name, size in sizes.items():
            found[name, "read"] += tall * size
            found[name, "write"] += tall * size
        if step == len(visits) - 1:
            found += Counter({(name, "read"): rows * size for name, size in sizes.items()})
            found["o", "write"] += rows * grid.row_bytes
            found["lse", "write"] += rows * 4
        after.append(found.copy())
    return after


def booked(walk: ColumnWalk, done: int) -> dict[tuple[str, str], int]:
    table = walk.bytes_until(0, np.array([done]))
    found = {(name, way): int(part[0]) for name, parts in table.items() for way, part in zip(WAYS, parts, strict=True)}
    return {key: size for key, size in found.items() if size}


WAYS = ("read", "write")


@settings(max_examples=60)
@given(walks())
def test_bytes_after_every_step_equal_plain_loops(walk: ColumnWalk) -> None:
    expected = bytes_by_loops(walk)
    assert len(expected) == int(walk.steps[0]) + 1
    assert booked(walk, -1) == {}
    for done, found in enumerate(expected):
        assert booked(walk, done) == dict(found)
    assert booked(walk, len(expected) + 5) == dict(expected[-1])


@settings(max_examples=60)
@given(walks())
def test_places_equal_plain_loops(walk: ColumnWalk) -> None:
    """tile_of, when, order_of, states_of and kv_reads_until, of the last (batch, head)."""
    grid, visits, batch_head = walk.grid, visits_of(walk), 3
    assert (walk.programs, walk.total_programs, walk.total_steps) == (1, 4, 4 * len(visits))
    assert [walk.tile_of(batch_head, step) for step in range(len(visits))] == visits
    order = walk.order_of(batch_head, np.arange(grid.q_tiles)[:, None], np.arange(grid.kv_tiles))
    expected = np.full((grid.q_tiles, grid.kv_tiles), np.nan)
    for step, (i, j) in enumerate(visits):
        expected[i, j] = step
        assert walk.when(batch_head, i, j) == (batch_head, step)
    np.testing.assert_array_equal(order, expected)
    for i in range(grid.q_tiles):
        seen = [j for q_tile, j in visits if q_tile == i]
        assert [list(states) for states in walk.states_of(batch_head, i)] == [seen]
        for j in set(range(grid.kv_tiles)) - set(seen):
            nearest = visits.index((i, min(seen, key=lambda other, j=j: abs(other - j)))) if seen else 0  # type: ignore[misc]
            assert walk.when(batch_head, i, j) == (batch_head, nearest)
    for done in range(-1, len(visits) + 1):
        read = [int(any(column == j for _, column in visits[: max(done, 0)])) for j in range(grid.kv_tiles)]
        assert [counts.tolist() for counts in walk.kv_reads_until(batch_head, np.array([done]))] == [read, read]


@settings(max_examples=40)
@given(walks())
def test_program_steps_sum_to_the_bytes_after_every_step(walk: ColumnWalk) -> None:
    steps = list(walk.program_steps("columns", 3))
    grid = walk.grid
    assert [step.step for step in steps] == list(range(grid.q_tiles * grid.kv_tiles))
    assert {(step.launch, step.program_id) for step in steps} == {("columns", 3)}
    found: Counter[tuple[str, str]] = Counter()
    done = 0
    for step in steps:
        i, j = step.q_range[0] // grid.BLOCK_M, step.kv_range[0] // grid.BLOCK_N
        assert step.mask == grid.mask_of(i, j)
        if step.mask == "skipped":
            assert not step.reads and not step.writes
            continue
        assert (i, j) == walk.tile_of(3, done)
        done += 1
        for way, part in (("read", step.reads), ("write", step.writes)):
            found.update({(name, way): size for name, size in part.items()})
        assert dict(found) == booked(walk, done)
    assert done == int(walk.steps[0])


def test_causal_by_hand() -> None:
    """Four columns, seen by 4, 3, 2 and 1 of the Q tiles of 4 rows: 10 steps; rows are 4 B, acc's 8 B."""
    assert (CAUSAL.q_first.tolist(), CAUSAL.q_last.tolist()) == ([0, 1, 2, 3], [4, 4, 4, 4])
    nan = np.nan
    np.testing.assert_array_equal(
        CAUSAL.order_of(0, np.arange(4)[:, None], np.arange(4)),
        [[0, nan, nan, nan], [1, 4, nan, nan], [2, 5, 7, nan], [3, 6, 8, 9]],
    )
    assert booked(CAUSAL, 5) == {
        ("q", "read"): 5 * 16,
        ("k", "read"): 2 * 16,
        ("v", "read"): 2 * 16,
        ("acc", "read"): 5 * 32,
        ("acc", "write"): 5 * 32 + 128,
        ("m", "read"): 5 * 16,
        ("m", "write"): 5 * 16 + 64,
        ("l", "read"): 5 * 16,
        ("l", "write"): 5 * 16 + 64,
    }


def test_a_window_that_reaches_from_few_queries_to_few_keys() -> None:
    """Queries 0 and 1 stand at keys 14 and 15 of 16 and see back 3 keys: columns 0 to 2 of 4 keys are never read."""
    walk = ColumnWalk(TileGrid(AttentionProblem(1, 1, 1, 2, 16, 2, window=3), 2, 4))
    assert (walk.q_first.tolist(), walk.q_last.tolist()) == ([0, 0, 0, 0], [0, 0, 0, 1])
    assert walk.tile_of(0, 0) == (0, 3)
    assert booked(walk, 1)["k", "read"] == 16


LONG = ColumnWalk(TileGrid(AttentionProblem(1, 1, 1, 131_072, 131_072, 128, "bfloat16"), 128, 64))
SOME = np.arange(0, 1024, 4)


@pytest.mark.parametrize(
    "asked",
    [
        lambda: LONG.bytes_until(0, np.array([1_234_567])),
        lambda: LONG.kv_reads_until(0, np.array([1_234_567])),
        lambda: LONG.tile_of(0, 1_234_567),
        lambda: LONG.when(0, 1000, 2000),
        lambda: LONG.order_of(0, SOME[:, None], 2 * SOME),
        lambda: Launch.of_walk("columns", LONG, ()),
    ],
    ids=["bytes_until", "kv_reads_until", "tile_of", "when", "order_of", "of_walk"],
)
def test_two_million_steps_are_quick(asked: Callable[[], object]) -> None:
    assert LONG.total_steps == 2_097_152
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        asked()
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 5e-3
