"""States in the order in which programs meet the tiles: forwards, backwards, several to a row; what is counted."""

from math import log

import numpy as np
import pytest

from app import softmax_differences, softmax_moves, softmax_pages
from app.softmax_chart import accumulator, row_panels
from app.style import LIGHT
from tests.softmax_traces import recorded, shared_walk, walk_of

NAN = np.nan
LN2 = log(2)
ROW = [0.0, 0.0, LN2, LN2, 1.0, 1.0]  # in tiles of two: m = 0, ln 2, 1 forwards and 1, 1, 1 backwards


def test_a_backward_row_counts_its_moves_along_its_own_order() -> None:
    """Row 0 goes forwards and row 1, of the next wave, backwards: it meets its maximum at once."""
    found = recorded([ROW, ROW], walk_of([ROW, ROW], 2, wave=1))
    there, back = found.row(0), found.row(1)
    assert (there.visited.tolist(), there.moves.tolist(), there.is_backward) == ([0, 1, 2], [1, 2], False)
    assert (back.visited.tolist(), back.moves.tolist(), back.is_backward) == ([2, 1, 0], [], True)
    np.testing.assert_allclose(there.rescale, [NAN, 0.5, 2 * np.exp(-1)], rtol=1e-6)
    np.testing.assert_array_equal(back.rescale, [1, 1, NAN])
    np.testing.assert_array_equal(found.place, [[0, 1, 2], [2, 1, 0]])
    line = next(trace for trace in row_panels(back, None, LIGHT).data if trace.mode == "lines")
    assert line.x[:3].tolist() == [2, 1, 0], "drawn the way the program went"
    assert "scanned backwards" in softmax_pages.along_row(back, None, LIGHT).caption
    assert "backwards" not in softmax_pages.along_row(there, None, LIGHT).caption


def test_a_state_that_starts_afresh_is_no_move_and_the_merge_joins_them() -> None:
    """Programs of tiles 0, 1 and of tile 2: m_1 = ln 2, l_1 = 3; m_2 = 1, l_2 = 2; together l = 3 · 2 / e + 2."""
    found = recorded([ROW], shared_walk([ROW], 2, {0: (0, 2), 1: (2, 3)}))
    state = found.row(0)
    assert [order.tolist() for order in state.states] == [[0, 1], [2]]
    assert (state.moves.tolist(), state.restarts.tolist(), state.rescalable) == ([1], [2], 1)
    np.testing.assert_allclose(state.rescale, [NAN, 0.5, NAN])
    whole = np.array(ROW)
    assert state.total == pytest.approx((1, np.exp(whole - 1).sum()), rel=1e-6)
    assert state.total.l == pytest.approx(6 / np.e + 2, rel=1e-6)
    caption = softmax_pages.along_row(state, None, LIGHT).caption
    assert "2 programs share the row" in caption and "l = Σ l_i · exp(m_i − m) = 4.20728; exactly 4.20728." in caption
    figure = row_panels(state, None, LIGHT)
    assert [note.text for note in figure.layout.annotations if note.text == "state 2"]
    rows = softmax_differences.table(found, state).rows
    assert [row[0] for row in rows[-4:]] == [
        "merged m, relative",
        "merged m, absolute",
        "merged l, relative",
        "merged l, absolute",
    ]


def test_shares_that_see_nothing_are_no_state() -> None:
    found = recorded([ROW], shared_walk([ROW], 2, {0: (0, 3), 1: (3, 3)}))
    assert len(found.row(0).states) == 1 and found.shares == 1


def test_moves_of_all_rows_by_step() -> None:
    """Rows: m = 0, ln 2, 1 (moves twice); 1, 1, 1 (never); −∞, 0, 5 (the first finite one is no move; then one)."""
    rows = [ROW, [1.0, 1, 0, 0, 0, 0], [-np.inf, -np.inf, 0, 0, 5, 5]]
    found = softmax_moves.moves(recorded(rows, walk_of(rows, 2)))
    assert found.by_step.tolist() == [0, 2, 3] and found.moved_by_step.tolist() == [0, 1, 2]
    assert (found.steps, found.moved, found.share) == (5, 3, 0.6)
    assert softmax_moves.sentence(found) == (
        "The maximum moved in 60.0% of 5 steps; in 40.0% α was 1 and the rescale did nothing."
    )
    shown = softmax_moves.picture(found, LIGHT)
    assert shown is not None
    bars, line = shown.chart.data
    np.testing.assert_allclose(bars.y, [50, 200 / 3])
    np.testing.assert_allclose(line.y, [50, 100 / 3])
    assert bars.x.tolist() == [2, 3]


def test_one_tile_never_rescales() -> None:
    found = softmax_moves.moves(recorded([[1.0, 2.0]], walk_of([[1.0, 2.0]], 2)))
    assert found.share is None and "in one step" in softmax_moves.sentence(found)
    assert softmax_moves.figure(found).reason
    assert softmax_moves.picture(found, LIGHT) is None


def test_many_steps_are_drawn_as_stretches() -> None:
    rows = [list(np.arange(1000.0)), list(-np.arange(1000.0))]
    found = softmax_moves.moves(recorded(rows, walk_of(rows, 1)))
    shown = softmax_moves.picture(found, LIGHT)
    assert shown is not None
    bars, _ = shown.chart.data
    assert len(bars.y) == 200 and bars.y.tolist() == [50.0] * 200


def test_the_largest_differences_know_their_place() -> None:
    """l is off by 0.5 everywhere: least relative where l is largest, most where it is 1 (row 1, KV tile 0)."""
    rows = [[0.0, 0, 0, 0], [-9.0, 0, 0, 0]]
    found = recorded(rows, walk_of(rows, 2), l_error=0.5)
    worst = softmax_differences.largest(found)
    relative, none = worst["l", "relative"], worst["m", "absolute"]
    assert relative is not None and none is not None
    assert (relative.row, relative.kv_tile) == (1, 0)
    assert relative.value == pytest.approx(0.5 / (1 + np.exp(-9)), rel=1e-6)
    assert none.value == 0
    table = softmax_differences.table(found, found.row(0))
    assert {row[0]: row[1:] for row in table.rows}["l, relative"] == ("5.0e-1", "1", "0", "2.5e-1")
    assert list(softmax_differences.places(found)) == ["l"]


def test_rows_that_see_nothing_have_no_difference() -> None:
    blind = [[-np.inf, -np.inf]]
    found = recorded(blind, walk_of(blind, 2))
    table = softmax_differences.table(found, found.row(0))
    assert table.rows[0] == ("m, relative", "–", "–", "–", "–") and table.reasons[0][1]
    assert softmax_differences.places(found) == {}


@pytest.mark.parametrize(("rows", "step"), [(1, 1), (6, 1), (7, None), (64, None)])
def test_no_row_is_told_twice_at_the_axis(rows: int, step: int | None) -> None:
    """Plotly puts ticks at halves where there is room, and without decimals two of them are the same number."""
    axis = accumulator(np.ones((rows, 4)), 8, 8, LIGHT).layout.yaxis
    assert (axis.dtick, tuple(axis.range)) == (step, (7.5 + rows, 7.5))
