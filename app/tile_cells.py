"""A TileGrid at the level of detail that a screen can show: cells of one or more tiles each."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Int64Array
from kernels.schedule import TileGrid

MOST_CELLS = 96  # along each side


@dataclass(frozen=True)
class Cells:
    """A part of the score matrix as [rows, columns] cells of q_step × kv_step tiles, from tile (q_start, kv_start).

    visited: share of a cell's tiles that are visited. partial: some of its tiles need the mask, or only some are
    visited. order: at which step the program in the cell's middle reaches it; NaN where no tile is visited.
    """

    q_start: int
    kv_start: int
    q_step: int
    kv_step: int
    visited: NDArray[np.float64]
    partial: NDArray[np.bool_]
    order: NDArray[np.float64]

    @property
    def is_exact(self) -> bool:
        """True where one cell is one tile."""
        return self.q_step == self.kv_step == 1

    def cell_of(self, q_tile: int, kv_tile: int) -> tuple[int, int]:
        """(row, column) of the cell that holds a tile."""
        return (q_tile - self.q_start) // self.q_step, (kv_tile - self.kv_start) // self.kv_step


def whole(grid: TileGrid, most: int = MOST_CELLS) -> Cells:
    """All tiles of one (batch, head) in at most `most` × `most` cells."""
    return _cells(grid, (0, grid.q_tiles), (0, grid.kv_tiles), most)


def around(grid: TileGrid, q_tile: int, kv_tile: int, reach: int = 8) -> Cells:
    """The tiles within `reach` of one tile, one cell each."""
    rows = _window(q_tile, reach, grid.q_tiles)
    columns = _window(kv_tile, reach, grid.kv_tiles)
    return _cells(grid, rows, columns, 2 * reach + 1)


def _window(middle: int, reach: int, size: int) -> tuple[int, int]:
    start = max(0, min(middle - reach, size - 2 * reach - 1))
    return start, min(size, start + 2 * reach + 1)


def _cells(grid: TileGrid, rows: tuple[int, int], columns: tuple[int, int], most: int) -> Cells:
    q_step, kv_step = (-(-(stop - start) // most) for start, stop in (rows, columns))
    row_edges = np.append(np.arange(*rows, q_step), rows[1])
    column_edges = np.append(np.arange(*columns, kv_step), columns[1])
    size = np.diff(row_edges)[:, None] * np.diff(column_edges)
    visited = _tiles_between(grid.first, grid.last, row_edges, column_edges)
    full = _tiles_between(grid.full_first, grid.full_last, row_edges, column_edges)
    middle_row = (row_edges[:-1] + row_edges[1:]) // 2
    middle_column = (column_edges[:-1] + column_edges[1:] - 1) / 2
    order = np.clip(middle_column - grid.first[middle_row, None], 0, None)
    return Cells(
        rows[0],
        columns[0],
        q_step,
        kv_step,
        visited / size,
        (visited > 0) & (full < size),
        np.where(visited > 0, order, np.nan),
    )


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
