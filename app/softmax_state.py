"""What a SoftmaxTrace says about one row: its states in the order of their tiles, and how far they are from exact."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from profiler.codec import NotARun, PackedArray
from profiler.run import SoftmaxTrace

Floats = NDArray[np.float64]
Order = NDArray[np.int64]  # KV tiles as a running state meets them


@lru_cache(maxsize=64)
def unpacked(array: PackedArray) -> Floats:
    """The array as float64, kept between redraws."""
    return np.asarray(array.numpy(), dtype=np.float64)


def is_whole(trace: SoftmaxTrace) -> bool:
    """True where the trace's arrays fit together, as an imported one's may not."""
    state = (trace.m, trace.l, trace.alpha, trace.acc_norm, trace.exact_m, trace.exact_l, trace.exact_acc_norm)
    rows, tiles = trace.row_stop - trace.row_start, trace.m.shape[-1] if trace.m.shape else 0
    if rows <= 0 or tiles <= 0 or any(part.shape != (rows, tiles) for part in state) or len(trace.acc.shape) != 3:
        return False
    scores = () if trace.scores is None else (trace.scores,)
    try:
        for part in (*state, trace.acc, *scores):
            unpacked(part)
    except NotARun:
        return False
    return trace.acc_start >= 0 and trace.acc_stride > 0 and all(len(part.shape) == 2 for part in scores)


@dataclass(frozen=True)
class Difference:
    """The largest difference between kernel and exact value along a row; 0 where they agree to the last bit."""

    absolute: float
    relative: float


class Total(NamedTuple):
    """m and l of a whole row."""

    m: float
    l: float  # noqa: E741 - the name in the papers


@dataclass(frozen=True)
class RowState:
    """One row's state after each KV tile, [kv_tiles], NaN where no state meets the tile; m may be −inf.

    `states` are the tiles that each of the row's running states meets, in order: one, or several where programs share
    the row.
    """

    row: int
    states: tuple[Order, ...]
    m: Floats
    l: Floats  # noqa: E741 - the name in the papers
    alpha: Floats
    acc_norm: Floats
    exact_m: Floats
    exact_l: Floats
    exact_acc_norm: Floats

    @property
    def visited(self) -> Order:
        """KV tiles that the row's programs visit, state by state in order."""
        return np.concatenate([np.zeros(0, dtype=np.int64), *self.states])

    @property
    def restarts(self) -> Order:
        """The first KV tile of every state but the first: m, l and acc start afresh there."""
        return np.array([order[0] for order in self.states[1:]], dtype=np.int64)

    @property
    def is_backward(self) -> bool:
        """True where the row's tiles are met from the last to the first."""
        return any(len(order) > 1 and order[0] > order[-1] for order in self.states)

    @property
    def before(self) -> Floats:
        """m before each tile, [kv_tiles]; −inf where a state starts, NaN where no state meets the tile."""
        return np.asarray(before(self.m[None, :], self.states)[0])

    @property
    def rescale(self) -> Floats:
        """alpha where something had been summed before; NaN elsewhere."""
        return np.where(np.isfinite(self.before), self.alpha, np.nan)

    @property
    def moves(self) -> Order:
        """KV tiles, in order, that raised a finite maximum: what was summed before had to be rescaled."""
        visited, earlier = self.visited, self.before
        return visited[np.isfinite(earlier[visited]) & (self.m[visited] > earlier[visited])]

    @property
    def rescalable(self) -> int:
        """Steps at which there was something to rescale: those whose maximum was finite before."""
        return int(np.isfinite(self.before).sum())

    @property
    def total(self) -> Total:
        """m and l of the whole row: the states' last ones, merged."""
        m, l = merged(self.m[None, :], self.l[None, :], self.states)  # noqa: E741
        return Total(float(m[0]), float(l[0]))

    @property
    def exact_total(self) -> Total:
        """The same from the exact values."""
        m, l = merged(self.exact_m[None, :], self.exact_l[None, :], self.states)  # noqa: E741
        return Total(float(m[0]), float(l[0]))

    def difference(self, name: str) -> Difference | None:
        """Kernel against exact for "m", "l" or "acc_norm"; None where no finite pair exists."""
        apart, relative = differences(getattr(self, name), getattr(self, f"exact_{name}"))
        if np.isnan(apart).all():
            return None
        return Difference(float(np.nanmax(apart)), float(np.nanmax(relative)))


def before(m: Floats, states: Iterable[Order]) -> Floats:
    """m [rows, kv_tiles] as it was before each tile; −inf where a state starts, NaN where none meets the tile."""
    found = np.full_like(m, np.nan)
    for order in states:
        if len(order):
            found[:, order[0]] = -np.inf
            found[:, order[1:]] = m[:, order[:-1]]
    return found


def merged(m: Floats, l: Floats, states: Iterable[Order]) -> tuple[Floats, Floats]:  # noqa: E741
    """(m, l) of whole rows [rows] from the last ones of their states: the largest m, and Σ l_i · exp(m_i − m).

    −inf and 0 where no state has seen a key.
    """
    ends = [order[-1] for order in states if len(order)]
    top = m[:, ends].max(axis=1, initial=-np.inf)
    shift = np.where(np.isfinite(top), top, 0.0)[:, None]
    return top, (l[:, ends] * np.exp(m[:, ends] - shift)).sum(axis=1)


def differences(values: Floats, exact: Floats) -> tuple[Floats, Floats]:
    """|kernel − exact| and the same over |exact|, NaN where either is not finite; 0 / 0 is 0."""
    finite = np.isfinite(values) & np.isfinite(exact)
    apart = np.abs(np.subtract(values, exact, out=np.full_like(values, np.nan), where=finite))
    size = np.abs(exact)
    relative = np.divide(apart, size, out=np.where(finite, 0.0, np.nan), where=finite & (size > 0))
    return apart, relative


def pooled(values: Floats, rows: int, columns: int, largest: bool) -> tuple[Floats, int, int]:
    """[at most rows, at most columns] largest (or smallest) values of equal blocks, with the block's height and width.

    NaN only where a block holds nothing else.
    """
    height, width = (-(-size // most) for size, most in zip(values.shape, (rows, columns), strict=True))
    pick = np.fmax if largest else np.fmin
    by_row = pick.reduceat(values, np.arange(0, values.shape[0], height), axis=0)
    return np.asarray(pick.reduceat(by_row, np.arange(0, values.shape[1], width), axis=1)), height, width
