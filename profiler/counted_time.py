"""What counting does to a pass's own time: events around passes that are counted, and around others that are not."""

import statistics

from profiler.bench import Load
from profiler.cupti.chip import chip_traffic
from profiler.cupti.library import CuptiError
from profiler.cupti.ranges import RangeProfiler
from profiler.plausible import printable
from profiler.run import Measurement

PAIRS = 3


def counted_times(load: Load) -> tuple[Measurement, Measurement]:
    """gpu_time_seconds of a pass alone (cuda-event) and of one that is counted (cupti-range), by turns; medians.

    None with the reason where counters cannot be read. By events, since a range's own time holds the start of the
    launch too, which is much of a short one; by turns, since clocks fall while a GPU gets warm.
    """
    alone, counted = [], []
    try:
        with RangeProfiler(chip_traffic().names, PAIRS) as profiler:
            for _ in range(PAIRS):
                alone.append(_seconds(load))
                with profiler.collecting() as ranges, ranges.range("pass"):
                    counted.append(_seconds(load))
    except CuptiError as error:
        reason = printable(str(error))
        return _time(None, "cuda-event", reason), _time(None, "cupti-range", reason)
    how = f"events around a pass, {load.l2} L2, median of {PAIRS}"
    return (
        _time(statistics.median(alone), "cuda-event", f"{how}, not counted, by turns with counted ones"),
        _time(statistics.median(counted), "cupti-range", f"{how}, counted"),
    )


def _seconds(load: Load) -> float:
    one = load.timed_pass()
    load.synchronize()
    return one.seconds


def _time(value: float | None, source: str, note: str) -> Measurement:
    return Measurement("gpu_time_seconds", value, "s", source, note)
