"""What a source of numbers offers to measure(), and the folder scan that finds every source."""

import importlib
import pkgutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from profiler import counters
from profiler.memory_trace import MemoryTrace
from profiler.plausible import printable
from profiler.run import DeviceInfo, LaunchedKernel, LaunchSpan, Measurement, Series
from profiler.workload import AUTO, LADDER, Workload

if TYPE_CHECKING:
    from profiler.bench import Load


@dataclass(frozen=True)
class Reading:
    """What one source found."""

    measurements: tuple[Measurement, ...] = ()
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    series: tuple[Series, ...] = ()
    spans: tuple[LaunchSpan, ...] = ()
    kernels: tuple[LaunchedKernel, ...] = ()
    memory: MemoryTrace | None = None


class Unavailable(RuntimeError):
    """A source that cannot answer here; the message says why and what would allow it."""


@dataclass(frozen=True)
class Counter:
    """A source of numbers for GPU runs.

    quantities lists (name, unit, source) of what a Run gets from it: where unavailable(device) gives a reason, or
    measuring raises Unavailable, each of them becomes a Measurement of None with that reason. A source either makes
    its own launches (`measure`) or listens while the others make theirs (`watch`, a context manager that yields a
    function to call at its end). Sources run in rising `order`; `phase` is the verb the progress line shows.
    is_slow keeps a source for where the user names it, or none before it has counted its quantities.
    is_detail keeps it for Workloads with `detail`.
    """

    name: str
    title: str
    order: int
    phase: str
    quantities: tuple[tuple[str, str, str], ...]
    unavailable: Callable[[DeviceInfo], str | None]
    measure: "Callable[[Load], Reading] | None" = None
    watch: "Callable[[Load], AbstractContextManager[Callable[[], Reading]]] | None" = None
    is_slow: bool = False
    is_detail: bool = False

    def is_asked(self, workload: Workload) -> bool:
        """Whether a Workload wants this source: all of them, or of those on the LADDER the one it names."""
        if self.is_detail:
            return workload.detail
        on_ladder = {source for *_, source in self.quantities} & set(LADDER)
        return not on_ladder or workload.counters == AUTO or workload.counters in on_ladder

    def missing(self, reason: str) -> Reading:
        """The Reading that says why there is none."""
        words = printable(reason)
        return Reading(tuple(Measurement(n, None, unit, source, words) for n, unit, source in self.quantities))


@cache
def all_counters() -> tuple[Counter, ...]:
    """Every source below profiler/counters, in rising order."""
    modules = [importlib.import_module(f"profiler.counters.{m.name}") for m in pkgutil.iter_modules(counters.__path__)]
    found: list[Counter] = [module.COUNTER for module in modules]
    return tuple(sorted(found, key=lambda counter: counter.order))
