"""The article's row of scores by hand: what glued blocks sum to, and that m and l of two blocks are the row's."""

from math import exp, log

import numpy as np
import pytest

from kernels.online_softmax import glued_local_softmax, prefix_states, softmax
from kernels.problem import Refused

ROW = [0, 0, log(2), log(2)]


def test_the_articles_softmax() -> None:
    np.testing.assert_allclose(softmax(ROW), [1 / 6, 1 / 6, 1 / 3, 1 / 3], rtol=1e-15)


def test_glued_blocks_are_halves_and_sum_to_two() -> None:
    glued = glued_local_softmax(ROW, 2)
    np.testing.assert_array_equal(glued, [0.5] * 4)
    assert glued.sum() == 2


@pytest.mark.parametrize(("scores", "block", "blocks"), [(7, 2, 4), (7, 7, 1), (7, 9, 1), (8, 1, 8)])
def test_glued_blocks_sum_to_their_number(scores: int, block: int, blocks: int) -> None:
    row = np.random.default_rng(0).normal(size=scores)
    assert glued_local_softmax(row, block).sum() == pytest.approx(blocks, rel=1e-12)


def test_m_and_l_after_each_block() -> None:
    """m: 0, then ln 2. l: 1 + 1, then 1/2 · 2 + 1 + 1. α: nothing to rescale, then exp(0 − ln 2)."""
    first, second = prefix_states(ROW, 2)
    assert first == (0, 2, 0)
    assert second.m == log(2)
    assert (second.l, second.alpha) == (pytest.approx(3, rel=1e-15), pytest.approx(0.5, rel=1e-15))
    weights = np.exp(np.array(ROW) - second.m) / second.l
    np.testing.assert_allclose(weights, softmax(ROW), rtol=1e-15)


def test_the_maximum_may_come_first() -> None:
    """[ln 2] then [0]: m stays, so α is 1 and l = 1 + 1/2."""
    assert prefix_states([log(2), 0], 1)[1] == (log(2), pytest.approx(1.5), 1)


@pytest.mark.parametrize("block", [1, 3, 16, 100])
def test_the_last_state_is_that_of_the_whole_row(block: int) -> None:
    row = np.random.default_rng(1).normal(scale=20, size=65)
    last = prefix_states(row, block)[-1]
    assert last.m == row.max()
    assert last.l == pytest.approx(np.exp(row - row.max()).sum(), rel=1e-13)


def test_large_scores_do_not_overflow() -> None:
    assert prefix_states([1e4, 1e4 + 1], 1)[-1].l == pytest.approx(1 + exp(-1))
    np.testing.assert_allclose(softmax([1e4, 1e4]), [0.5, 0.5])


def test_hidden_scores_weigh_nothing() -> None:
    hidden = -np.inf
    assert prefix_states([hidden, hidden, 1.0], 2) == ((hidden, 0, 0), (1, 1, 0))
    np.testing.assert_array_equal(softmax([hidden, hidden]), [0, 0])
    np.testing.assert_array_equal(softmax([hidden, 3.0]), [0, 1])


@pytest.mark.parametrize(("row", "block"), [([], 2), ([1.0], 0)])
def test_nothing_to_sum_is_refused(row: list[float], block: int) -> None:
    for function in (glued_local_softmax, prefix_states):
        with pytest.raises(Refused, match="at least one score"):
            function(row, block)
