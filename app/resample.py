"""Samples over time as fewer bins to draw: means, which keep the area, and the highest sample of each bin."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernels.problem import Int64Array

FloatArray = NDArray[np.float64]
LATE = 1.5  # intervals from one sample to the next, from which on some are missing between them


@dataclass(frozen=True)
class Bins:
    """Bins of samples that follow each other without a gap; each is drawn as one level.

    first, size: each bin's first sample and how many it holds, [bins]; start, end: the time it covers, s, [bins].
    A bin ends where the next one starts, unless samples are missing between them.
    """

    first: Int64Array
    size: Int64Array
    start: FloatArray
    end: FloatArray

    def mean(self, values: FloatArray) -> FloatArray:
        """The mean of each bin, [bins]; mean × size × interval adds up to what the samples do."""
        return np.add.reduceat(values, self.first) / self.size

    def highest(self, values: FloatArray) -> FloatArray:
        """The highest sample of each bin, [bins]."""
        return np.maximum.reduceat(values, self.first)

    def outline(self, heights: FloatArray) -> tuple[FloatArray, FloatArray, Int64Array]:
        """x, y and bin of each point of a line that goes right, then up or down; y NaN lifts the pen.

        It is lifted where samples are missing and where a height is NaN.
        """
        known = np.isfinite(heights)
        goes_on = np.append(known[1:] & (self.end[:-1] == self.start[1:]), False)
        closes = known & ~goes_on
        after = np.repeat(np.flatnonzero(closes) + 1, 2)
        last = np.column_stack([heights[closes], np.full(closes.sum(), np.nan)]).ravel()
        x, y = np.insert(self.start, after, np.repeat(self.end[closes], 2)), np.insert(heights, after, last)
        return x, y, np.insert(np.arange(len(heights)), after, after - 1)


def gaps(seconds: FloatArray, interval: float) -> Int64Array:
    """The samples after which others are missing, by the times at which the samples begin."""
    return np.flatnonzero(np.diff(seconds) > LATE * interval)


def resample(seconds: FloatArray, interval: float, most: int) -> Bins:
    """Bins of equally many samples, about `most` at most (gaps add to them); seconds [samples] rise, at least one.

    A bin is shorter before a gap and at the end.
    """
    samples = len(seconds)
    factor = -(-samples // most)
    breaks = gaps(seconds, interval)
    begins = np.concatenate([[0], breaks + 1])
    place = np.arange(samples) - np.repeat(begins, np.diff(np.append(begins, samples)))
    first = np.flatnonzero(place % factor == 0)
    size = np.diff(np.append(first, samples))
    last = first + size - 1
    start = seconds[first]
    end = np.where(np.isin(last, breaks), seconds[last] + interval, np.append(start[1:], seconds[-1] + interval))
    return Bins(first, size, start, end)
