"""Which Runs of a folder were measured at the same time on the same device: none, by their own timestamps."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from profiler.run import Run


@dataclass(frozen=True)
class Overlap:
    """How many Runs tell when they were measured, and the pairs of ids of those that overlap."""

    runs: int
    pairs: tuple[tuple[str, str], ...]
    smallest_gap_seconds: float | None


def overlap(runs: Iterable[Run]) -> Overlap:
    """What the Runs' `measured_at` says; a Run without one does not count."""
    spans = defaultdict(list)
    for run in runs:
        if run.measured_at is not None:
            spans[run.workload.device].append((*run.measured_at, run.id))
    pairs, gaps = [], []
    for found in spans.values():
        latest_end, latest = float("-inf"), ""
        for begun, ended, run_id in sorted(found):
            if begun < latest_end:
                pairs.append((latest, run_id))
            if ended > latest_end:
                latest_end, latest = ended, run_id
        gaps += [after[0] - before[1] for before, after in pairwise(sorted(found))]
    return Overlap(sum(map(len, spans.values())), tuple(pairs), min(gaps, default=None))
