"""What counting does to a pass's own time: the time between two events around a pass that is counted."""

from profiler.bench import Load
from profiler.cupti.chip import chip_metrics
from profiler.cupti.host import traffic_metrics
from profiler.cupti.library import CuptiError
from profiler.cupti.ranges import RangeProfiler
from profiler.plausible import printable
from profiler.run import Measurement


def counted_time(load: Load) -> Measurement:
    """gpu_time_seconds of one pass inside a range; None with the reason where counters cannot be read.

    The range's own time holds the start of the launch too, which is much of a short one.
    """
    try:
        metrics = traffic_metrics(chip_metrics()[1]).names
        load.prepare_l2()
        with RangeProfiler(metrics, 1) as profiler, profiler.collecting() as ranges, ranges.range("pass"):
            start, end = load.timed_launch()
    except CuptiError as error:
        return Measurement("gpu_time_seconds", None, "s", "cupti-range", printable(str(error)))
    note = f"events around one counted pass, {load.l2} L2"
    return Measurement("gpu_time_seconds", start.elapsed_time(end) * 1e-3, "s", "cupti-range", note)
