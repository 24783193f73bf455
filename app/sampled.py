"""The sampled bandwidths of a Run, from its first launch on, and the bins drawn of them; or why there are none."""

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from app.resample import Bins, FloatArray, gaps, resample
from kernels.schedule import DRAIN
from profiler.run import LaunchSpan, Run, Series

SOURCE = "cupti-sampling"
READ, WRITE, L2_SM = "hbm_read_bytes_per_second", "hbm_write_bytes_per_second", "l2_sm_bytes_per_second"
BUSY = 0.02  # share of the highest bandwidth from which a sample shows work
MOST_GAPS = 100
UNEVEN = 0.05  # share of the interval by which the mean step from sample to sample may differ from it
MOST_BINS = 1500
NONE = f"This Run has no samples over time: choose {SOURCE} under More settings → bytes counted by."


@dataclass(frozen=True)
class Sampled:
    """Bandwidths of one Run, B/s, each the mean over about `interval` seconds from its time on; arrays [samples].

    Seconds count from the start of the first launch; without spans, from the first sample that shows work. `launches`
    are in order of their start, without the drain; `peak` is that of HBM where it is known.
    """

    interval: float
    seconds: FloatArray
    read: FloatArray
    write: FloatArray
    l2_sm: FloatArray | None
    launches: tuple[LaunchSpan, ...]
    drain: LaunchSpan | None
    peak: float | None

    @property
    def hbm(self) -> FloatArray:
        """Read and written together: what shares the peak."""
        return self.read + self.write

    @property
    def is_impossible(self) -> NDArray[np.bool_]:
        """Of each sample whether it is above the peak."""
        return self.hbm > (np.inf if self.peak is None else self.peak)

    @cached_property
    def lasting(self) -> FloatArray:
        """How long each sample counts, s: until the next one begins, `interval` where that is missing."""
        steps: FloatArray = np.diff(self.seconds, append=self.seconds[-1] + self.interval)
        steps[gaps(self.seconds, self.interval)] = self.interval
        return steps

    @property
    def one_pass(self) -> tuple[float, float] | None:
        """From the start of the first launch to the end of the last; None where the launches are not known."""
        if not self.launches:
            return None
        start, end = self.launches[0].start, max(span.end for span in self.launches)
        return (start, end) if end > start else None

    def total(self, values: FloatArray) -> float:
        """Bytes of all samples."""
        return float((values * self.lasting).sum())

    def between(self, values: FloatArray, start: float, end: float) -> float:
        """Bytes of the samples from start to end; of a sample at an end the share of its time that lies inside."""
        return float((values * self._inside(start, end)).sum())

    def known(self, start: float, end: float) -> float:
        """Seconds from start to end for which there are samples."""
        return float(self._inside(start, end).sum())

    def missing(self, start: float, end: float) -> int:
        """How many samples are missing from start to end."""
        return round((end - start - self.known(start, end)) / self.interval) if end > start else 0

    def _inside(self, start: float, end: float) -> FloatArray:
        inside = np.minimum(self.seconds + self.lasting, end) - np.maximum(self.seconds, start)
        return np.asarray(np.maximum(inside, 0.0))

    def average(self, values: FloatArray, start: float, end: float) -> float | None:
        """Mean rate over the samples from start to end, B/s; None without one."""
        known = self.known(start, end)
        return self.between(values, start, end) / known if known > 0 else None

    @property
    def drain_from(self) -> float:
        """When bytes begin to be the drain's: half-way between the pass and the drain; never without a drain.

        There the GPU idles, so that no sample holds bytes of both; without a pause the sample at the border is shared.
        """
        if self.drain is None:
            return np.inf
        return (max((span.end for span in self.launches), default=self.drain.start) + self.drain.start) / 2

    def average_of_pass(self, values: FloatArray, start: float, end: float) -> float | None:
        """Mean rate of a pass from start to end over the part of it that was sampled, B/s; None without a sample.

        A sample that begins before it or ends after it holds no other work.
        """
        known = self.known(start, end)
        moved = self.between(values, start - self.interval, min(end + self.interval, self.drain_from))
        return moved / known if known > 0 else None

    @property
    def extent(self) -> tuple[float, float]:
        """From the first sample or launch to the end of the last, the drain included, s."""
        spans = [*self.launches, *([self.drain] if self.drain else [])]
        starts = [float(self.seconds[0]), *(span.start for span in spans)]
        ends = [float(self.seconds[-1]) + self.interval, *(span.end for span in spans)]
        return min(starts), max(ends)

    def window(self) -> tuple[float, float]:
        """The time worth drawing: from the first launch or work to the end of the last, s."""
        busy = np.flatnonzero(_at_work(self.hbm, self.peak))
        spans = [*self.launches, *([self.drain] if self.drain else [])]
        starts = [float(self.seconds[busy[0] if len(busy) else 0]), *(span.start for span in spans)]
        ends = [float(self.seconds[busy[-1] if len(busy) else -1]) + self.interval, *(span.end for span in spans)]
        return min(starts), max(ends)


def _at_work(hbm: FloatArray, peak: float | None) -> NDArray[np.bool_]:
    """Which samples show work; one above the peak sets no measure for the others."""
    possible = hbm if peak is None else np.minimum(hbm, peak)
    return np.asarray(possible > BUSY * possible.max())


@dataclass(frozen=True)
class Drawn:
    """The samples of a Run that lie in the shown time, as bins; what is above the peak is NaN. B/s, [bins]."""

    bins: Bins
    read: FloatArray
    hbm: FloatArray
    highest: FloatArray
    l2_sm: FloatArray | None
    l2_sm_highest: FloatArray | None
    impossible: FloatArray  # the highest sample above the peak, NaN where all are possible

    @property
    def is_thinned(self) -> bool:
        """Whether a bin stands for several samples."""
        return bool((self.bins.size > 1).any())


def drawn(found: Sampled, most: int = MOST_BINS) -> Drawn:
    """What is drawn of a Run: its window in `most` bins at most, and no mean above the peak."""
    start, end = found.window()
    inside = slice(*np.searchsorted(found.seconds, [start - found.interval, end]))
    bins = resample(found.seconds[inside], found.interval, most)
    peak = np.inf if found.peak is None else found.peak
    hbm, highest = bins.mean(found.hbm[inside]), bins.highest(found.hbm[inside])
    l2_sm = None if found.l2_sm is None else found.l2_sm[inside]
    return Drawn(
        bins,
        np.where(hbm > peak, np.nan, bins.mean(found.read[inside])),
        np.where(hbm > peak, np.nan, hbm),
        np.minimum(highest, peak),
        None if l2_sm is None else bins.mean(l2_sm),
        None if l2_sm is None else bins.highest(l2_sm),
        np.where(highest > peak, highest, np.nan),
    )


@lru_cache(maxsize=16)
def sampled(run: Run) -> Sampled | str:
    """The samples of a Run, or one sentence that says why there are none to draw."""
    found = {series.name: series for series in run.series if series.source == SOURCE}
    if READ not in found or WRITE not in found:
        return _why_none(run)
    read, write, l2_sm = found[READ], found[WRITE], found.get(L2_SM)
    fault = _fault(tuple(series for series in (read, write, l2_sm) if series is not None))
    if fault or read.interval is None:
        return fault
    seconds, hbm = np.array(read.seconds), np.array(read.values) + np.array(write.values)
    spans = sorted(run.spans, key=lambda span: span.start)
    launches = [span for span in spans if span.launch != DRAIN]
    peak = run.device.peak_hbm_bytes_per_second or None
    zero = launches[0].start if launches else float(seconds[np.argmax(_at_work(hbm, peak))])
    moved = [replace(span, start=span.start - zero, end=span.end - zero) for span in spans]
    return Sampled(
        read.interval,
        seconds - zero,
        np.array(read.values),
        np.array(write.values),
        None if l2_sm is None else np.array(l2_sm.values),
        tuple(span for span in moved if span.launch != DRAIN),
        next((span for span in moved if span.launch == DRAIN), None),
        peak,
    )


def _fault(series: tuple[Series, ...]) -> str:
    """Why series that a file may hold cannot be drawn on one axis; empty where they can."""
    first = series[0]
    if not first.seconds or first.interval is None:
        return "The series over time of this Run is empty, or does not say how long a sample lasts."
    if any((one.seconds, one.interval) != (first.seconds, first.interval) for one in series):
        return "The samples over time of this Run were not taken at the same times, so they share no axis."
    seconds = np.array(first.seconds)
    if (np.diff(seconds) <= 0).any() or any(min(one.values) < 0 for one in series):
        return "The samples over time of this Run are out of order, or below zero."
    late = gaps(seconds, first.interval)
    if len(late) > MOST_GAPS:
        return f"The samples over time of this Run have more than {MOST_GAPS} gaps."
    steps = np.delete(np.diff(seconds), late)
    if len(steps) and abs(steps.mean() / first.interval - 1) > UNEVEN:
        step, interval = (f"{part * 1e6:.4g} µs" for part in (steps.mean(), first.interval))
        fault = "overlap" if steps.mean() < first.interval else "leave time between them"
        return f"The samples over time of this Run {fault}: one begins every {step}, and each lasts {interval}."
    return ""


def _why_none(run: Run) -> str:
    """What the source said; on a CPU, what any counter said; else how to get samples."""
    answers = [run.find("hbm_read_bytes", source=SOURCE)]
    if not run.workload.on_gpu:
        answers.append(run.find("hbm_read_bytes"))
    reason = next((part.note for part in answers if part is not None and part.value is None), NONE)
    return f"{reason[:1].upper()}{reason[1:].rstrip('.')}."
