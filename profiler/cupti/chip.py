"""The GPU at hand as CUPTI's host half knows it: its chip, and the metrics that the chip has."""

from dataclasses import replace
from functools import cache

from profiler.cupti.driver import current_chip
from profiler.cupti.host import RANGE_PROFILER, MetricsHost, TrafficMetrics, traffic_metrics
from profiler.cupti.library import load


@cache
def chip_metrics(profiler_type: int = RANGE_PROFILER) -> tuple[str, frozenset[str]]:
    """The chip of this thread's CUDA context, and its metrics without suffixes; they stay while the process lives.

    Raises CuptiError if there is no context or the library does not know the chip.
    """
    cupti = load()
    with MetricsHost(cupti, current_chip(cupti), profiler_type=profiler_type) as host:
        return host.chip, host.base_metrics


@cache
def chip_traffic() -> TrafficMetrics:
    """The chip's traffic metrics as far as one pass counts them together: Volta leaves out what it may.

    Raises CuptiError as chip_metrics does, or if the chip has no HBM of its own.
    """
    chip, base_metrics = chip_metrics()
    found = traffic_metrics(base_metrics)
    with MetricsHost(load(), chip, found.names) as host:
        return found if host.passes == 1 else replace(found, to_sm=None, sm_reads=None)
