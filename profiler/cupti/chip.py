"""The GPU at hand as CUPTI's host half knows it: its chip, and the metrics that the chip has."""

from functools import cache

from profiler.cupti.driver import current_chip
from profiler.cupti.host import RANGE_PROFILER, MetricsHost
from profiler.cupti.library import load


@cache
def chip_metrics(profiler_type: int = RANGE_PROFILER) -> tuple[str, frozenset[str]]:
    """The chip of this thread's CUDA context, and its metrics without suffixes; they stay while the process lives.

    Raises CuptiError if there is no context or the library does not know the chip.
    """
    cupti = load()
    with MetricsHost(cupti, current_chip(cupti), profiler_type=profiler_type) as host:
        return host.chip, host.base_metrics
