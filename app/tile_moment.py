"""One moment of a launch whose programs are known: where a program stands, and which bytes were asked for so far."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from kernels.problem import Int64Array
from kernels.tile_step import ByTensor
from kernels.walk import ProgramBytes, Walk


@dataclass(frozen=True)
class Moved:
    """Bytes of one tensor that a program, and its whole head, have asked to read or to write so far.

    `times` is `head` over the bytes of the tensor that a head asks for at all, each counted once; None where the
    tensor's size is not known.
    """

    tensor: str
    way: str  # read or write
    program: int
    head: int
    times: float | None


@dataclass(frozen=True)
class Moment:
    """Program `program` of a walk is at its `step`-th step, counted from 0.

    Programs of the same (batch, head) with a smaller number have ended and the others have not begun, as if one SM
    ran them in launch order. Out-of-range numbers are clamped.
    """

    walk: Walk
    program: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "program", min(max(self.program, 0), self.walk.total_programs - 1))
        object.__setattr__(self, "step", min(max(self.step, 0), self.steps - 1))

    @classmethod
    def at_tile(cls, walk: Walk, batch_head: int, q_tile: int, kv_tile: int) -> "Moment":
        """The moment at which a tile is visited first, or the one nearest to it along K/V that is visited."""
        return cls(walk, *walk.when(batch_head, q_tile, kv_tile))

    @classmethod
    def of_head(cls, walk: Walk, batch_head: int, at: int) -> "Moment":
        """The `at`-th step of a (batch, head), its programs one after another."""
        ends = step_ends(walk)
        at = min(max(at, 0), int(ends[-1]) - 1)
        p = int(np.searchsorted(ends, at, side="right"))
        before = int(ends[p - 1]) if p else 0
        return cls(walk, batch_head * walk.programs + p, at - before)

    @classmethod
    def opening(cls, walk: Walk) -> "Moment":
        """Where a page opens: past the middle of the first head, so that a mask and bytes moved can be seen."""
        grid = walk.grid
        q_tile = 9 * grid.q_tiles // 16
        first, last = int(grid.first[q_tile]), int(grid.last[q_tile])
        return cls.at_tile(walk, 0, q_tile, first + 2 * (last - first) // 3)

    @property
    def head(self) -> int:
        """The (batch, head) that the program belongs to, as one number."""
        return self.program // self.walk.programs

    @property
    def batch_head(self) -> tuple[int, int]:
        """The same as two numbers; the head is a K/V head where query heads are rows (TileGrid.packs)."""
        batch, head = divmod(self.head, self.walk.grid.problem.heads)
        return batch, head

    @property
    def program_of_head(self) -> int:
        """The program's number within its (batch, head)."""
        return self.program % self.walk.programs

    @property
    def steps(self) -> int:
        """Steps of the program; one that visits no tile still has one, in which it writes its O."""
        return int(self.walk.steps[self.program_of_head])

    @property
    def head_steps(self) -> int:
        """Steps of all programs of the (batch, head)."""
        return int(step_ends(self.walk)[-1])

    @property
    def head_step(self) -> int:
        """Steps of the (batch, head) before this one."""
        p = self.program_of_head
        return self.step + (int(step_ends(self.walk)[p - 1]) if p else 0)

    @cached_property
    def tile(self) -> tuple[int, int | None]:
        """(Q tile, KV tile) at hand; the KV tile is None where the program visits none."""
        return self.walk.tile_of(self.program, self.step)

    @property
    def q_tile(self) -> int:
        """The Q tile at hand."""
        return self.tile[0]

    @property
    def kv_tile(self) -> int | None:
        """The KV tile at hand."""
        return self.tile[1]

    @property
    def rows(self) -> tuple[int, int]:
        """First row of the Q tile at hand and the end of it."""
        first = self.q_tile * self.walk.grid.BLOCK_M
        return first, first + int(self.walk.grid.q_rows(self.q_tile))

    @property
    def keys(self) -> tuple[int, int] | None:
        """First key of the KV tile at hand and the end of it."""
        if self.kv_tile is None:
            return None
        first = self.kv_tile * self.walk.grid.BLOCK_N
        return first, first + int(self.walk.grid.kv_rows(self.kv_tile, self.kv_tile + 1))

    def further(self, steps: int) -> "Moment":
        """So many steps on (or back) within the (batch, head), from its last step on to its first."""
        return Moment.of_head(self.walk, self.head, (self.head_step + steps) % self.head_steps)

    @cached_property
    def done(self) -> Int64Array:
        """Steps done by each program of the (batch, head), this one included; -1 where it has not begun."""
        return self._done(self.step + 1)

    @cached_property
    def kv_reads(self) -> tuple[Int64Array, Int64Array]:
        """How often the head has asked for K and for V of each KV tile so far, int64 [kv_tiles] each."""
        return self.walk.kv_reads_until(self.head, self.done)

    @cached_property
    def asked_now(self) -> frozenset[str]:
        """Tensors that this step reads or writes."""
        p = self.program_of_head
        until, before = self._bytes
        return frozenset(
            tensor
            for tensor, parts in until.items()
            if any(int(part[p] - old[p]) for part, old in zip(parts, before[tensor], strict=True))
        )

    @property
    def kv_now(self) -> frozenset[str]:
        """Which of K and V is on chip of the KV tile at hand: both, unless this step asks for one of them alone."""
        if self.kv_tile is None:
            return frozenset()
        return self.asked_now & {"k", "v"} or frozenset({"k", "v"})

    def moved(self, sizes: Mapping[str, int]) -> tuple[Moved, ...]:
        """Requested bytes so far, this step's included; `sizes`: bytes of whole tensors, all batches and heads."""
        p, (until, _) = self.program_of_head, self._bytes
        table = []
        for index, (way, ever) in enumerate(zip(("read", "write"), totals(self.walk), strict=True)):
            for tensor in ever:
                part, distinct = until[tensor][index], self.distinct(tensor, sizes)
                head = int(part.sum())
                table.append(Moved(tensor, way, int(part[p]), head, head / distinct if distinct else None))
        return tuple(table)

    @cached_property
    def _bytes(self) -> tuple[ProgramBytes, ProgramBytes]:
        """Bytes with this step, and without it."""
        steps = (self.done, self._done(self.step or -1))
        with_it, without = (self.walk.bytes_until(self.head, done) for done in steps)
        return with_it, without

    def distinct(self, tensor: str, sizes: Mapping[str, int]) -> int | None:
        """Bytes of a tensor that one head asks for until its end, each counted once."""
        if tensor in ("k", "v"):
            return _ever_read(self.walk)["kv".index(tensor)]
        return sizes[tensor] // self.walk.copies if tensor in sizes else None

    def _done(self, steps: int) -> Int64Array:
        done = np.full(self.walk.programs, -1, dtype=np.int64)
        done[: self.program_of_head] = self.walk.steps[: self.program_of_head]
        done[self.program_of_head] = steps
        return done


@lru_cache(maxsize=16)
def step_ends(walk: Walk) -> Int64Array:
    """Steps of a (batch, head) until each of its programs has ended, int64 [programs]."""
    return np.cumsum(walk.steps)


@lru_cache(maxsize=16)
def totals(walk: Walk) -> tuple[ByTensor, ByTensor]:
    """Bytes read and written by tensor, all batches and heads; tensors without any are left out."""
    return walk.total_bytes()


@lru_cache(maxsize=16)
def reads_at_end(walk: Walk) -> tuple[Int64Array, Int64Array]:
    """How often a head has asked for K and for V of each KV tile in the end."""
    return walk.kv_reads_until(0, walk.steps)


@lru_cache(maxsize=16)
def _ever_read(walk: Walk) -> tuple[int, int]:
    grid = walk.grid
    tiles = np.arange(grid.kv_tiles)
    rows = grid.kv_rows(tiles, tiles + 1)
    k, v = (int(rows[counts > 0].sum()) * grid.row_bytes for counts in reads_at_end(walk))
    return k, v
