"""HBM and L2↔SM bytes by the GPU's hardware counters, for the whole pass and for each of its launches."""

import statistics
from collections.abc import Sequence

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti.chip import chip_metrics
from profiler.cupti.host import traffic_metrics
from profiler.cupti.library import CuptiError
from profiler.cupti.permission import unavailable
from profiler.cupti.ranges import RangeProfiler, Ranges
from profiler.run import Measurement, spread_of

READ_PASSES, WRITE_PASSES = 3, 2
OWN = ("run", "drained", "drain")  # ranges that are no launch's
UNITS = {"hbm_read_bytes": "B", "hbm_write_bytes": "B", "l2_sm_bytes": "B", "gpu_time_seconds": "s"}


def measure(load: Load) -> Reading:
    """hbm_read_bytes, hbm_write_bytes, l2_sm_bytes, and the same with the time for each launch, in one pass.

    gpu_time_seconds of a launch is its range's and holds the start of the launch too, which is much of a short one.
    What a pass wrote may still lie in L2 when its range ends. So, if the Workload asks for the drain, writes are
    counted in ranges of their own that end with it: a read of clean lines that pushes every dirty one out; what a
    drain alone writes is subtracted.
    """
    try:
        values, launch_names = _collect(load)
    except CuptiError as error:
        raise Unavailable(str(error)) from error
    l2 = f"{load.l2} L2"
    whole = values["run"]
    reads, writes, crossings = (
        tuple(v[q] for v in whole) for q in ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes")
    )
    until = "the pass ends, without what it wrote and L2 still holds"
    if load.drain:
        until = "L2 holds no dirty line"
        drain_writes = statistics.median(v["hbm_write_bytes"] for v in values["drain"])
        writes = tuple(max(0.0, v["hbm_write_bytes"] - drain_writes) for v in values["drained"])
    measurements = [
        _median("hbm_read_bytes", reads, f"dram read bytes, {l2}"),
        _median("hbm_write_bytes", writes, f"dram write bytes until {until}, {l2}"),
        _median("l2_sm_bytes", crossings, f"L2 sectors from and to the SMs × 32 B, {l2}"),
    ]
    note = f"one pass, {l2} at its first launch; a write still in L2 when its launch ends counts for a later one"
    for name, (found,) in ((name, values[name]) for name in launch_names):
        measurements += [Measurement(q, found[q], UNITS[q], "cupti-range", note, launch=name) for q in UNITS]
    return Reading(tuple(measurements), {"hbm_read_bytes": reads, "hbm_write_bytes": writes, "l2_sm_bytes": crossings})


def _collect(load: Load) -> tuple[dict[str, list[dict[str, float]]], list[str]]:
    """Values of every range by its name (those of OWN, then launch names), and the launch names."""
    traffic = traffic_metrics(chip_metrics()[1])
    load.evict_l2()  # makes the scratch buffer
    launches = len(load.launch_names)
    # CUPTI's start-up time grows with the ranges it must hold.
    max_ranges = READ_PASSES + WRITE_PASSES + 1 + launches
    with RangeProfiler(traffic.names, max_ranges) as profiler, profiler.collecting() as ranges:
        for _ in range(READ_PASSES):
            load.prepare_l2()
            with ranges.range("run"):
                load.launch()
        if load.drain:
            _count_writes(load, ranges)
        load.prepare_l2()
        load.launch(hook=ranges.range)
    values: dict[str, list[dict[str, float]]] = {}
    for name, found in ranges.values:
        values.setdefault(name, []).append(traffic.traffic(found))
    return values, [name for name in values if name not in OWN]


def _count_writes(load: Load, ranges: Ranges) -> None:
    for _ in range(WRITE_PASSES):
        load.prepare_l2()
        with ranges.range("drained"):
            load.launch()
            load.evict_l2()
    with ranges.range("drain"):
        load.evict_l2()


def _median(name: str, values: Sequence[float], note: str) -> Measurement:
    note = f"{note}, median of {len(values)} passes"
    return Measurement(name, statistics.median(values), "B", "cupti-range", note, spread_of(tuple(values)))


COUNTER = Counter(
    name="cupti_range",
    title="Hardware counters (CUPTI)",
    order=40,
    phase="count",
    quantities=tuple((name, unit, "cupti-range") for name, unit in UNITS.items() if unit == "B"),
    unavailable=unavailable,
    measure=measure,
)
