"""Tensor-core FLOPs, spill traffic and L2's hit rate, by counters that need several passes."""

import statistics

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti.chip import chip_metrics
from profiler.cupti.detail import DetailMetrics, detail_metrics
from profiler.cupti.library import CuptiError
from profiler.cupti.permission import unavailable
from profiler.cupti.ranges import RangeProfiler, Ranges
from profiler.run import Measurement, spread_of

REPEATS = 3
UNITS = {
    "tensor_flops": "FLOP",
    "spill_read_bytes": "B",
    "spill_write_bytes": "B",
    "l2_hit_percent": "%",
}
MEANINGS = {
    "spill_read_bytes": "bytes loaded from local memory, as L1 was asked for them",
    "spill_write_bytes": "bytes stored to local memory, as L1 was asked to",
    "l2_hit_percent": "hits / (hits + misses) of the sectors that the SMs asked of L2",
}


def measure(load: Load) -> Reading:
    """tensor_flops, spills and l2_hit_percent, of the whole and of each launch.

    CUPTI counts the set in several passes, and the work runs anew for each, with L2 prepared alike. What the chip has
    no metric for is None with that reason; the rest counts.
    """
    try:
        metrics = detail_metrics(*chip_metrics())
        values, passes = _collect(load, metrics)
    except CuptiError as error:
        raise Unavailable(str(error)) from error
    found = [metrics.detail(counted) for _, counted in values]
    whole = found[:REPEATS]
    anew = f"counted in {passes} passes on {metrics.chip}, each a run anew"
    measurements = []
    for quantity, unit in UNITS.items():
        if any(quantity not in each for each in whole):
            reason = metrics.why_missing(quantity)
            measurements.append(Measurement(quantity, None, unit, "cupti-range", reason))
            continue
        counted = tuple(each[quantity] for each in whole)
        note = f"{_meaning(quantity, metrics)}; {anew}; {load.l2} L2, median of {REPEATS}"
        value = statistics.median(counted)
        measurements.append(Measurement(quantity, value, unit, "cupti-range", note, spread_of(counted)))
    note = f"{anew}; {load.l2} L2 at the first launch"
    for (launch, _), each in zip(values[REPEATS:], found[REPEATS:], strict=True):
        measurements += [Measurement(q, each[q], UNITS[q], "cupti-range", note, launch=launch) for q in each]
    return Reading(tuple(measurements))


def _collect(load: Load, metrics: DetailMetrics) -> tuple[list[tuple[str, dict[str, float]]], int]:
    """Values of REPEATS whole runs, then of each launch of one more; and how many passes CUPTI took."""

    def work(ranges: Ranges) -> None:
        for _ in range(REPEATS):
            load.prepare_l2()
            with ranges.range("run"):
                load.launch()
        load.prepare_l2()
        load.launch(hook=ranges.range)

    load.evict_l2()  # makes the scratch buffer
    max_ranges = REPEATS + len(load.launch_names)
    with RangeProfiler(metrics.names, max_ranges, passes_allowed=True) as profiler:
        return profiler.collect(work), profiler.passes


def _meaning(quantity: str, metrics: DetailMetrics) -> str:
    if quantity != "tensor_flops":
        return MEANINGS[quantity]
    names = " + ".join(name.removesuffix(".sum") for name in metrics.parts[quantity])
    return f"operations of the tensor cores, {names}"


COUNTER = Counter(
    name="cupti_detail",
    title="Hardware counters in several passes (CUPTI)",
    order=42,
    phase="detail",
    quantities=tuple((name, unit, "cupti-range") for name, unit in UNITS.items()),
    unavailable=unavailable,
    measure=measure,
    is_detail=True,
)
