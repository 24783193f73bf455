"""Programs that keep one Q tile and stream KV tiles past it: forwards, backwards, all of them or a share."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Int64Array
from kernels.tile_grid import TileGrid
from kernels.tile_step import TileStep
from kernels.walk import ProgramBytes, Walk


@dataclass(frozen=True, eq=False)
class RowWalk(Walk):
    """Program p of a (batch, head) owns Q tile q_tile[p] and visits what the mask leaves of its share of KV tiles.

    The share is [share_first[p], share_last[p]). With `wave` w, every second w programs of the launch go backwards
    (sawtooth); 0 means that all go forwards. With `descending` it is the other way round. `section` (batch, head) are
    launched side by side: the first program of each, then the second of each; their numbers are still those of one
    (batch, head) after the other. `sweeps` is 1 where K and V of a tile are read together, 2 where all K
    tiles come first and then all V tiles. `at_end` is what a program writes when it is done, bytes for each of its
    rows by tensor.
    """

    grid: TileGrid
    q_tile: Int64Array
    share_first: Int64Array
    share_last: Int64Array
    at_end: Mapping[str, int]
    wave: int = 0
    sweeps: int = 1
    descending: bool = False
    section: int = 1
    first: Int64Array = field(init=False)
    last: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        first = np.clip(self.grid.first[self.q_tile], self.share_first, self.share_last)
        last = np.maximum(np.clip(self.grid.last[self.q_tile], self.share_first, self.share_last), first)
        object.__setattr__(self, "first", first)
        object.__setattr__(self, "last", last)

    @classmethod
    def whole_rows(
        cls, grid: TileGrid, at_end: Mapping[str, int], longest_first: bool = False, wave: int = 0, sweeps: int = 1
    ) -> "RowWalk":
        """One program for each Q tile, over all KV tiles; the last Q tile is launched first if longest_first."""
        q_tile = np.arange(grid.q_tiles)[:: -1 if longest_first else 1]
        all_kv = np.full(grid.q_tiles, grid.kv_tiles)
        return cls(grid, q_tile, np.zeros_like(all_kv), all_kv, at_end, wave, sweeps)

    @cached_property
    def visited(self) -> Int64Array:
        """KV tiles that each program visits, int64 [programs]."""
        return self.last - self.first

    @cached_property
    def steps(self) -> Int64Array:
        """See Walk."""
        return np.maximum(self.visited * self.sweeps, 1)

    @cached_property
    def scores(self) -> int:
        """Scores in the tiles that the programs of one (batch, head) visit, hidden ones included."""
        return int((self.grid.q_rows(self.q_tile) * self.grid.kv_rows(self.first, self.last)).sum())

    def is_backward(self, program: int) -> bool:
        """Whether a program, counted over the whole launch, goes from its last KV tile to its first."""
        return bool(self.backward(np.array(program)))

    def backward(self, program: Int64Array) -> NDArray[np.bool_]:
        """is_backward of each of these programs."""
        turned = (program // max(self.wave, 1) % 2 == 1) & (self.wave > 0)
        return np.asarray(turned ^ self.descending)

    def launch_order(self) -> Int64Array:
        """The numbers of all programs in the order in which they are launched or, by those that stay, begun.

        int64 [total_programs].
        """
        number = np.arange(self.total_programs).reshape(-1, self.section, self.programs)
        return np.asarray(number.transpose(0, 2, 1).reshape(-1))

    def tile_of(self, program: int, step: int) -> tuple[int, int | None]:
        """See Walk."""
        p = program % self.programs
        visited = int(self.visited[p])
        if not visited:
            return int(self.q_tile[p]), None
        at = step % visited
        kv_tile = int(self.last[p]) - 1 - at if self.is_backward(program) else int(self.first[p]) + at
        return int(self.q_tile[p]), kv_tile

    def when(self, batch_head: int, q_tile: int, kv_tile: int) -> tuple[int, int]:
        """See Walk."""
        owners = self._owners(q_tile)
        first, last = self.first[owners], self.last[owners]
        away = np.maximum(np.maximum(first - kv_tile, kv_tile - last + 1), 0)
        # A program that visits nothing is chosen only where its Q tile has no other.
        away[last == first] += self.grid.kv_tiles
        p = int(owners[away.argmin()])
        program = batch_head * self.programs + p
        if not self.visited[p]:
            return program, 0
        kv_tile = min(max(kv_tile, int(self.first[p])), int(self.last[p]) - 1)
        return program, int(self.last[p]) - 1 - kv_tile if self.is_backward(program) else kv_tile - int(self.first[p])

    def order_of(self, batch_head: int, q_tile: Int64Array, kv_tile: Int64Array) -> NDArray[np.float64]:
        """See Walk."""
        order = np.full(np.broadcast_shapes(q_tile.shape, kv_tile.shape), np.nan)
        backward = self._backward(batch_head)
        for owners in self._by_tile.T:
            owner = owners[q_tile]
            first, last = self.first[owner], self.last[owner]
            inside = (first <= kv_tile) & (kv_tile < last)
            order = np.where(inside, np.where(backward[owner], last - 1 - kv_tile, kv_tile - first), order)
        return order

    def bytes_until(self, batch_head: int, done: Int64Array) -> ProgramBytes:
        """See Walk. Q is read before a program's first tile; `at_end` is written after its last one."""
        done = np.minimum(done, self.steps)
        rows = self.grid.q_rows(self.q_tile)
        begun, ended = (done >= 0).astype(np.int64), (done >= self.steps).astype(np.int64)
        none = np.zeros_like(rows)
        table = {"q": (rows * self.grid.row_bytes * begun, none)}
        for tensor, sweep in (("k", 0), ("v", self.sweeps - 1)):
            start, stop = self._swept(batch_head, done, sweep)
            table[tensor] = (self.grid.kv_rows(start, stop) * self.grid.row_bytes, none)
        return table | {tensor: (none, rows * size * ended) for tensor, size in self.at_end.items()}

    def kv_reads_until(self, batch_head: int, done: Int64Array) -> tuple[Int64Array, Int64Array]:
        """See Walk."""
        counts = []
        for sweep in (0, self.sweeps - 1):
            start, stop = self._swept(batch_head, np.minimum(done, self.steps), sweep)
            change = np.zeros(self.grid.kv_tiles + 1, dtype=np.int64)
            np.add.at(change, start, 1)
            np.add.at(change, stop, -1)
            counts.append(change.cumsum()[:-1])
        return counts[0], counts[1]

    def states_of(self, batch_head: int, q_tile: int) -> tuple[range, ...]:
        """See Walk."""
        found = []
        for p in self._owners(q_tile).tolist():
            first, last = int(self.first[p]), int(self.last[p])
            backward = self.is_backward(batch_head * self.programs + p)
            found.append(range(last - 1, first - 1, -1) if backward else range(first, last))
        return tuple(found)

    def program_steps(self, launch: str, program: int) -> Iterator[TileStep]:
        """See Walk. Q is booked on the first visited tile, `at_end` on the last; both on step 0 where there is none."""
        grid, p = self.grid, program % self.programs
        q_tile, row = int(self.q_tile[p]), grid.row_bytes
        rows = int(grid.q_rows(q_tile))
        q_range = (q_tile * grid.BLOCK_M, q_tile * grid.BLOCK_M + rows)
        backward = self.is_backward(program)
        share = range(int(self.share_first[p]), max(int(self.share_last[p]), int(self.share_first[p]) + 1))
        for sweep in range(self.sweeps):
            tensors = ("k", "v") if self.sweeps == 1 else ("k" if sweep == 0 else "v",)
            for at, kv_tile in enumerate(reversed(share) if backward else share):
                seen = self.first[p] <= kv_tile < self.last[p]
                is_first = kv_tile == (self.last[p] - 1 if backward else self.first[p]) if self.visited[p] else at == 0
                is_last = kv_tile == (self.first[p] if backward else self.last[p] - 1) if self.visited[p] else at == 0
                kv_rows = int(grid.kv_rows(kv_tile, kv_tile + 1))
                reads = {"q": rows * row} if is_first and sweep == 0 else {}
                reads |= dict.fromkeys(tensors, kv_rows * row) if seen else {}
                ends = is_last and sweep == self.sweeps - 1
                writes = {tensor: rows * size for tensor, size in self.at_end.items()} if ends else {}
                start = kv_tile * grid.BLOCK_N
                mask = grid.mask_of(q_tile, kv_tile) if seen else "skipped"
                step = sweep * len(share) + at
                yield TileStep(launch, program, step, q_range, (start, start + kv_rows), mask, reads, writes)

    def _owners(self, q_tile: int) -> Int64Array:
        """The programs of one (batch, head) that own a Q tile, in launch order."""
        return np.asarray(self._by_tile[q_tile])

    @cached_property
    def _by_tile(self) -> Int64Array:
        """[q_tiles, shares] the programs that own each Q tile, in launch order."""
        return np.argsort(self.q_tile, kind="stable").reshape(self.grid.q_tiles, -1)

    def _backward(self, batch_head: int) -> NDArray[np.bool_]:
        """Which programs of a (batch, head) go backwards, bool [programs]; is_backward of each."""
        return self.backward(batch_head * self.programs + np.arange(self.programs))

    def _swept(self, batch_head: int, done: Int64Array, sweep: int) -> tuple[Int64Array, Int64Array]:
        """The range of KV tiles that each program has read in its sweep over K (0) or, if that is another one, V."""
        count = np.clip(done - (self.visited if sweep else 0), 0, self.visited)
        backward = self._backward(batch_head)
        return np.where(backward, self.last - count, self.first), np.where(backward, self.last, self.first + count)
