"""HBM and L2↔SM bytes by the GPU's hardware counters, for the whole pass and for each of its launches."""

import statistics
from collections import Counter as Counts
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from kernels.run import LaunchHook
from profiler.bench import Load
from profiler.counted import checked
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti.chip import chip_traffic
from profiler.cupti.host import SECTOR_BYTES
from profiler.cupti.launches import AnotherWatcher, watched_launches
from profiler.cupti.library import CuptiError
from profiler.cupti.permission import unavailable
from profiler.cupti.ranges import RangeProfiler, Ranges
from profiler.launched import names_of
from profiler.plausible import MAX_LAUNCHES
from profiler.run import KERNEL, Measurement, spread_of

READ_PASSES, WRITE_PASSES, DRAINS = 3, 2, 3
# Ranges that are no launch's: a launch is named by an identifier.
OWN = WHOLE, DRAINED, DRAIN = "whole pass", "drained pass", "drain alone"
OUTSIDE = "outside any launch"
QUANTITIES = ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes")
# What each counts, by name; of the last two a chip may have none in the same pass.
MEANINGS = {
    "hbm_read_bytes": "dram read bytes",
    "hbm_write_bytes": "dram write bytes",
    "l2_sm_bytes": f"L2 sectors from and to the SMs × {SECTOR_BYTES} B",
    "l2_to_sm_bytes": "bytes that arrived at the SMs' L1 over the crossbar, without what the SMs wrote",
    "l2_sm_read_bytes": f"L2 sectors read for the SMs × {SECTOR_BYTES} B, what several SMs read at once counted once",
}

Values = dict[str, float]


def measure(load: Load) -> Reading:
    """hbm_read_bytes, hbm_write_bytes and l2_sm_bytes of a pass, the same of each launch, and which kernels it made.

    What a pass wrote may still lie in L2 when its range ends. So, if the Workload asks for the drain, writes are
    counted in ranges of their own that end with it: a read of clean lines that pushes every dirty one out; what a
    drain alone writes is subtracted. The kernels of a launch that makes several are counted one by one as well.
    """
    try:
        values, launches, kernels = _collect(load)
    except CuptiError as error:
        raise Unavailable(str(error)) from error
    named = Reading() if kernels is None else names_of(kernels)
    if kernels is not None and len({launch for launch, _ in kernels}) < len(kernels) <= MAX_LAUNCHES:
        # Where a library makes other kernels this time, the launches have been counted all the same.
        with suppress(CuptiError):
            named, single = _by_kernel(load, kernels)
            launches += single
    drained, drains = ([each["hbm_write_bytes"] for each in values[name]] for name in (DRAINED, DRAIN))
    whole = {q: [each[q] for each in values[WHOLE]] for q in MEANINGS if q in values[WHOLE][0]}
    counted, reasons = checked(load, whole, drained, drains)
    until = "L2 holds no dirty line" if load.drain else "the pass ends, without what it wrote and L2 still holds"
    measurements = [Measurement(q, None, "B", "cupti-range", reason) for q, reason in reasons.items()]
    for quantity, each in counted.items():
        what = MEANINGS[quantity] + (f" until {until}" if quantity == "hbm_write_bytes" else "")
        note = f"{what}, {load.l2} L2, median of {len(each)} passes"
        value = statistics.median(each)
        measurements.append(Measurement(quantity, value, "B", "cupti-range", note, spread_of(each)))
    for name, found in launches:
        measurements += _of_a_launch(name, found, load.l2)
    samples = {quantity: counted[quantity] for quantity in QUANTITIES if quantity in counted}
    return Reading((*measurements, *named.measurements), samples, kernels=named.kernels)


def _of_a_launch(name: str, found: Values, l2: str) -> list[Measurement]:
    """A range's own time holds the start of the launch too; that of a kernel counted by itself does not."""
    note = f"one pass, {l2} L2 at its first launch; a write still in L2 when its launch ends counts for a later one"
    units = {**dict.fromkeys(MEANINGS, "B"), **({"gpu_time_seconds": "s"} if KERNEL in name else {})}
    return [Measurement(q, found[q], unit, "cupti-range", note, launch=name) for q, unit in units.items() if q in found]


def _collect(load: Load) -> tuple[dict[str, list[Values]], list[tuple[str, Values]], list[tuple[str, str]] | None]:
    """Values of every range of OWN by name; of each launch; and the kernels of the counted launches, by launch.

    The kernels are None where another profiler in this process is told of them.
    """
    traffic = chip_traffic()
    load.evict_l2()  # makes the scratch buffer
    # CUPTI's start-up time grows with the ranges it must hold.
    max_ranges = READ_PASSES + WRITE_PASSES + DRAINS + len(load.launch_names)
    with RangeProfiler(traffic.names, max_ranges) as profiler, profiler.collecting() as ranges:
        for _ in range(READ_PASSES):
            load.prepare_l2()
            with ranges.range(WHOLE):
                load.launch()
        if load.drain:
            _count_writes(load, ranges)
        load.prepare_l2()
        kernels = _count_launches(load, ranges)
    found = [(name, traffic.traffic(counted)) for name, counted in ranges.values]
    values = {own: [each for name, each in found if name == own] for own in OWN}
    return values, [(name, each) for name, each in found if name not in OWN], kernels


def _count_launches(load: Load, ranges: Ranges) -> list[tuple[str, str]] | None:
    try:
        with watched_launches(ranges.cupti) as seen:
            load.launch(hook=_both(ranges.range, seen.launch))
        return seen.kernels
    except AnotherWatcher:
        load.launch(hook=ranges.range)
        return None


def _both(outer: LaunchHook, inner: LaunchHook) -> LaunchHook:
    @contextmanager
    def hook(name: str) -> Iterator[None]:
        with outer(name), inner(name):
            yield

    return hook


def _by_kernel(load: Load, kernels: Sequence[tuple[str, str]]) -> tuple[Reading, list[tuple[str, Values]]]:
    """Names of all kernels, and values of those that share their launch, from one more pass.

    In it every kernel is a range of its own. Such a kernel is named after its launch, with its number. Raises
    CuptiError where the pass makes others.
    """
    traffic = chip_traffic()
    made = Counts(launch for launch, _ in kernels)
    numbers: Counts[str] = Counts()
    labels = []
    for launch, _ in kernels:
        numbers[launch] += 1
        labels.append(launch if made[launch] == 1 else f"{launch or OUTSIDE}{KERNEL}{numbers[launch]}")
    with RangeProfiler(traffic.names) as profiler, watched_launches(profiler.cupti) as seen:

        def work() -> None:
            seen.kernels.clear()
            load.launch(hook=seen.launch)

        found = profiler.collect_kernels(work, len(kernels), prepare=load.prepare_l2)
    if seen.kernels != list(kernels):
        raise CuptiError("No GPU counters: the work launched other kernels than before. Repeat the measurement.")
    named = names_of([(label, kernel) for label, (_, kernel) in zip(labels, kernels, strict=True)])
    counted = [(label, traffic.traffic(each)) for label, each in zip(labels, found, strict=True) if KERNEL in label]
    return named, counted


def _count_writes(load: Load, ranges: Ranges) -> None:
    for _ in range(WRITE_PASSES):
        load.prepare_l2()
        with ranges.range(DRAINED):
            load.launch()
            load.evict_l2()
    for _ in range(DRAINS):
        load.prepare_l2()  # what that leaves dirty is none of the pass's
        with ranges.range(DRAIN):
            load.evict_l2()


COUNTER = Counter(
    name="cupti_range",
    title="Hardware counters (CUPTI)",
    order=40,
    phase="count",
    quantities=tuple((name, "B", "cupti-range") for name in QUANTITIES),
    unavailable=unavailable,
    measure=measure,
)
