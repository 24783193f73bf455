"""How far apart on K and V the programs are that run at the same time, derived from a measured timeline."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from app.lanes import Lanes, lanes
from app.program_work import kv_tile_at, shared_part, walk_of
from kernels.problem import Int64Array
from profiler.run import Run

MOMENTS = 400
MOST_POSITIONS = 200_000  # positions to work out; where more programs run at once, fewer moments are looked at


@dataclass(frozen=True)
class Spread:
    """Positions on K and V at equally spaced moments, and what they span.

    A program at the share f of its time, from its start to its end, is at step ⌊f · steps⌋: an even speed is assumed.
    `program`, `moment` and `kv_tile` are int64 [positions]. `spanned` [moments] counts the bytes of K and V from the
    first key of the lowest KV tile to the last key of the highest one of the resident programs that read the same part
    of K and V (see shared_part), summed over parts; a program whose part nobody else reads is not in it. `parts` counts
    those that are shared. `head_bytes` is all of K and V of one kv_head.
    """

    found: Lanes
    BLOCK_N: int
    seq_len_kv: int
    moments: NDArray[np.float64]  # ns after the first start
    program: Int64Array
    moment: Int64Array
    kv_tile: Int64Array
    spanned: Int64Array
    parts: int
    head_bytes: int

    @property
    def largest(self) -> int:
        """The most bytes spanned at a moment."""
        return int(self.spanned.max())

    @property
    def median(self) -> int:
        """Bytes that are spanned at half of the moments at least, and at most at the other half."""
        return int(np.median(self.spanned))

    def share_above(self, size: int) -> float:
        """Share of the moments at which more than `size` bytes are spanned."""
        return float((self.spanned > size).mean())


@lru_cache(maxsize=8)
def spread(run: Run) -> Spread | None:
    """The spread of a Run; None without a timeline that fits its schedule, or where no program visits a KV tile."""
    found = None if run.timeline is None else lanes(run.timeline)
    walk = None if found is None else walk_of(run, found)
    if found is None or walk is None:
        return None
    count = max(50, min(MOMENTS, MOST_POSITIONS // found.at_once))
    program, moment = found.running_at(count)
    moments = (np.arange(count, dtype=np.float64) + 0.5) * found.stretch(count)
    steps = walk.steps[program % walk.programs]
    share = (moments[moment] - found.start[program]) / np.maximum(found.took[program], 1)
    step = np.clip((share * steps).astype(np.int64), 0, steps - 1)
    kv_tile = kv_tile_at(walk, program, step)
    seen = kv_tile >= 0
    program, moment, kv_tile = program[seen], moment[seen], kv_tile[seen]
    if not len(program):
        return None
    problem, grid = walk.grid.problem, walk.grid
    key_bytes = 2 * grid.row_bytes
    part, spanned = shared_part(walk, program), np.zeros(count, dtype=np.int64)
    is_shared, parts = part >= 0, int(part.max()) + 1
    if parts:
        lowest, highest, at = _extremes((moment * parts + part)[is_shared], kv_tile[is_shared])
        np.add.at(spanned, at // parts, grid.kv_rows(lowest, highest + 1) * key_bytes)
    head_bytes = problem.seq_len_kv * key_bytes
    return Spread(
        found, grid.BLOCK_N, problem.seq_len_kv, moments, program, moment, kv_tile, spanned, parts, head_bytes
    )


def _extremes(key: Int64Array, value: Int64Array) -> tuple[Int64Array, Int64Array, Int64Array]:
    """The smallest and the largest value of each key, and the keys."""
    order = np.argsort(key, kind="stable")
    keys, first = np.unique(key[order], return_index=True)
    return np.minimum.reduceat(value[order], first), np.maximum.reduceat(value[order], first), keys
