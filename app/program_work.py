"""What the programs of a measured timeline worked on: head, tiles, requested bytes; from the Run's schedule."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app import subject
from app.lanes import Lanes
from kernels.problem import Int64Array
from kernels.row_walk import RowWalk
from kernels.walk import Walk
from profiler.run import Run


def walk_of(run: Run, found: Lanes) -> Walk | None:
    """The Walk of a Run's programs; None where it is not known, or does not have as many as ran."""
    walk = subject.walk_of(run)
    return walk if walk is not None and walk.total_programs == len(found.sm) else None


def kv_tile_at(walk: Walk, program: Int64Array, step: Int64Array) -> Int64Array:
    """The KV tile that each program has at hand at its step, -1 for none; arrays of one length."""
    pairs = zip(program.tolist(), step.tolist(), strict=True)
    tiles = (walk.tile_of(*pair)[1] for pair in pairs)
    return np.fromiter((-1 if tile is None else tile for tile in tiles), np.int64, len(program))


def shared_part(walk: Walk, program: Int64Array) -> Int64Array:
    """Which part of K and V each program reads, counted through; -1 where no other program of the launch reads it.

    Programs read the same part where their heads share K and V and their shares of the KV tiles are the same.
    """
    problem = walk.grid.problem
    batch, head = np.divmod(program // walk.programs, problem.heads)
    first = walk.share_first if isinstance(walk, RowWalk) else np.zeros(walk.programs, dtype=np.int64)
    starts, share, programs = np.unique(first, return_inverse=True, return_counts=True)
    share = share[program % walk.programs]
    part = (batch * problem.kv_heads + head // problem.group) * len(starts) + share
    return np.where(programs[share] * problem.group > 1, part, -1)


@lru_cache(maxsize=16)
def requested(walk: Walk) -> Int64Array:
    """Bytes that each program of one (batch, head) asks to read and to write, int64 [programs]."""
    moved = walk.bytes_until(0, walk.steps).values()
    return np.asarray(sum(read + written for read, written in moved))


@dataclass(frozen=True)
class Work:
    """What one program works on: (batch, head), first and last Q tile and KV tile, bytes asked for.

    The head is a K/V head where query heads are rows (TileGrid.packs).
    """

    batch: int
    head: int
    q_tiles: tuple[int, int]
    kv_tiles: tuple[int, int] | None  # None where the mask hides all
    steps: int
    requested_bytes: int

    @classmethod
    def of(cls, walk: Walk, program: int) -> "Work":
        """The work of a program, counted over the whole launch."""
        batch_head, p = divmod(program, walk.programs)
        batch, head = divmod(batch_head, walk.grid.problem.heads)
        steps = int(walk.steps[p])
        (q_first, kv_first), (q_last, kv_last) = walk.tile_of(program, 0), walk.tile_of(program, steps - 1)
        kv_tiles = None if kv_first is None or kv_last is None else (kv_first, kv_last)
        return cls(batch, head, (q_first, q_last), kv_tiles, steps, int(requested(walk)[p]))

    def query_heads(self, walk: Walk) -> tuple[int, int] | None:
        """First and last query head of its Q tiles where these are rows; None where rows are queries of one head."""
        grid, (first, last) = walk.grid, self.q_tiles
        if grid.packs == 1:
            return None
        stop = last * grid.BLOCK_M + int(grid.q_rows(last))
        batch_head = self.batch * grid.problem.heads + self.head
        (_, low, _), (_, high, _) = grid.query_of(batch_head, first * grid.BLOCK_M), grid.query_of(batch_head, stop - 1)
        return low, high
