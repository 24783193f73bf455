"""Softmax of a row of scores that is seen block by block: what breaks, and the m and l that mend it."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Refused

Scores = Sequence[float] | NDArray[np.float64]


class RowState(NamedTuple):
    """What is kept of a row after a block: m, l and the alpha that brought the l before it to this m.

    alpha is 0 at the first block, where nothing had been summed.
    """

    m: float
    l: float  # noqa: E741 - the name in the papers
    alpha: float


def softmax(scores: Scores) -> NDArray[np.float64]:
    """exp(s − m) / Σ exp(s − m) over the whole row, float64 [scores]; 0 everywhere if every score is −inf."""
    row = np.asarray(scores, dtype=np.float64)
    m = row.max(initial=-np.inf)
    weights = np.exp(row - m) if np.isfinite(m) else np.zeros_like(row)
    return np.asarray(weights / (weights.sum() or 1.0))


def glued_local_softmax(scores: Scores, block: int) -> NDArray[np.float64]:
    """Each block's own softmax, side by side: not the row's softmax, since it sums to the number of blocks.

    Raises Refused for an empty row or block.
    """
    return np.concatenate([softmax(part) for part in _blocks(scores, block)])


def prefix_states(scores: Scores, block: int) -> tuple[RowState, ...]:
    """m, l and alpha after each block; the last m and l are those of the whole row.

    l = alpha · l_old + Σ exp(s − m): Milakov and Gimelshein 2018, Algorithm 3. Raises Refused for an empty row or
    block.
    """
    states, m, total = [], -np.inf, 0.0
    for part in _blocks(scores, block):
        m_new = max(m, float(part.max()))
        # A row that has seen nothing yet has m = −inf; −inf − (−inf) would be NaN.
        shift = m_new if np.isfinite(m_new) else 0.0
        alpha = float(np.exp(m - shift))
        total = alpha * total + float(np.exp(part - shift).sum())
        m = m_new
        states.append(RowState(m, total, alpha))
    return tuple(states)


def _blocks(scores: Scores, block: int) -> Iterator[NDArray[np.float64]]:
    row = np.asarray(scores, dtype=np.float64)
    if not len(row) or block < 1:
        raise Refused(f"{len(row)} scores in blocks of {block} are nothing to sum; give at least one score a block.")
    return (row[start : start + block] for start in range(0, len(row), block))
