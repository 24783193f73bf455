"""A Run's softmax trace in the order in which its programs went through the tiles."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from app.softmax_state import Floats, Order, RowState, before, is_whole, merged, unpacked
from app.subject import walk_of
from kernels.walk import Walk
from profiler.run import Run, SoftmaxTrace

STATE = ("m", "l", "alpha", "acc_norm", "exact_m", "exact_l", "exact_acc_norm")


@dataclass(frozen=True, eq=False)
class Recording:
    """A whole trace beside the Walk of the programs that wrote it."""

    trace: SoftmaxTrace
    walk: Walk

    @property
    def batch_head(self) -> int:
        """The traced (batch, head), counted as programs are."""
        return self._first[0]

    @property
    def offset(self) -> int:
        """From a row of the trace to that of the score matrix as the kernel cuts it: not 0 where heads are rows."""
        return self._first[1] - self.trace.row_start

    @cached_property
    def _first(self) -> tuple[int, int]:
        """(batch, head) as one number, and row, at which the trace's first row stands in the matrices that are cut."""
        return self.walk.grid.place_of(self.trace.batch, self.trace.head, self.trace.row_start)

    def q_tile(self, row: int) -> int:
        """The Q tile in which a row of the trace lies."""
        return (row + self.offset) // self.walk.grid.BLOCK_M

    def row(self, row: int) -> RowState:
        """The state of one row, clamped to those that were recorded."""
        row = min(max(row, self.trace.row_start), self.trace.row_stop - 1)
        parts = [unpacked(getattr(self.trace, name))[row - self.trace.row_start] for name in STATE]
        return RowState(row, self._met(self.q_tile(row), parts[0]), *parts)

    @cached_property
    def before(self) -> Floats:
        """m before each tile, [rows, kv_tiles]; −inf where a state starts, NaN where no state meets the tile."""
        m = unpacked(self.trace.m)
        return np.concatenate([before(m[part], states) for part, states in self._by_q_tile()])

    @cached_property
    def place(self) -> NDArray[np.int64]:
        """How many tiles a state had met before each tile, [rows, kv_tiles]; −1 where no state meets it."""
        found = np.full(self.trace.m.shape, -1, dtype=np.int64)
        for part, states in self._by_q_tile():
            for order in states:
                found[part, order] = np.arange(len(order))
        return found

    @cached_property
    def rescale(self) -> Floats:
        """alpha [rows, kv_tiles] where something had been summed before; NaN elsewhere."""
        return np.where(np.isfinite(self.before), unpacked(self.trace.alpha), np.nan)

    def totals(self, exact: bool) -> tuple[Floats, Floats]:
        """m and l of every whole row [rows], the states of a row merged; from the kernel's values or the exact ones."""
        m, l = (unpacked(getattr(self.trace, f"exact_{name}" if exact else name)) for name in ("m", "l"))  # noqa: E741
        parts = [merged(m[part], l[part], states) for part, states in self._by_q_tile()]
        return np.concatenate([top for top, _ in parts]), np.concatenate([total for _, total in parts])

    @cached_property
    def shares(self) -> int:
        """The most running states that a recorded row has; 1 but where programs share rows."""
        return max((len(states) for _, states in self._by_q_tile()), default=0)

    def scores(self, row: int) -> Floats | None:
        """The scaled scores of a row [seq_len_kv], −inf where masked, NaN where not visited; None if not kept."""
        kept = self.trace.scores
        at = row - self.trace.score_start
        if kept is None or not 0 <= at < kept.shape[0]:
            return None
        return np.asarray(unpacked(kept)[at])

    @property
    def last_tiles(self) -> tuple[int, ...]:
        """The last KV tile of each running state of the rows whose acc was kept: after it acc is complete."""
        q_tile = self.q_tile(self.trace.acc_tile * self.walk.grid.BLOCK_M)
        return tuple(order[-1] for order in self.walk.states_of(self.batch_head, q_tile) if len(order))

    def _met(self, q_tile: int, m: Floats) -> tuple[Order, ...]:
        """The tiles of each state in order; those alone that were recorded, and no state without any."""
        orders = (np.array(order, dtype=np.int64) for order in self.walk.states_of(self.batch_head, q_tile))
        met = (order[~np.isnan(m[order])] for order in orders)
        return tuple(order for order in met if len(order))

    def _by_q_tile(self) -> Iterator[tuple[slice, tuple[Order, ...]]]:
        """(recorded rows, their states) of each Q tile; all rows of a Q tile share its programs."""
        block, (start, stop) = self.walk.grid.BLOCK_M, (self._first[1], self.trace.row_stop + self.offset)
        m = unpacked(self.trace.m)
        edges = [start, *range((start // block + 1) * block, stop, block), stop]
        for first, end in pairwise(edges):
            yield slice(first - start, end - start), self._met(first // block, m[first - start])


@lru_cache(maxsize=32)
def recording(run: Run) -> Recording | None:
    """The Run's trace; None where it recorded none, it does not fit together, or its programs' walk is not known."""
    walk = walk_of(run)
    if run.softmax is None or walk is None or not is_whole(run.softmax):
        return None
    return Recording(run.softmax, walk)
