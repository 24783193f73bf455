"""The online softmax of a few scores by hand, block by block: the article's row, or one that a reader types in."""

import math
import re
from collections.abc import Sequence

import numpy as np

from app.picture import Table
from app.softmax_recording import Recording
from app.softmax_state import RowState
from kernels.online_softmax import glued_local_softmax, prefix_states, softmax
from kernels.problem import Refused

ARTICLE, ARTICLE_BLOCK = "0, 0, ln 2, ln 2", 2
MOST_SCORES = 16
LARGEST = 1e6
MOST_TEXT = 1000  # characters
SAME = 1e-12
MOST_PARTS = 12  # of a fraction
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d{1,3})?", re.ASCII)
_LOGARITHM = re.compile(r"([+-]?)ln ?(\d+\.?\d*|\.\d+)", re.ASCII)


def parse(text: str) -> tuple[float, ...]:
    """Scores from text: numbers, "ln 2" or "-inf" (a hidden key), with commas between. Raises Refused."""
    if not text.strip():
        raise Refused(f"There are no scores; write 1 to {MOST_SCORES} numbers with commas between.")
    parts = text[:MOST_TEXT].split(",")
    if len(parts) > MOST_SCORES or len(text) > MOST_TEXT:
        raise Refused(f"That is more than {MOST_SCORES} scores; leave some out.")
    return tuple(_score(place, part.strip().lower().replace("−", "-")) for place, part in enumerate(parts, start=1))


def _score(place: int, text: str) -> float:
    if text in ("-inf", "-∞"):
        return -math.inf
    logarithm = _LOGARITHM.fullmatch(text)
    if logarithm and float(logarithm[2]) > 0:
        return math.log(float(logarithm[2])) * (-1 if logarithm[1] == "-" else 1)
    if not _NUMBER.fullmatch(text):
        raise Refused(
            f"Score {place} is {text[:20]!r}; write a number such as 0.5, -2, ln 2, or -inf for a hidden key."
        )
    value = float(text)
    if abs(value) > LARGEST:
        raise Refused(f"Score {place} is {text[:20]}; stay between −1,000,000 and 1,000,000.")
    return value


def block_of(asked: float | None, scores: Sequence[float]) -> int:
    """The block size. Raises Refused where it is none for these scores."""
    if asked is None or asked != int(asked) or not 1 <= asked <= len(scores):
        shown = "empty" if asked is None else f"{asked:g}"
        raise Refused(f"The block size is {shown}; choose 1 to {len(scores)}.")
    return int(asked)


def sentence(scores: Sequence[float], block: int) -> str:
    """What the online softmax gives, and what the blocks' own softmaxes glued together give instead."""
    end, glued = prefix_states(scores, block)[-1], glued_local_softmax(scores, block)
    if not math.isfinite(end.m):
        return "Every key is hidden: m is −∞, l is 0, and so is every probability."
    total = spell(float(softmax(scores).sum()))
    right = f"m = {_score_text(end.m)}, l = {spell(end.l)}, and exp(s − m) / l sums to {total}."
    if block >= len(scores):
        return f"{right} It is one block: its own softmax is the row's."
    return f"{right} The blocks' own softmaxes, glued, sum to {spell(float(glued.sum()))}: 1 for each that sees a key."


def blocks(scores: Sequence[float], block: int, kernel: RowState | None = None) -> Table:
    """m, l and alpha after each block; beside them the running kernel's where it had this very row."""
    rows, reasons = [], []
    before = 0.0  # l
    for place, state in enumerate(prefix_states(scores, block)):
        part = scores[place * block : (place + 1) * block]
        first = "nothing was summed before" if before == 0 else ""
        row = [
            f"{place}",
            ", ".join(map(spell, part)),
            spell(state.m),
            spell(state.l),
            "–" if first else spell(state.alpha),
        ]
        reason = ["", "", "", "", first]
        if kernel is not None:
            skipped = np.isnan(kernel.m[place])
            row += ["–", "–"] if skipped else [_float32(kernel.m[place]), _float32(kernel.l[place])]
            reason += ["the kernel skips this tile: the mask hides it"] * 2 if skipped else ["", ""]
        before = state.l
        rows.append(tuple(row))
        reasons.append(tuple(reason))
    columns = ["block", "scores", "m", "l", "α"]
    if kernel is not None:
        columns += ["kernel's m", "kernel's l"]
    return Table("After each block", "float64, as this page is drawn", tuple(columns), tuple(rows), tuple(reasons))


def keys(scores: Sequence[float], block: int) -> Table:
    """Each key's probability, and what its block alone would give it."""
    whole, glued = softmax(scores), glued_local_softmax(scores, block)
    rows = [
        (f"{key}", f"{key // block}", _score_text(score), spell(float(p)), spell(float(own)))
        for key, (score, p, own) in enumerate(zip(scores, whole, glued, strict=True))
    ]
    rows.append(("sum", "", "", spell(float(whole.sum())), spell(float(glued.sum()))))
    columns = ("key", "block", "s", "exp(s − m) / l", "blocks glued")
    return Table("Key by key", "", columns, tuple(rows))


def typed(found: Recording, state: RowState) -> str | None:
    """The scores of a recorded row as `parse` reads them; None where they are many, not kept or met backwards."""
    kept = found.scores(state.row)
    if kept is None or len(kept) > MOST_SCORES or len(state.states) != 1 or state.is_backward:
        return None
    return ", ".join("-inf" if not np.isfinite(score) else f"{score:.9g}" for score in kept)


def spell(number: float) -> str:
    """A number as it is known: ln 2, a fraction such as 1/6 below 1, else its first digits."""
    if number == -math.inf:
        return "−∞"
    if abs(number - math.log(2)) < SAME:
        return "ln 2"
    below_one = (
        f"{round(number * n)}/{n}" for n in range(2, MOST_PARTS + 1) if abs(number * n - round(number * n)) < SAME
    )
    known = next(below_one, None) if 0.01 < number < 1 else None
    return known or _digits(number, 6)


def _digits(number: float, digits: int) -> str:
    text = f"{number:.{digits}g}"
    return f"−{text[1:]}" if text.startswith("-") else text


def _float32(value: float) -> str:
    return "−∞" if value == -math.inf else _digits(value, 7)


def _score_text(score: float) -> str:
    """A score as somebody would write it: no fractions."""
    return spell(score) if score == -math.inf or abs(score - math.log(2)) < SAME else _digits(score, 6)
