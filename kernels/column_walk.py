"""Programs that keep a KV tile and stream Q tiles past it: the state of every Q tile goes through HBM."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from kernels.problem import FLOAT32_BYTES, Int64Array
from kernels.tile_grid import TileGrid
from kernels.tile_step import TileStep
from kernels.walk import ProgramBytes, Walk

AnyCount = TypeVar("AnyCount", int, Int64Array)


@dataclass(frozen=True, eq=False)
class ColumnWalk(Walk):
    """One program for each (batch, head): KV tiles in rising order, and for each of them the Q tiles that see it.

    K and V of a column are read on its first visit. A visit reads Q and reads and writes acc, m and l of its Q tile.
    The program opens by writing acc, m and l of every Q tile, once begun, and closes after its last step by reading
    them and writing O and LSE. It always visits something, since the last query sees the last key.
    """

    grid: TileGrid

    @cached_property
    def q_first(self) -> Int64Array:
        """The first Q tile that sees each KV tile, int64 [kv_tiles]: those before it end too early along K/V."""
        return np.searchsorted(self.grid.last, np.arange(self.grid.kv_tiles), side="right").astype(np.int64)

    @cached_property
    def q_last(self) -> Int64Array:
        """The end of the Q tiles that see each KV tile, int64 [kv_tiles]: from it on they begin too late."""
        return np.searchsorted(self.grid.first, np.arange(self.grid.kv_tiles), side="right").astype(np.int64)

    @cached_property
    def start(self) -> Int64Array:
        """Visits before each column, and all of them at the end, int64 [kv_tiles + 1]."""
        return _sums_before(self.q_last - self.q_first)

    @cached_property
    def steps(self) -> Int64Array:
        """See Walk."""
        return self.start[-1:]

    def tile_of(self, program: int, step: int) -> tuple[int, int | None]:
        """See Walk."""
        column = int(self._column(np.array(step)))
        return int(self.q_first[column] + step - self.start[column]), column

    def when(self, batch_head: int, q_tile: int, kv_tile: int) -> tuple[int, int]:
        """See Walk."""
        first, last = int(self.grid.first[q_tile]), int(self.grid.last[q_tile])
        if first == last:
            return batch_head, 0
        column = min(max(kv_tile, first), last - 1)
        return batch_head, int(self.start[column] + q_tile - self.q_first[column])

    def order_of(self, batch_head: int, q_tile: Int64Array, kv_tile: Int64Array) -> NDArray[np.float64]:
        """See Walk."""
        first, last = self.q_first[kv_tile], self.q_last[kv_tile]
        seen = (first <= q_tile) & (q_tile < last)
        return np.where(seen, self.start[kv_tile] + q_tile - first, np.nan)

    def bytes_until(self, batch_head: int, done: Int64Array) -> ProgramBytes:
        """See Walk."""
        grid = self.grid
        begun, ended = (done >= 0).astype(np.int64), (done >= self.steps).astype(np.int64)
        # The last step made stands in a column: all of those before it were walked, and its own Q tiles so far.
        at = np.clip(done, 0, self.start[-1]) - 1
        column, stepped = self._column(at), (at >= 0).astype(np.int64)
        q_tile = self.q_first[column] + at - self.start[column] + 1
        visits = stepped * (self._visit_rows[column] + self._q_rows(self.q_first[column], q_tile))
        kv = stepped * self._kv_rows[column + 1] * grid.row_bytes
        none, rows = np.zeros_like(visits), grid.problem.seq_len_q
        read, written = self._state(visits + ended * rows), self._state(visits + begun * rows)
        return {
            "q": (visits * grid.row_bytes, none),
            "k": (kv, none),
            "v": (kv, none),
            **{tensor: (read[tensor], written[tensor]) for tensor in read},
            "o": (none, ended * rows * grid.row_bytes),
            "lse": (none, ended * rows * FLOAT32_BYTES),
        }

    def kv_reads_until(self, batch_head: int, done: Int64Array) -> tuple[Int64Array, Int64Array]:
        """See Walk."""
        read = ((self.start[:-1] < done) & (self.q_first < self.q_last)).astype(np.int64)
        return read, read

    def states_of(self, batch_head: int, q_tile: int) -> tuple[range, ...]:
        """See Walk."""
        return (range(int(self.grid.first[q_tile]), int(self.grid.last[q_tile])),)

    def program_steps(self, launch: str, program: int) -> Iterator[TileStep]:
        """See Walk. The opening is booked on the first visit, the closing on the last."""
        grid, all_rows, visits, visit = self.grid, self.grid.problem.seq_len_q, int(self.start[-1]), 0
        for kv_tile in range(grid.kv_tiles):
            kv_start, kv_rows = kv_tile * grid.BLOCK_N, int(grid.kv_rows(kv_tile, kv_tile + 1))
            q_first, q_last = int(self.q_first[kv_tile]), int(self.q_last[kv_tile])
            for q_tile in range(grid.q_tiles):
                step, rows, seen = kv_tile * grid.q_tiles + q_tile, int(grid.q_rows(q_tile)), q_first <= q_tile < q_last
                opens = seen and visit == 0
                closes = seen and visit == visits - 1
                reads = {"q": rows * grid.row_bytes} if seen else {}
                reads |= dict.fromkeys(("k", "v"), kv_rows * grid.row_bytes) if seen and q_tile == q_first else {}
                reads |= self._state(seen * rows + closes * all_rows) if seen else {}
                writes = self._state(seen * rows + opens * all_rows) if seen else {}
                writes |= {"o": all_rows * grid.row_bytes, "lse": all_rows * FLOAT32_BYTES} if closes else {}
                start = q_tile * grid.BLOCK_M
                q_range, kv_range = (start, start + rows), (kv_start, kv_start + kv_rows)
                yield TileStep(launch, program, step, q_range, kv_range, grid.mask_of(q_tile, kv_tile), reads, writes)
                visit += seen

    @cached_property
    def _visit_rows(self) -> Int64Array:
        """Rows of Q of all visits before each column, int64 [kv_tiles + 1]."""
        return _sums_before(self._q_rows(self.q_first, self.q_last))

    @cached_property
    def _kv_rows(self) -> Int64Array:
        """Rows of K that the columns before each one read, int64 [kv_tiles + 1]; one that nobody sees reads none."""
        column = np.arange(self.grid.kv_tiles)
        return _sums_before(self.grid.kv_rows(column, column + 1) * (self.q_first < self.q_last))

    def _column(self, step: Int64Array) -> Int64Array:
        """The column of each step; any one for a step that there is not."""
        return np.clip(np.searchsorted(self.start, step, side="right") - 1, 0, self.grid.kv_tiles - 1)

    def _q_rows(self, first: Int64Array, last: Int64Array) -> Int64Array:
        """Rows in the Q tiles [first, last)."""
        rows = self.grid.problem.seq_len_q
        return np.minimum(last * self.grid.BLOCK_M, rows) - np.minimum(first * self.grid.BLOCK_M, rows)

    def _state(self, rows: AnyCount) -> dict[str, AnyCount]:
        """Bytes of acc, m and l of so many rows."""
        return {"acc": rows * self.grid.problem.head_dim * FLOAT32_BYTES} | dict.fromkeys(
            ("m", "l"), rows * FLOAT32_BYTES
        )


def _sums_before(counts: Int64Array) -> Int64Array:
    """The sum of what stands before each count, and of all of them at the end."""
    return np.concatenate([[0], counts.cumsum()])
