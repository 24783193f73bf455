"""How long ago the same K and V were last read, in bytes, derived from a measured timeline and the walk."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.lanes import Lanes, lanes
from app.program_work import walk_of
from kernels.problem import Int64Array
from kernels.row_walk import RowWalk
from profiler.run import Run

TOGETHER = 2  # steps: positions are assumed, and programs that are nearer to each other are taken to read together
TILES = 48  # KV tiles looked at of each (batch, kv_head); fewer where programs are many
MOST_ARRIVALS = 1_500_000  # (program, KV tile) to work out
MOST_REREADS, MOST_MOVES = 2_000, 800_000  # re-reads that are measured; (re-read, program beside it)

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Reread:
    """Distances of the re-reads of K and V, sorted, each with the bytes that it stands for.

    A program that reaches a KV tile less than TOGETHER steps, or half of a program's time, after another reads it
    together with that one. Otherwise it reads it again, and the distance is the bytes of distinct K and V, the tile
    included, that all programs moved over since the tile was last reached: what L2 must hold, were what was used last
    to stay. `first_bytes` are read for the first time.
    """

    distance: Floats  # bytes [re-reads]
    weight: Floats  # bytes [re-reads]
    first_bytes: int

    @property
    def median(self) -> float | None:
        """The distance within which half of the re-read bytes come; None where nothing is read again."""
        if not len(self.distance):
            return None
        return float(self.distance[np.searchsorted(self.share, 0.5)])

    @property
    def share(self) -> Floats:
        """Share of the re-read bytes up to each distance, the last 1."""
        so_far = self.weight.cumsum()
        return np.asarray(so_far / so_far[-1])

    def share_above(self, size: float) -> float:
        """Share of the re-read bytes that come from further than `size` bytes; 0 where nothing is read again."""
        return float(self.weight[self.distance > size].sum() / max(self.weight.sum(), 1))


@dataclass(frozen=True)
class _Scans:
    """Every program's way over K and V, twice where V follows after all of K: int64 or float64 [tensors, scans each].

    `begin` and `end` in ns; visits the KV tiles [first, last), from the last one where `backward`. The scans of a row
    read the same tensors.
    """

    begin: Floats
    end: Floats
    first: Int64Array
    last: Int64Array
    backward: NDArray[np.bool_]

    @classmethod
    def of(cls, walk: RowWalk, found: Lanes) -> "_Scans":
        """The scans of a whole launch; the heads that share K and V stand in one row."""
        program = np.arange(walk.total_programs)
        p, sweep = program % walk.programs, np.arange(walk.sweeps)[:, None]
        backward = walk.backward(program)
        took = found.took / walk.sweeps
        begin = found.start + sweep * took
        parts: tuple[NDArray[Any], ...] = (begin, begin + took, walk.first[p], walk.last[p], backward)
        group = walk.grid.problem.group * walk.programs
        return cls(*(np.broadcast_to(part, begin.shape).reshape(-1, group) for part in parts))

    @property
    def step(self) -> Floats:
        """How long each scan has a tile at hand, ns."""
        return np.asarray((self.end - self.begin) / np.maximum(self.last - self.first, 1))

    @property
    def together(self) -> Floats:
        """For how long after each scan reached a tile others read it together with that scan, ns."""
        return np.minimum(TOGETHER * self.step, (self.end - self.begin) / 2)

    def arrivals(self, tiles: Int64Array) -> Floats:
        """When each scan reaches each of some tiles, [tensors, scans, tiles]; infinity where it never does."""
        first, last, backward = self.first[..., None], self.last[..., None], self.backward[..., None]
        at = np.where(backward, last - 1 - tiles, tiles - first)
        when = self.begin[..., None] + at * self.step[..., None]
        return np.where((first <= tiles) & (tiles < last), when, np.inf)


@lru_cache(maxsize=16)
def reread(run: Run) -> Reread | str:
    """The re-read distances of a Run, or in a sentence why it has none."""
    found = None if run.timeline is None else lanes(run.timeline)
    walk = None if found is None else walk_of(run, found)
    if found is None or walk is None:
        return "This Run has no timeline that fits its schedule."
    if not isinstance(walk, RowWalk):
        return "Each program reads K and V of its head once and streams Q past them, so nothing of K and V is re-read."
    scans, grid = _Scans.of(walk, found), walk.grid
    tiles = _evenly(grid.kv_tiles, max(4, min(TILES, MOST_ARRIVALS // scans.begin.size)))
    when = scans.arrivals(tiles)
    readers = np.isfinite(when).sum(axis=1)  # [tensors, tiles]
    if readers.max() < 2:
        return "No two programs read the same K and V, so nothing of them is re-read."
    # A row of a tile of the tensors that one scan reads: K and V, or one of them.
    row_bytes = 2 * grid.row_bytes // walk.sweeps
    stands_for = grid.kv_rows(tiles, tiles + 1) * row_bytes * (grid.kv_tiles / len(tiles))
    first_bytes = round(float((stands_for * (readers > 0)).sum()))
    order = when.argsort(axis=1, kind="stable")
    when = np.take_along_axis(when, order, axis=1)
    together = np.take_along_axis(np.broadcast_to(scans.together[..., None], when.shape), order, axis=1)[:, :-1]
    again = np.isfinite(when[:, 1:]) & (when[:, 1:] >= when[:, :-1] + np.maximum(together, 1))
    tile = np.nonzero(again)[2]
    since, until = when[:, :-1][again], when[:, 1:][again]
    kept = _affordable(scans, since, until)
    tile_bytes = walk.grid.problem.seq_len_kv / grid.kv_tiles * row_bytes  # the mean one: the last tile may be ragged
    distance = _moved(scans, since[kept], until[kept], grid.kv_tiles) * tile_bytes
    weight = np.asarray(stands_for[tile[kept]] * (len(tile) / max(len(kept), 1)), dtype=np.float64)
    rising = distance.argsort(kind="stable")
    return Reread(distance[rising], weight[rising], first_bytes)


def _evenly(of: int, count: int) -> Int64Array:
    """At most `count` of the numbers below `of`, the middles of as many equal stretches."""
    count = min(of, count)
    return np.asarray(((np.arange(count) + 0.5) * of / count).astype(np.int64))


def _affordable(scans: _Scans, since: Floats, until: Floats) -> Int64Array:
    """Which re-reads are measured: evenly among all of them, so that neither limit is passed."""
    some = _evenly(len(since), MOST_REREADS)
    moves = _beside(scans, since[some], until[some])[1].sum()
    return some[_evenly(len(some), int(len(some) * min(1.0, MOST_MOVES / max(moves, 1))) or 1)]


def _beside(scans: _Scans, since: Floats, until: Floats) -> tuple[Int64Array, Int64Array]:
    """(first, count) in order of begin of the scans that may run in each interval: none runs longer than the longest.

    The others among them have not moved in it.
    """
    begin = np.sort(scans.begin.ravel())
    longest = (scans.end - scans.begin).max()
    first = np.searchsorted(begin, since - longest)
    return first, np.searchsorted(begin, until) - first


def _moved(scans: _Scans, since: Floats, until: Floats, kv_tiles: int) -> Floats:
    """How many tiles' worth of distinct K and V the programs moved over in each interval, all tensors together."""
    start, count = _beside(scans, since, until)
    of = np.repeat(np.arange(len(since)), count)
    rank = np.arange(len(of)) - np.repeat(count.cumsum() - count, count) + start[of]
    scan = scans.begin.ravel().argsort(kind="stable")[rank]
    tensor = scan // scans.begin.shape[1]
    begin, end, first, last, backward = (
        part.ravel()[scan] for part in (scans.begin, scans.end, scans.first, scans.last, scans.backward)
    )
    pace = (last - first) / np.maximum(end - begin, 1)
    near, far = ((np.clip(time[of], begin, end) - begin) * pace for time in (since, until))
    low, high = np.where(backward, last - far, first + near), np.where(backward, last - near, first + far)
    # Every tensor of every interval gets a stretch of its own on one line, on which the union is the length covered.
    offset = (of * len(scans.begin) + tensor) * float(kv_tiles)
    order = (offset + low).argsort(kind="stable")
    low, high = (offset + low)[order], (offset + high)[order]
    covered = np.maximum.accumulate(high)
    new = np.maximum(high - np.maximum(low, np.append(-np.inf, covered[:-1])), 0)
    return np.asarray(np.bincount(of[order], weights=new, minlength=len(since)), dtype=np.float64)
