"""Scores worked out by hand: the article's row, strict reading, and a row of the running kernel."""

from dataclasses import replace
from math import inf, log

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.softmax_by_hand import ARTICLE, ARTICLE_BLOCK, block_of, blocks, keys, parse, sentence, spell, typed
from kernels.problem import Refused
from tests.softmax_traces import recorded, shared_walk, walk_of


def test_the_articles_row() -> None:
    scores = parse(ARTICLE)
    assert scores == (0, 0, log(2), log(2))
    assert sentence(scores, ARTICLE_BLOCK) == (
        "m = ln 2, l = 3, and exp(s − m) / l sums to 1. "
        "The blocks' own softmaxes, glued, sum to 2: 1 for each that sees a key."
    )
    assert blocks(scores, 2).rows == (("0", "0, 0", "0", "2", "–"), ("1", "ln 2, ln 2", "ln 2", "3", "1/2"))
    assert [row[3:] for row in keys(scores, 2).rows] == [("1/6", "1/2")] * 2 + [("1/3", "1/2")] * 2 + [("1", "2")]


@pytest.mark.parametrize(
    ("text", "scores"),
    [
        ("1", (1,)),
        (" -0.5 ,+2e-1, .25,3.", (-0.5, 0.2, 0.25, 3)),
        ("−2, LN 4, -ln 2, ln0.5", (-2, log(4), -log(2), log(0.5))),
        ("-inf, 0, −∞", (-inf, 0, -inf)),
    ],
)
def test_numbers_are_read(text: str, scores: tuple[float, ...]) -> None:
    assert parse(text) == pytest.approx(scores)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "There are no scores; write 1 to 16 numbers with commas between."),
        (" ", "There are no scores; write 1 to 16 numbers with commas between."),
        ("1,,2", "Score 2 is ''; write a number such as 0.5, -2, ln 2, or -inf for a hidden key."),
        ("1 2", "Score 1 is '1 2'; write a number"),
        ("__import__('os')", "Score 1 is \"__import__('os')\"; write a number"),
        ("2**3", "Score 1 is '2**3'; write a number"),
        ("inf", "Score 1 is 'inf'; write a number"),
        ("nan", "Score 1 is 'nan'; write a number"),
        ("ln 0", "Score 1 is 'ln 0'; write a number"),
        ("0x10", "Score 1 is '0x10'; write a number"),
        ("٣", "Score 1 is '٣'; write a number"),
        ("1e7", "Score 1 is 1e7; stay between −1,000,000 and 1,000,000."),
        ("1e999", "Score 1 is 1e999; stay between"),
        (",".join("1" * 17), "That is more than 16 scores; leave some out."),
        ("0" * 2000, "That is more than 16 scores; leave some out."),
    ],
)
def test_anything_else_is_refused_with_a_sentence(text: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        parse(text)
    assert str(refused.value).startswith(said)


@pytest.mark.parametrize(("asked", "shown"), [(0, "0"), (-1, "-1"), (5, "5"), (None, "empty"), (1.5, "1.5")])
def test_a_block_that_is_none_is_refused(asked: float | None, shown: str) -> None:
    with pytest.raises(Refused, match=rf"^The block size is {shown}; choose 1 to 4\.$"):
        block_of(asked, (0, 0, 1, 1))


def test_hidden_rows_and_single_blocks() -> None:
    assert "Every key is hidden" in sentence((-inf, -inf), 1)
    assert keys((-inf, 0.0), 1).rows[0] == ("0", "0", "−∞", "0", "0")
    assert "It is one block" in sentence((1.0, 2.0), 2)
    assert blocks((-inf, 0.0), 1).rows[0] == ("0", "−∞", "−∞", "0", "–")


def test_numbers_are_spelled_as_they_are_known() -> None:
    assert [spell(n) for n in (log(2), -0.5, 5 / 12, 1e-9, 0.0, 1234.5)] == [
        "ln 2",
        "−0.5",
        "5/12",
        "1e-09",
        "0",
        "1234.5",
    ]


def test_a_recorded_row_reads_back_bit_by_bit_and_stands_beside_the_kernels_state() -> None:
    rows = [[0.1, -0.3, 2.5, -np.inf]] * 2
    found = recorded(rows, walk_of(rows, 2))
    text = typed(found, found.row(1))
    assert text is not None
    np.testing.assert_array_equal(np.array(parse(text), np.float32), np.array(rows[1], np.float32))
    table = blocks(parse(text), 2, found.row(1))
    assert table.columns[-2:] == ("kernel's m", "kernel's l")
    assert table.rows[1][-2:] == ("2.5", f"{np.float32(1 + np.exp(-2.4) + np.exp(-2.8)):.7g}")


def test_rows_that_the_card_cannot_repeat() -> None:
    """Too many scores, none kept, met backwards, or by several states."""
    row = [[0.0] * 4] * 2
    many = [[0.0] * 17]
    for found, at in (
        (recorded(many, walk_of(many, 4)), 0),
        (recorded(row, walk_of(row, 2, wave=1)), 1),
        (recorded(row[:1], shared_walk(row, 2, {0: (0, 1), 1: (1, 2)})), 0),
    ):
        assert typed(found, found.row(at)) is None
    plain = recorded(row, walk_of(row, 2))
    assert typed(replace(plain, trace=replace(plain.trace, scores=None)), plain.row(0)) is None


def _card() -> None:
    from app import softmax_by_hand_card

    softmax_by_hand_card.draw(None, None)


def test_the_card_takes_the_readers_own_numbers() -> None:
    app = AppTest.from_function(_card, default_timeout=30).run()
    assert not app.exception
    assert "m = ln 2, l = 3" in _words(app)
    app.text_input(key="softmax.hand-scores.field").set_value("1, 1, 1").run()
    assert "m = 1, l = 3" in _words(app)
    app.number_input(key="softmax.hand-block.field").set_value(9).run()
    assert "The block size is 9; choose 1 to 3." in _words(app)
    app.text_input(key="softmax.hand-scores.field").set_value("<b>1</b>").run()
    assert "Score 1 is &#x27;&lt;b&gt;1&lt;/b&gt;&#x27;" in _words(app) and "<b>" not in _words(app)
    app.button(key="softmax.hand-article").click().run()
    assert app.text_input(key="softmax.hand-scores.field").value == ARTICLE
    assert not app.exception


def _words(app: AppTest) -> str:
    return " ".join(str(node.proto.body) for node in app.get("html"))
