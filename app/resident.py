"""The programs that run at one moment of a measured timeline: where each is on K and V, and what these places span."""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from app.lanes import lanes
from app.no_timeline import why_no_timeline
from app.program_work import kv_tile_at, shared_part, walk_of
from kernels.problem import Int64Array
from kernels.walk import Walk
from profiler.run import Run


@dataclass(frozen=True, eq=False)
class Resident:
    """Programs that have started and not ended `time` ns after the first start, and have a KV tile at hand.

    `program` and `kv_tile` are int64 [programs]. `spanned` counts bytes of K and V as app.spread does: from the first
    key of the lowest KV tile to the last key of the highest one of those that read the same part of K and V (see
    shared_part), summed over parts. None where no two programs of the launch read the same part.
    """

    time: float
    program: Int64Array
    kv_tile: Int64Array
    spanned: int | None

    def tiles_of(self, walk: Walk, batch_head: int) -> Int64Array:
        """The KV tiles at hand in one (batch, head), each once, rising."""
        return np.unique(self.kv_tile[self.program // walk.programs == batch_head])


@lru_cache(maxsize=8)
def resident(run: Run, program: int, step: int) -> Resident | None:
    """Those that run while `program` is in the middle of its `step`-th step, at an even speed from start to end.

    None without a timeline that fits the Run's schedule.
    """
    found = None if run.timeline is None else lanes(run.timeline)
    walk = None if found is None else walk_of(run, found)
    if found is None or walk is None or program >= len(found.sm):
        return None
    steps = int(walk.steps[program % walk.programs])
    time = float(found.start[program] + (step + 0.5) / steps * found.took[program])
    runs_then = (found.start <= time) & (time < found.end)
    runs_then[program] = True  # also where the clock was too coarse to see it run
    programs = np.flatnonzero(runs_then)
    share = (time - found.start[programs]) / np.maximum(found.took[programs], 1)
    all_steps = walk.steps[programs % walk.programs]
    kv_tile = kv_tile_at(walk, programs, np.clip((share * all_steps).astype(np.int64), 0, all_steps - 1))
    programs, kv_tile = programs[kv_tile >= 0], kv_tile[kv_tile >= 0]
    is_shared = (shared_part(walk, np.arange(walk.programs)) >= 0).any()
    return Resident(time, programs, kv_tile, _spanned(walk, programs, kv_tile) if is_shared else None)


def _spanned(walk: Walk, program: Int64Array, kv_tile: Int64Array) -> int:
    grid, shared = walk.grid, shared_part(walk, program)
    parts = (kv_tile[shared == one] for one in np.unique(shared[shared >= 0]))
    return sum(int(grid.kv_rows(int(part.min()), int(part.max()) + 1)) for part in parts) * 2 * grid.row_bytes


def why_none(run: Run | None) -> str:
    """Why it is not known which programs run at one time, and what to do about it."""
    if run is None:
        return "Which programs run at one time is measured: run this kernel on a GPU, or open a recorded H200 run."
    return why_no_timeline((run,))
