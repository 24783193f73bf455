"""What a SoftmaxTrace says about one row: the state after every KV tile, and how far it is from the exact prefix."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from profiler.codec import NotARun, PackedArray
from profiler.run import SoftmaxTrace

Floats = NDArray[np.float64]


@lru_cache(maxsize=16)
def unpacked(array: PackedArray) -> Floats:
    """The array as float64, kept between redraws."""
    return np.asarray(array.numpy(), dtype=np.float64)


def is_whole(trace: SoftmaxTrace) -> bool:
    """True where the trace's arrays fit together, as an imported one's may not."""
    state = (trace.m, trace.l, trace.alpha, trace.acc_norm, trace.exact_m, trace.exact_l, trace.exact_acc_norm)
    rows, tiles = trace.row_stop - trace.row_start, trace.m.shape[-1] if trace.m.shape else 0
    if rows <= 0 or tiles <= 0 or any(part.shape != (rows, tiles) for part in state) or len(trace.acc.shape) != 3:
        return False
    try:
        for part in (*state, trace.acc):
            unpacked(part)
    except NotARun:
        return False
    return trace.acc_start >= 0 and trace.acc_stride > 0


@dataclass(frozen=True)
class Difference:
    """The largest difference between kernel and exact value along a row; 0 where they agree to the last bit."""

    absolute: float
    relative: float


@dataclass(frozen=True)
class RowState:
    """One row's state after each KV tile, [kv_tiles], NaN where the mask skips the tile; m may be −inf."""

    row: int
    m: Floats
    l: Floats  # noqa: E741 - the name in the papers
    alpha: Floats
    acc_norm: Floats
    exact_m: Floats
    exact_l: Floats
    exact_acc_norm: Floats

    @property
    def visited(self) -> NDArray[np.int64]:
        """KV tiles that the row's program visits, in order."""
        return np.flatnonzero(~np.isnan(self.m))

    @property
    def rescale(self) -> Floats:
        """alpha where something had been summed before."""
        return rescale_factors(self.alpha[None, :], self.m[None, :]).ravel()

    @property
    def moves(self) -> NDArray[np.int64]:
        """KV tiles that raised a maximum which was already finite: what was summed before had to be rescaled."""
        visited = self.visited
        before, after = self.m[visited[:-1]], self.m[visited[1:]]
        return visited[1:][(after > before) & np.isfinite(before)]

    def difference(self, name: str) -> Difference | None:
        """Kernel against exact for "m", "l" or "acc_norm"; None where no finite pair exists."""
        value, exact = getattr(self, name), getattr(self, f"exact_{name}")
        pairs = np.isfinite(value) & np.isfinite(exact)
        if not pairs.any():
            return None
        apart = np.abs(value[pairs] - exact[pairs])
        size = np.abs(exact[pairs])
        relative = np.divide(apart, size, out=np.zeros_like(apart), where=size > 0)
        return Difference(float(apart.max()), float(relative.max()))


def row_state(trace: SoftmaxTrace, row: int) -> RowState:
    """The state of a traced row, clamped to the rows that were recorded."""
    row = min(max(row, trace.row_start), trace.row_stop - 1)
    parts = (trace.m, trace.l, trace.alpha, trace.acc_norm, trace.exact_m, trace.exact_l, trace.exact_acc_norm)
    return RowState(row, *(unpacked(part)[row - trace.row_start] for part in parts))


def rescale_factors(alpha: Floats, m: Floats) -> Floats:
    """alpha [rows, kv_tiles] where m was finite before the tile; NaN where there was nothing to rescale yet."""
    before = np.concatenate([np.full((len(m), 1), np.nan), m[:, :-1]], axis=1)
    return np.where(np.isfinite(before), alpha, np.nan)


def pooled(values: Floats, rows: int, columns: int, largest: bool) -> tuple[Floats, int, int]:
    """[at most rows, at most columns] largest (or smallest) values of equal blocks, with the block's height and width.

    NaN only where a block holds nothing else.
    """
    height, width = (-(-size // most) for size, most in zip(values.shape, (rows, columns), strict=True))
    pick = np.fmax if largest else np.fmin
    by_row = pick.reduceat(values, np.arange(0, values.shape[0], height), axis=0)
    return np.asarray(pick.reduceat(by_row, np.arange(0, values.shape[1], width), axis=1)), height, width
