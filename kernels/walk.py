"""A Walk: how the programs of one launch go through the tiles, in which order, asking for which bytes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Int64Array
from kernels.tile_grid import TileGrid
from kernels.tile_step import ByTensor, TileStep

# (read, written) bytes by tensor of each program of one (batch, head), each int64 [programs].
ProgramBytes = Mapping[str, tuple[Int64Array, Int64Array]]


class Walk(ABC):
    """What each program does, step by step; every (batch, head) is walked alike, except where `tile_of` says so.

    `grid` is the score matrix as tiles. Programs are numbered as they are launched, unless a Walk says otherwise:
    program (batch · heads + head) · programs + p is the p-th of its (batch, head). Of a persistent grid each Q tile
    counts as a program. A step is one visit of one tile; a program that visits none has one step, in which it only
    opens and closes.
    """

    grid: TileGrid

    @property
    @abstractmethod
    def steps(self) -> Int64Array:
        """Steps of each program of one (batch, head), int64 [programs], each at least 1."""

    @abstractmethod
    def tile_of(self, program: int, step: int) -> tuple[int, int | None]:
        """(Q tile, KV tile) at hand; the KV tile is None where the program visits none."""

    @abstractmethod
    def when(self, batch_head: int, q_tile: int, kv_tile: int) -> tuple[int, int]:
        """(program, step) that visits the tile first, or the one nearest to it along K/V that is visited."""

    @abstractmethod
    def order_of(self, batch_head: int, q_tile: Int64Array, kv_tile: Int64Array) -> NDArray[np.float64]:
        """The step at which each tile is first visited by its program; NaN where it is skipped. Arrays broadcast."""

    @abstractmethod
    def bytes_until(self, batch_head: int, done: Int64Array) -> ProgramBytes:
        """Requested bytes of each program after done[p] of its steps; -1 where it has not begun."""

    @abstractmethod
    def kv_reads_until(self, batch_head: int, done: Int64Array) -> tuple[Int64Array, Int64Array]:
        """How often each KV tile's K and V were asked for, int64 [kv_tiles] each; done as in bytes_until."""

    @abstractmethod
    def states_of(self, batch_head: int, q_tile: int) -> tuple[range, ...]:
        """The KV tiles of a Q tile in the order in which each of its running states (m, l, acc) meets them."""

    @abstractmethod
    def program_steps(self, launch: str, program: int) -> Iterator[TileStep]:
        """Every step of one program in order with its bytes; tiles that the mask skips stand where they would come."""

    @property
    def programs(self) -> int:
        """Programs of one (batch, head)."""
        return len(self.steps)

    @property
    def copies(self) -> int:
        """How many (batch, head) there are."""
        return self.grid.problem.batch * self.grid.problem.heads

    @property
    def total_programs(self) -> int:
        """Programs of the whole launch."""
        return self.programs * self.copies

    @property
    def total_steps(self) -> int:
        """Steps of the whole launch."""
        return int(self.steps.sum()) * self.copies

    def total_bytes(self) -> tuple[ByTensor, ByTensor]:
        """Bytes read and written by tensor, all batches and heads."""
        reads: dict[str, int] = {}
        writes: dict[str, int] = {}
        for tensor, (read, written) in self.bytes_until(0, self.steps).items():
            for table, part in ((reads, read), (writes, written)):
                if size := int(part.sum()):
                    table[tensor] = size * self.copies
        return reads, writes
