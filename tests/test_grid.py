"""Grids: which cells there are, in which order, under which ids, and what is refused."""

import itertools

import pytest

from kernels.problem import Refused
from profiler import grid as grid_module
from profiler.grid import AXES, Grid, read_axes
from profiler.sweep_cost import estimate

SMALL = {"heads": (1,), "seq_len_q": (64,), "head_dim": (16,)}


def tiles(grid: Grid) -> list[tuple[int, int]]:
    return [(c.workload.tile.BLOCK_M, c.workload.tile.BLOCK_N) for c in grid.cells() if c.workload and c.workload.tile]


def test_every_combination_in_order() -> None:
    grid = Grid(SMALL | {"BLOCK_N": (16, 32), "BLOCK_M": (64, 16)})
    assert tiles(grid) == list(itertools.product((64, 16), (16, 32)))
    assert (grid.combinations, grid.count) == (4, 4)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("BLOCK_M >= BLOCK_N", [(16, 16), (32, 16), (32, 32)]),
        ("block_m * block_n = 512", [(16, 32), (32, 16)]),
        ('kv_heads = heads and seq_len_kv = 64 and "order" = \'linear\' and "window" is null -- all', None),
    ],
)
def test_a_condition(where: str, expected: list[tuple[int, int]] | None) -> None:
    grid = Grid(SMALL | {"BLOCK_M": (16, 32), "BLOCK_N": (16, 32)}, where)
    assert tiles(grid) == (expected or list(itertools.product((16, 32), (16, 32))))


@pytest.mark.parametrize(
    ("where", "words"),
    [
        ("BLOCK_M > 1000", "keeps none of 2 combinations"),
        ("nonsense > 1", "cannot be used .*nonsense.*; it is SQL on kernel, batch"),
        ("BLOCK_M >", "cannot be used"),
        ("true)) SELECT 1; WITH grid AS (SELECT (1", "syntax error"),
        ("heads = 'x'", "cannot be used"),
        ("(SELECT count(*) FROM read_text('/etc/hostname')) > 0", "cannot be used"),
        ("x" * 1001, "1,001 characters"),
    ],
)
def test_a_condition_that_is_none(where: str, words: str) -> None:
    with pytest.raises(Refused, match=words):
        Grid({"BLOCK_M": (16, 32)}, where).cells()


def test_what_means_the_same_is_one_cell() -> None:
    # naive has no tile, so the four tiles are one cell of it; kv_heads none is as many as heads.
    assert len(Grid(SMALL | {"kernel": ("naive",), "BLOCK_M": (16, 32), "BLOCK_N": (16, 32)}).cells()) == 1
    assert len(Grid(SMALL | {"heads": (2,), "kv_heads": (None, 2, 1)}).cells()) == 2


def test_an_order_is_for_the_kernels_that_have_it() -> None:
    """Three cells of flash and one of naive; on its own naive is refused the order, as a Run is."""
    orders = {"kernel": ("flash", "naive"), "order": ("linear", "sawtooth", "longest_first"), "causal": (True,)}
    cells = Grid(SMALL | orders).cells()
    assert [cell.refused for cell in cells] == [""] * 4
    assert sorted(cell.workload.kernel for cell in cells if cell.workload) == ["flash", "flash", "flash", "naive"]
    (refused,) = Grid(SMALL | {"kernel": ("naive",), "order": ("sawtooth",)}).cells()
    assert refused.refused.startswith("No chosen kernel has the order sawtooth")


def test_ids_know_no_device_and_no_neighbours() -> None:
    (alone,) = Grid(SMALL | {"BLOCK_M": (32,)}).cells()
    among = Grid(SMALL | {"BLOCK_M": (16, 32, 64), "kernel": ("naive", "flash")}).cells("cuda:3")
    assert alone.id in {cell.id for cell in among}
    assert len({cell.id for cell in among}) == len(among) == 4


def test_a_combination_that_cannot_be_is_a_cell_with_its_reason() -> None:
    good, bad = Grid(SMALL | {"BLOCK_M": (16, 48)}).cells()
    assert good.workload is not None and good.refused == ""
    assert bad.workload is None and "BLOCK_M is 48; it must be a power of two" in bad.refused
    assert bad.words["BLOCK_M"] == "48"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"colour": (1,)}, "no axis 'colour'"),
        ({"BLOCK_M": ()}, "BLOCK_M has no value, so the grid is empty"),
        ({"seed": tuple(range(5000)), "batch": tuple(range(1, 5001))}, "25,000,000 combinations"),
    ],
)
def test_what_is_no_grid(given: dict[str, tuple[int, ...]], words: str) -> None:
    with pytest.raises(Refused, match=words):
        Grid(given)


def test_a_condition_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grid_module, "CONDITION_SECONDS", 0.3)
    with pytest.raises(Refused, match=r"takes over 0\.3 s"):
        Grid({"BLOCK_M": (16,)}, "(select count(*) from range(100000000000)) > 0").cells()


def test_a_million_cells() -> None:
    grid = Grid({"seed": tuple(range(1000)), "batch": tuple(range(1, 1001))})
    with pytest.raises(Refused, match=r"1,000,000 cells, above 100,000.*12 days"):
        grid.cells()
    assert Grid(grid.given, "batch <= 3").count == 3_000


def test_words_are_read_back() -> None:
    given = {"causal": (False, True), "window": (None, 8), "dtype": ("float16",), "BLOCK_M": (16,)}
    grid = Grid(given)
    assert list(grid.words) == [name for name in AXES if name in given]
    assert read_axes(grid.words) == given


def test_the_estimate_counts_tile_steps_where_they_are_interpreted() -> None:
    grid = Grid(SMALL | {"BLOCK_M": (16, 32), "BLOCK_N": (16,)})
    # 4 × 4 and 2 × 4 tiles of one head at 6 ms each, 0.05 s a cell besides, on two workers.
    assert estimate(grid, on_gpu=False, workers=2) == pytest.approx((24 * 0.006 + 2 * 0.05) / 2)
    assert estimate(grid, on_gpu=True, workers=1) == 2.0
