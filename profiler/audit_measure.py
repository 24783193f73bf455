"""The worker's side of an audit: a Load by chosen sources, and all of them by the referee in one go."""

from collections.abc import Callable, Mapping, Sequence, Set
from functools import partial
from typing import Any

import torch

from profiler.audit_grid import Subject
from profiler.audit_limits import REFEREE
from profiler.audit_rows import COUNTER, Found, without_referee
from profiler.bench import forget_inputs
from profiler.counted_time import counted_times
from profiler.counter import Counter, Reading, Unavailable, all_counters
from profiler.known_loads import KnownLoad
from profiler.loads import build
from profiler.measure import PhaseClock, Progress, ask
from profiler.ncu import measure_loads
from profiler.run import DeviceInfo

ASIDE_BYTES = 37 * 2**20  # no whole number of the allocator's blocks

# Measures the Loads of some specs, in order, one Reading each. Raises Unavailable where it cannot measure any.
Referee = Callable[[Sequence[Mapping[str, Any]]], Sequence[Reading]]


def by_sources(subject: Subject, device: DeviceInfo, sources: Set[str], progress: Progress) -> Found:
    """A subject's Load by these sources, its times alone and counted, and what is known beforehand. Raises Refused."""
    with torch.inference_mode():
        load = build(subject.spec, device)
        load.launch()
        load.synchronize()
        times = counted_times(load)  # before: what CUPTI sets up the first time is none of what counting costs
        counters = [c for c in all_counters() if _sources(c) & sources and not c.is_detail]
        clock = PhaseClock(progress, len(counters))
        readings = []
        for counter in counters:
            # Asked before: what loads a library for the first time is none of what counting costs.
            reason = counter.unavailable(device)
            with clock.phase(counter.phase):
                readings.append(counter.missing(reason) if reason else ask(counter, load))
        known = load.measurements() if isinstance(load, KnownLoad) else ()
        del load
        elsewhere = {} if known else _elsewhere(subject, device)
    found = Found(
        subject,
        (*known, *(m for reading in readings for m in reading.measurements)),
        {name: values for reading in readings for name, values in reading.samples.items()},
        clock.seconds,
        elsewhere,
    )
    return found.joined(times)


def _elsewhere(subject: Subject, device: DeviceInfo) -> dict[str, tuple[float, ...]]:
    """Samples of what COUNTER counts, with the tensors in other places of memory than before; none if it cannot."""
    forget_inputs()
    torch.cuda.empty_cache()
    aside = torch.empty(ASIDE_BYTES, dtype=torch.uint8, device=device.device)
    load = build(subject.spec, device)
    load.launch()
    found = [ask(counter, load) for counter in all_counters() if _counts(counter) and not counter.unavailable(device)]
    del aside
    return {name: values for reading in found for name, values in reading.samples.items()}


def _counts(counter: Counter) -> bool:
    return COUNTER in _sources(counter) and not counter.is_detail


def by_referee(subjects: Sequence[Subject], device: DeviceInfo, referee: Referee | None = None) -> tuple[Found, ...]:
    """What the referee, ncu unless another is given, tells of each subject; where it cannot measure, Measurements of
    None with the reason.
    """
    try:
        readings = (referee or _ncu(device))([subject.spec for subject in subjects])
    except Unavailable as reason:
        return without_referee(subjects, str(reason))
    return tuple(Found(subject, reading.measurements) for subject, reading in zip(subjects, readings, strict=True))


def _ncu(device: DeviceInfo) -> Referee:
    """ncu, started once for all Loads. Raises Unavailable with what would allow it."""
    counter = next((counter for counter in all_counters() if REFEREE in _sources(counter)), None)
    reason = "this Bytescope cannot ask ncu" if counter is None else counter.unavailable(device)
    if counter is None or reason is not None:
        raise Unavailable(str(reason))
    return partial(measure_loads, device=device)


def _sources(counter: Counter) -> set[str]:
    return {source for *_, source in counter.quantities}
