"""Which SM ran which program, when: measured times as lanes, and what they add up to."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from kernels.problem import Int64Array
from profiler.codec import NotARun
from profiler.run import ProgramTrace

MOST_PROGRAMS = 2**17
CLOCK = "globaltimer"  # the source of what the running kernel read from the GPU's clock


@dataclass(frozen=True)
class Lanes:
    """A ProgramTrace unpacked: SM, start and end in ns of each program, int64 [programs].

    `slot` tells programs apart that share an SM at the same time; `wave` counts the programs before it in its slot.
    A lane is one slot of one SM, as far as a program ran in it.
    """

    sm: Int64Array
    start: Int64Array
    end: Int64Array
    slot: Int64Array
    wave: Int64Array

    @cached_property
    def at_once(self) -> int:
        """The most programs that ran at one moment."""
        time = np.concatenate([self.end, self.start])
        step = np.repeat([-1, 1], len(self.start))
        # Of equal times the ends come first, as they stand first.
        # A clock may be too coarse to see any program run.
        return max(1, int(step[np.argsort(time, kind="stable")].cumsum().max()))

    @property
    def waves(self) -> int:
        """How often that many programs are needed to get through all of them."""
        return -(-len(self.start) // self.at_once)

    @property
    def longest_queue(self) -> int:
        """Programs that the busiest slot of an SM ran one after another."""
        return int(self.wave.max()) + 1

    @property
    def sms(self) -> int:
        """SMs that ran at least one program."""
        return len(np.unique(self.sm))

    @property
    def slots(self) -> int:
        """Programs that shared the fullest SM at one time."""
        return int(self.slot.max()) + 1

    @property
    def duration(self) -> int:
        """From the first start to the last end, ns."""
        return int(self.end.max())

    @property
    def took(self) -> Int64Array:
        """How long each program ran, ns."""
        return np.asarray(self.end - self.start)

    @cached_property
    def lane(self) -> Int64Array:
        """The number of each program's lane, from 0, by SM and then by slot."""
        return np.asarray(np.unique(self.sm * self.slots + self.slot, return_inverse=True)[1])

    @property
    def tail_idle(self) -> float:
        """Share of all lanes' time that passes between a lane's last end and the end of the last lane.

        Σ over lanes of (last end of all − its last end) / (lanes × duration): 0 where all lanes end together. SMs on
        which no program ran have no lane and do not count.
        """
        last = np.zeros(int(self.lane.max()) + 1, dtype=np.int64)
        np.maximum.at(last, self.lane, self.end)
        return float((self.duration - last).mean() / self.duration) if self.duration else 0.0

    @property
    def imbalance(self) -> float | None:
        """Time of the longest program / time of the median one: 1 where all are alike; None on a clock too coarse."""
        median = float(np.median(self.took))
        return float(self.took.max()) / median if median > 0 else None

    @property
    def busiest(self) -> float | None:
        """Time in which the busiest lane ran programs / the mean over lanes; None where the clock saw none pass."""
        busy = np.bincount(self.lane, weights=self.took)
        return float(busy.max() / busy.mean()) if busy.any() else None

    def running_at(self, moments: int) -> tuple[Int64Array, Int64Array]:
        """(program, moment) of each program that runs at the middle of each of `moments` equal stretches."""
        width = self.stretch(moments)
        # A program runs at the moments from its first to before its last.
        first, last = (np.ceil(time / width - 0.5).astype(np.int64) for time in (self.start, self.end))
        counts = last - first
        program = np.repeat(np.arange(len(counts)), counts)
        moment = np.arange(counts.sum()) - np.repeat(counts.cumsum() - counts, counts) + first[program]
        return program, moment

    def stretch(self, moments: int) -> float:
        """Length of each of so many equal stretches, ns; a clock may be too coarse to see any time pass."""
        return max(1.0, float(self.duration)) / moments


@lru_cache(maxsize=8)
def lanes(trace: ProgramTrace) -> Lanes | None:
    """The lanes of a trace; None where its arrays do not fit together or hold too many, as an imported one's may."""
    if trace.sm.nbytes > MOST_PROGRAMS * 8:
        return None
    try:
        sm, start, end = (part.numpy().astype(np.int64).ravel() for part in (trace.sm, trace.start_ns, trace.end_ns))
    except NotARun:
        return None
    if not len(sm) == len(start) == len(end) or len(sm) == 0 or (end < start).any() or start.min() < 0 or sm.min() < 0:
        return None
    slot, wave = np.zeros_like(sm), np.zeros_like(sm)
    free: dict[int, list[int]] = {}
    count: dict[tuple[int, int], int] = {}
    for program in np.argsort(start, kind="stable").tolist():
        here = free.setdefault(int(sm[program]), [])
        # The clock ticks: a program may seem to begin one tick before its forerunner ended.
        place = next((i for i, until in enumerate(here) if until <= start[program] + trace.timer_step_ns), len(here))
        here[place : place + 1] = [int(end[program])]
        slot[program], wave[program] = place, count.get((int(sm[program]), place), 0)
        count[int(sm[program]), place] = int(wave[program]) + 1
    return Lanes(sm, start, end, slot, wave)
