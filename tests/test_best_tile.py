"""The best tile, and a sentence that the numbers bear out in every case."""

import re
from collections.abc import Sequence

import pytest

from app.best_tile import best, sentence
from app.block_board import Board, Cell
from app.block_scatter import pareto, points
from tests.fake_boards import cell

FIT = "of the tiles that fit"


def timed(m: int, n: int, ms: float, gb: float | None = None, ctas: int | None = None, spills: int = 0) -> Cell:
    moved = None if gb is None else gb * 1e9
    values = {"gpu_time_seconds": ms * 1e-3, "flops_per_second": 4e14, "l2_sm_bytes": moved}
    return cell(m, n, ctas_per_sm=ctas, spill_bytes=None if ctas is None else spills, **values)


def of(cells: Sequence[Cell]) -> Board:
    return Board("H200", tuple(cells))


@pytest.mark.parametrize(
    ("cells", "name", "words"),
    [
        ([timed(64, 64, 1.0)], "64×64", "No other tile has been timed."),
        ([timed(64, 64, 1.0), timed(32, 64, 2.0)], "64×64", "the fastest of 2 tiles; L2↔SM bytes"),
        ([timed(128, 64, 1.0, 2.0), timed(64, 64, 2.0, 4.0)], "128×64", "also moves the fewest bytes"),
        # Within one percent is no fewer.
        ([timed(128, 64, 1.0, 2.01), timed(64, 64, 2.0, 2.0)], "128×64", "also moves the fewest bytes"),
        ([timed(64, 64, 1.0, 4.0), timed(128, 64, 2.0, 2.0)], "64×64", "128×64 moves fewer bytes .* compile to see"),
        (
            [timed(64, 64, 1.0, 4.0, ctas=2), timed(128, 64, 2.0, 2.0, ctas=1), timed(32, 64, 2.0, 8.0, ctas=4)],
            "64×64",
            "fewest bytes between L2 and the SMs of the tiles that keep two CTAs on an SM\\.",
        ),
        (
            [timed(64, 64, 1.0, 4.0, ctas=2), timed(128, 64, 2.0, 2.0, ctas=2, spills=64)],
            "64×64",
            "of the tiles that spill nothing\\.",
        ),
        (
            [
                timed(64, 64, 1.0, 4.0, ctas=2),
                timed(128, 64, 2.0, 2.0, ctas=1),
                timed(256, 64, 3.0, 1.0, ctas=2, spills=8),
            ],
            "64×64",
            "of the tiles that keep two CTAs on an SM and spill nothing\\.",
        ),
        (
            [timed(64, 64, 1.0, 4.0, ctas=2), timed(128, 64, 2.0, 2.0, ctas=2)],
            "64×64",
            "128×64 moves fewer bytes between L2 and the SMs and is slower for a reason that these numbers do not show",
        ),
    ],
)
def test_the_fastest_and_why(cells: Sequence[Cell], name: str, words: str) -> None:
    found = best(of(cells))
    assert found is not None and (found.cell.name, found.is_measured) == (name, True)
    assert re.search(words, found.sentence), found.sentence
    verb = "takes" if len(cells) == 1 else "is fastest:"
    assert sentence(found) == f"{name} {verb} 1.00 ms, 400 TFLOP/s."


def compiled(
    m: int, n: int, requested: float, ctas: int, spills: int = 0, why_not: str = "", waves: float = 8.0
) -> Cell:
    return cell(m, n, why_not, requested_bytes=requested, ctas_per_sm=ctas, spill_bytes=spills, waves=waves)


@pytest.mark.parametrize(
    ("cells", "name", "words"),
    [
        (
            [compiled(128, 64, 2e9, 2), compiled(256, 64, 1e9, 1), compiled(64, 64, 4e9, 4)],
            "128×64",
            f"{FIT}, give every SM a program, spill nothing and keep 8 warps or more on an SM. Nothing was timed.",
        ),
        (
            [compiled(128, 64, 2e9, 1), compiled(256, 64, 1e9, 1, spills=8)],
            "128×64",
            f"{FIT}, give every SM a program and spill nothing. Nothing was timed.",
        ),
        (
            [compiled(128, 64, 2e9, 1), compiled(256, 64, 1e9, 1)],
            "256×64",
            "give every SM a program and spill nothing.",
        ),
        (
            [compiled(128, 64, 2e9, 1, 8), compiled(256, 64, 1e9, 1, 16)],
            "256×64",
            f"{FIT} and give every SM a program; all of them spill.",
        ),
        ([compiled(64, 32, 2e9, 2), compiled(64, 64, 2e9, 2), compiled(64, 128, 2e9, 1)], "64×64", "8 warps or more"),
        (
            [
                compiled(256, 64, 1e9, 2, waves=0.01),
                compiled(16, 64, 8e9, 4, waves=0.2),
                compiled(16, 16, 8e9, 8, waves=0.1),
            ],
            "16×64",
            "No tile gives every SM a program; of those with the most programs",
        ),
        ([compiled(256, 64, 1e9, 1, waves=0.5), compiled(64, 64, 4e9, 2, waves=1.0)], "64×64", "8 warps or more"),
        ([compiled(128, 64, 2e9, 2), compiled(256, 64, 1e9, 2, why_not="Too large.")], "128×64", "8 warps or more"),
    ],
)
def test_untimed(cells: Sequence[Cell], name: str, words: str) -> None:
    found = best(of(cells))
    assert found is not None and (found.cell.name, found.is_measured) == (name, False)
    assert words in found.sentence and sentence(found) == f"{name} looks best, untimed."


def test_a_time_of_nothing_is_none() -> None:
    found = best(of([timed(64, 64, 0.0), timed(128, 64, 2.0)]))
    assert found is not None and found.cell.name == "128×64"


def test_nothing_known_has_no_best() -> None:
    assert best(of([])) is None
    assert best(of([cell(64, 64), cell(128, 64, requested_bytes=1e9)])) is None


def test_the_pareto_front() -> None:
    cells = [timed(16, 16, 5.0, 9.0), timed(32, 16, 3.0, 3.0), timed(64, 16, 4.0, 3.0), timed(128, 16, 6.0, 1.0)]
    cells += [timed(256, 16, 2.0, 6.0), timed(16, 32, 2.0, 7.0), cell(16, 64, gpu_time_seconds=1e-3)]
    found = points(cells)
    assert len(found) == 6
    assert [one.cell.name for one in pareto(found)] == ["128×16", "32×16", "256×16"]
