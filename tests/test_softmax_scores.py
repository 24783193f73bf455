"""A row's scores: what each tile weighs, which key moved m, how they are drawn, and why there may be none."""

from dataclasses import replace
from math import log

import numpy as np
import pytest

from app import softmax_scores
from app.picture import Table
from app.softmax_recording import Recording
from app.softmax_scores import RowScores, row_scores
from app.softmax_scores_chart import running_maximum
from app.style import DARK, LIGHT
from kernels.problem import AttentionProblem
from kernels.row_walk import RowWalk
from kernels.tile_grid import TileGrid
from tests.softmax_traces import packed, recorded, walk_of

LN2 = log(2)
ROW = [0.0, 0.0, LN2, LN2]


def scores_of(row: list[float], block: int, **options: object) -> RowScores:
    found = recorded([row, row], walk_of([row, row], block, **options))
    one = row_scores(found, found.row(1))
    assert one is not None
    return one


def test_the_articles_row() -> None:
    """Probabilities 1/6, 1/6, 1/3, 1/3; key 2 moved m."""
    one = scores_of(ROW, 2)
    np.testing.assert_allclose(one.probabilities, [1 / 6, 1 / 6, 1 / 3, 1 / 3], rtol=1e-6)
    assert one.movers == [2]
    shares = softmax_scores.picture(one, None, LIGHT).chart.data[-1]
    np.testing.assert_allclose(shares.y, [100 / 3, 200 / 3], rtol=1e-6)
    printed = softmax_scores.table(one)
    assert isinstance(printed, Table)
    assert printed.rows[0] == ("0", "0", "0", "0.500", "0.167")
    assert printed.rows[3] == ("3", "1", "0.6931", "1.00", "0.333")


def test_hidden_keys_are_blank_and_weigh_nothing() -> None:
    seen = scores_of([1.0, 2.0, -np.inf, -np.inf], 2)
    one = replace(seen, scores=np.array([1.0, 2.0, -np.inf, np.nan]))
    assert np.isnan(one.visible[2:]).all() and one.probabilities[2:].tolist() == [0, 0]
    printed = softmax_scores.table(one)
    assert printed is not None and printed.rows[2][2] == "−∞" and printed.reasons[2][2] == "the mask hides this key"
    assert "together 1.000000" in softmax_scores.picture(one, 0, DARK).caption


def test_the_running_maximum_steps_where_the_state_enters_a_tile() -> None:
    """Forwards from key −½: 0, then ln 2 from key 1½; backwards ln 2 from key 3½ all the way to −½."""
    x, y = running_maximum(scores_of(ROW, 2).state, 2)
    assert x[:3].tolist() == [-0.5, 1.5, 3.5]
    np.testing.assert_allclose(y[:3], [0, LN2, LN2], rtol=1e-6)
    back = scores_of(ROW, 2, wave=1)
    x, y = running_maximum(back.state, 2)
    assert x[:2].tolist() == [3.5, -0.5] and np.isnan(x[2])
    np.testing.assert_allclose(y[:2], [LN2, LN2], rtol=1e-6)
    assert "right to left" in softmax_scores.picture(back, None, LIGHT).caption


def test_a_long_row_stays_small() -> None:
    """131,072 keys in 8,192 tiles, rising: every tile moves m; drawn as 400 bars at most, without points."""
    row = np.arange(131_072.0) / 1000
    problem = AttentionProblem(1, 1, 1, 1, len(row), 1, "float32")
    walk = RowWalk.whole_rows(TileGrid(problem, 1, 16), {})
    one = row_scores(recorded([row.tolist()], walk), recorded([row.tolist()], walk).row(0))
    assert one is not None
    figure = softmax_scores.picture(one, 3, LIGHT).chart
    assert len(figure.data[0].x) <= 400 and softmax_scores.table(one) is None
    assert len(figure.to_json()) < 2_000_000
    assert np.sum(figure.data[-1].y) == pytest.approx(100)


def test_why_there_are_none() -> None:
    found = recorded([ROW, ROW, ROW], walk_of([ROW, ROW, ROW], 2))
    one_row = replace(found.trace, scores=packed([ROW]), score_start=1)
    one_kept = Recording(one_row, found.walk)
    assert row_scores(one_kept, found.row(2)) is None
    assert softmax_scores.why_none(one_kept, found.row(2)) == (
        "Scores were kept of row 1 only; choose one of them, or run again with traced row 2."
    )
    assert (softmax_scores.nearest_kept(one_kept, 2), softmax_scores.nearest_kept(one_kept, 1)) == (1, None)
    old = Recording(replace(found.trace, scores=None), found.walk)
    assert softmax_scores.why_none(old, found.row(0)).startswith("This Run was made without keeping scores; run it")
    assert softmax_scores.nearest_kept(old, 0) is None
    long = TileGrid(AttentionProblem(1, 1, 1, 3, 2**18, 1, "float32"), 1, 2**17)
    too_long = Recording(old.trace, RowWalk.whole_rows(long, {}))
    assert softmax_scores.why_none(too_long, found.row(0)).startswith("A row of 262,144 scores is above the 131,072")
    blind = recorded([[-np.inf] * 4], walk_of([ROW], 2))
    assert row_scores(blind, blind.row(0)) is None
    assert "hides every key from row 0" in softmax_scores.why_none(blind, blind.row(0))
