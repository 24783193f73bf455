"""A Walk over the score matrix at the level of detail that a screen can show: cells of one or more tiles each."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.tile_moment import step_ends
from kernels.problem import Int64Array
from kernels.tile_grid import TileGrid
from kernels.walk import Walk

MOST_CELLS = 96  # along each side

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Cells:
    """A part of the score matrix as [rows, columns] cells; q_tiles and kv_tiles are the tiles at their edges.

    visited: share of a cell's tiles that are visited. partial: some of its tiles need the mask, or only some are
    visited. order: at which step of its program the tile in the cell's middle is visited first, and head_order the
    same counted over the programs of its (batch, head); NaN where no tile is visited.
    """

    grid: TileGrid
    q_tiles: Int64Array
    kv_tiles: Int64Array
    visited: Floats
    partial: NDArray[np.bool_]
    order: Floats
    head_order: Floats

    @property
    def q_step(self) -> int:
        """Q tiles a cell."""
        return int(self.q_tiles[1] - self.q_tiles[0])

    @property
    def kv_step(self) -> int:
        """KV tiles a cell."""
        return int(self.kv_tiles[1] - self.kv_tiles[0])

    @property
    def is_exact(self) -> bool:
        """True where one cell is one tile."""
        return self.q_step == self.kv_step == 1

    @property
    def rows(self) -> Int64Array:
        """Q rows at the cells' edges."""
        return np.minimum(self.q_tiles * self.grid.BLOCK_M, self.grid.problem.seq_len_q)

    @property
    def keys(self) -> Int64Array:
        """KV positions at the cells' edges."""
        return np.minimum(self.kv_tiles * self.grid.BLOCK_N, self.grid.problem.seq_len_kv)

    def cell_of(self, q_tile: int, kv_tile: int) -> tuple[int, int]:
        """(row, column) of the cell that holds a tile."""
        return (q_tile - int(self.q_tiles[0])) // self.q_step, (kv_tile - int(self.kv_tiles[0])) // self.kv_step


@lru_cache(maxsize=8)
def whole(walk: Walk, batch_head: int = 0, most: int = MOST_CELLS) -> Cells:
    """All tiles of one (batch, head) in at most `most` × `most` cells; kept, since it is the same at every step."""
    return _cells(walk, batch_head, (0, walk.grid.q_tiles), (0, walk.grid.kv_tiles), most)


def around(walk: Walk, batch_head: int, q_tile: int, kv_tile: int, reach: int = 8) -> Cells:
    """The tiles within `reach` of one tile, one cell each."""
    rows = _window(q_tile, reach, walk.grid.q_tiles)
    columns = _window(kv_tile, reach, walk.grid.kv_tiles)
    return _cells(walk, batch_head, rows, columns, 2 * reach + 1)


def _window(middle: int, reach: int, size: int) -> tuple[int, int]:
    start = max(0, min(middle - reach, size - 2 * reach - 1))
    return start, min(size, start + 2 * reach + 1)


def _cells(walk: Walk, batch_head: int, rows: tuple[int, int], columns: tuple[int, int], most: int) -> Cells:
    grid = walk.grid
    row_edges, column_edges = (
        np.append(np.arange(start, stop, -(-(stop - start) // most)), stop) for start, stop in (rows, columns)
    )
    size = np.diff(row_edges)[:, None] * np.diff(column_edges)
    visited = _tiles_between(grid.first, grid.last, row_edges, column_edges)
    full = _tiles_between(grid.full_first, grid.full_last, row_edges, column_edges)
    q_tile = (row_edges[:-1] + row_edges[1:] - 1)[:, None] // 2
    middle = (column_edges[:-1] + column_edges[1:] - 1) // 2
    # A cell at the edge of the mask may have its middle beyond it.
    kv_tile = np.clip(middle, grid.first[q_tile], np.maximum(grid.last[q_tile] - 1, grid.first[q_tile]))
    order = np.where(visited > 0, np.nan_to_num(walk.order_of(batch_head, q_tile, kv_tile)), np.nan)
    ends = np.append(0, step_ends(walk))
    head_order = order + ends[_programs(walk, batch_head, q_tile.ravel(), kv_tile)]
    share = visited / size
    return Cells(grid, row_edges, column_edges, share, (visited > 0) & (full < size), order, head_order)


def _programs(walk: Walk, batch_head: int, q_tiles: Int64Array, kv_tiles: Int64Array) -> Int64Array:
    """[rows, columns] program within its (batch, head) that visits a tile first; each has one stretch of a row."""
    found = np.empty(kv_tiles.shape, dtype=np.int64)

    def at(row: int, column: int) -> int:
        return walk.when(batch_head, int(q_tiles[row]), int(kv_tiles[row, column]))[0] % walk.programs

    def fill(row: int, start: int, stop: int, ends: tuple[int, int]) -> None:
        if ends[0] == ends[1] or stop - start <= 2:
            found[row, start], found[row, start:stop][1:] = ends
            return
        middle = (start + stop) // 2
        fill(row, start, middle, (ends[0], at(row, middle - 1)))
        fill(row, middle, stop, (at(row, middle), ends[1]))

    for row, columns in enumerate(kv_tiles):
        fill(row, 0, len(columns), (at(row, 0), at(row, len(columns) - 1)))
    return found


def _tiles_between(first: Int64Array, last: Int64Array, rows: Int64Array, columns: Int64Array) -> Int64Array:
    """[cells, cells] tiles (i, j) with first[i] <= j < last[i] in each cell; both bounds rise with i."""
    below = _sum_of_minima(last, rows, columns) - _sum_of_minima(first, rows, columns)
    return np.diff(below, axis=1)


def _sum_of_minima(bound: Int64Array, rows: Int64Array, columns: Int64Array) -> Int64Array:
    """[row cells, column edges] Σ over the cell's rows of min(bound, edge), from prefix sums: no tile is visited."""
    total = np.concatenate([[0], np.cumsum(bound)])
    start, stop = rows[:-1, None], rows[1:, None]
    reached = np.clip(np.searchsorted(bound, columns)[None, :], start, stop)
    return np.asarray(total[reached] - total[start] + columns * (stop - reached))
