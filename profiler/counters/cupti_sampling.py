"""HBM and L2↔SM bytes over time: the GPU's hardware counters sampled every 20 µs while a pass runs, and their sums."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from time import perf_counter_ns, sleep

import numpy as np
from numpy.typing import NDArray

from profiler.bench import Load
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti.chip import chip_metrics
from profiler.cupti.host import PM_SAMPLING, SECTOR_BYTES, TrafficMetrics, traffic_metrics
from profiler.cupti.library import CuptiError
from profiler.cupti.library import load as load_cupti
from profiler.cupti.permission import why_not
from profiler.cupti.sampling import PmSampler, Samples
from profiler.device import gpu_handle
from profiler.gpu_clock import GpuClock
from profiler.neighbours import neighbours
from profiler.nvml import NoGpu, open_nvml
from profiler.run import DeviceInfo, LaunchSpan, Measurement, Series, spread_of

QUANTITIES = ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes")
READ_PASSES, WRITE_PASSES = 3, 2
INTERVAL_NS = 20_000
MAX_SAMPLES = 2**15  # 512 MiB of raw samples
STORED_SAMPLES = 20_000
# What sampling may take longer than when it was timed: clocks vary, and the host lets the GPU wait.
SLOWER, SLACK_NS, SLACK_SAMPLES = 2, 60_000_000, 64
GAP_SECONDS, GAP_INTERVALS = 5e-4, 5
HELD = 0.9
FIRST_VERSION = 130_000  # CUDA 13.0; in 12.8 no chip has metrics of HBM bytes for PM sampling
DRAIN = "drain"

Span = tuple[str, int, int]  # name, start and end in ns


@dataclass(frozen=True)
class Plan:
    """How one Load is sampled; the metrics are the chip's, the samples are all that one sampling may take."""

    traffic: TrafficMetrics
    interval_ns: int
    max_samples: int


def measure(load: Load) -> Reading:
    """hbm_read_bytes, hbm_write_bytes and l2_sm_bytes of a pass as sums over all samples, and one pass over time.

    Each sampling is on its own, from an idle GPU to an idle GPU, so that a sum needs no common clock. If the Workload
    asks for the drain, writes are those of samplings that end with it, a read of clean lines that pushes every dirty
    one out, less what a drain alone writes. The series is of the first of these, with its launches marked.
    """
    try:
        plan = _plan(load)
        passes = [_sample(plan, load.prepare_l2, load.launch) for _ in range(READ_PASSES)]
        marked = [_sample_marked(plan, load) for _ in range(WRITE_PASSES if load.drain else 1)]
        drain = _sample(plan, load.evict_l2, load.evict_l2) if load.drain else None
    except CuptiError as error:
        raise Unavailable(str(error)) from error
    reads, writes, crossings = (tuple(float(s.values[name].sum()) for s in passes) for name in QUANTITIES)
    until = "the pass ends, without what it wrote and L2 still holds"
    if drain is not None:
        until = "L2 holds no dirty line"
        drain_writes = drain.values["hbm_write_bytes"].sum()
        writes = tuple(max(0.0, float(s.values["hbm_write_bytes"].sum() - drain_writes)) for s, _ in marked)
    shown, spans = marked[0]
    how = f"{load.l2} L2, device-wide, samples of {_mean_seconds(shown) * 1e6:.4g} µs"
    if plan.interval_ns > INTERVAL_NS:
        how += f", longer than {INTERVAL_NS / 1e3:.0f} µs so that {MAX_SAMPLES:,} suffice"
    if not spans:
        how += "; launches are not marked, since the samples' clock is neither the GPU's %globaltimer nor the host's"
    if others := _others(load.device):
        how += f"; {others}"
    measurements = (
        _median("hbm_read_bytes", reads, f"dram read bytes, {how}"),
        _median("hbm_write_bytes", writes, f"dram write bytes until {until}, {how}"),
        _median("l2_sm_bytes", crossings, f"L2 sectors from and to the SMs × {SECTOR_BYTES} B, {how}"),
    )
    return Reading(measurements, series=_series(shown), spans=spans)


def _plan(load: Load) -> Plan:
    """An interval of INTERVAL_NS, or longer where one sampling would take more than MAX_SAMPLES."""
    traffic = traffic_metrics(chip_metrics(PM_SAMPLING)[1])
    for _ in range(2):  # the first time kernels are compiled and buffers made
        load.synchronize()
        begin = perf_counter_ns()
        load.launch()
        load.evict_l2()
        load.synchronize()
    longest_ns = SLOWER * (perf_counter_ns() - begin) + SLACK_NS
    microseconds = -(-longest_ns // (1_000 * (MAX_SAMPLES - SLACK_SAMPLES)))
    interval_ns = max(INTERVAL_NS, 1_000 * microseconds)
    return Plan(traffic, interval_ns, -(-longest_ns // interval_ns) + SLACK_SAMPLES)


def _sample(plan: Plan, prepare: Callable[[], object], work: Callable[[], object]) -> Samples:
    """Samples of `work` by QUANTITIES, in bytes.

    The sampler is a new one each time: CUPTI does not say that one can start again.
    """
    traffic = plan.traffic
    with PmSampler((traffic.read, traffic.write, traffic.sectors)) as sampler:
        prepare()
        with sampler.sampling(plan.interval_ns, plan.max_samples):
            work()
    read, write, sectors = sampler.samples.values.values()
    values = dict(zip(QUANTITIES, (read, write, sectors * SECTOR_BYTES), strict=True))
    return Samples(sampler.samples.start_ns, sampler.samples.end_ns, values)


def _sample_marked(plan: Plan, load: Load) -> tuple[Samples, tuple[LaunchSpan, ...]]:
    """Samples of a pass and, if the Load asks for it, of a drain after an idle gap; each launch and the drain as spans.

    NVIDIA does not say whose clock gives samples their times. They are compared with the GPU's, and with the host's,
    to which CUPTI converts the times of its activity records.
    """
    clock = GpuClock(load.device.device, len(load.launch_names) + 1)

    def work() -> None:
        load.launch(hook=clock.span)
        if load.drain:
            load.synchronize()
            sleep(max(GAP_SECONDS, GAP_INTERVALS * plan.interval_ns * 1e-9))
            with clock.span(DRAIN):
                load.evict_l2()

    samples = _sample(plan, load.prepare_l2, work)
    for shift in (0, clock.host_ahead_ns):
        spans = [(name, start + shift, end + shift) for name, start, end in clock.spans()]
        if _hold(samples, spans):
            zero = int(samples.start_ns[0])
            return samples, tuple(LaunchSpan(name, (a - zero) * 1e-9, (b - zero) * 1e-9) for name, a, b in spans)
    return samples, ()


def _hold(samples: Samples, spans: Sequence[Span]) -> bool:
    """Whether the launches hold HELD of the bytes around them, and so the drain; half-way between is the border."""
    windows = [(spans[0][1], max(end for name, _, end in spans if name != DRAIN))]
    windows += [(start, end) for name, start, end in spans if name == DRAIN]
    if windows[0][0] < samples.start_ns[0] or windows[-1][1] > samples.end_ns[-1]:
        return False
    crossed: NDArray[np.float64] = sum(samples.values.values(), np.zeros(len(samples.start_ns)))
    borders = [(end + start) // 2 for (_, end), (start, _) in pairwise(windows)]
    around = np.searchsorted(borders, (samples.start_ns + samples.end_ns) // 2, side="right")
    for number, (start, end) in enumerate(windows):
        near = around == number
        inside = near & (samples.end_ns > start) & (samples.start_ns < end)
        if not crossed[inside].sum() >= HELD * crossed[near].sum() > 0:
            return False
    return True


def _series(samples: Samples) -> tuple[Series, ...]:
    """B/s of each quantity from the first sample on; above STORED_SAMPLES, means of as many neighbours as it takes."""
    count = len(samples.start_ns)
    each = -(-count // STORED_SAMPLES)
    first = np.arange(0, count, each)
    lasting = np.add.reduceat(samples.end_ns - samples.start_ns, first) * 1e-9
    lasting[-1] += -count % each * _mean_seconds(samples)  # the last may be fewer; the GPU is idle by then
    seconds = tuple(((samples.start_ns[first] - samples.start_ns[0]) * 1e-9).tolist())
    return tuple(
        Series(
            f"{name}_per_second",
            "B/s",
            "cupti-sampling",
            seconds,
            tuple((np.add.reduceat(values, first) / lasting).tolist()),
            interval=_mean_seconds(samples) * each,
        )
        for name, values in samples.values.items()
    )


def _mean_seconds(samples: Samples) -> float:
    return float(samples.end_ns[-1] - samples.start_ns[0]) * 1e-9 / len(samples.start_ns)


def _others(device: DeviceInfo) -> str:
    """Whose traffic is among the samples too, as a clause; empty where NVML lists this process alone."""
    try:
        with open_nvml() as nvml:
            return neighbours(nvml, gpu_handle(nvml, device))
    except NoGpu as reason:
        return f"other processes' traffic, if there is any, is included: {str(reason).rstrip('.')}"


def _median(name: str, values: Sequence[float], note: str) -> Measurement:
    note = f"{note}, median of {len(values)} passes"
    return Measurement(name, statistics.median(values), "B", "cupti-sampling", note, spread_of(tuple(values)))


def unavailable(device: DeviceInfo) -> str | None:
    """No GPU, one too old, no library, one too old, or no permission, each with what would allow it."""
    if device.compute_capability is None:
        return "no GPU here, so there is no hardware counter to sample"
    if device.compute_capability < (7, 5):
        major, minor = device.compute_capability
        return f"PM sampling needs compute capability 7.5 (Turing) or newer; {device.name} has {major}.{minor}"
    if reason := why_not():
        return reason
    cupti = load_cupti()
    if cupti.version < FIRST_VERSION:
        return (
            f"No GPU counters: {cupti.path} (API {cupti.version}) cannot sample HBM bytes, which needs CUPTI 13 "
            "(API 130000). Install torch built for CUDA 13, or a CUDA 13 toolkit."
        )
    return None


COUNTER = Counter(
    name="cupti_sampling",
    title="Sampled counters (CUPTI)",
    order=45,
    phase="sample",
    quantities=tuple((name, "B", "cupti-sampling") for name in QUANTITIES),
    unavailable=unavailable,
    measure=measure,
    is_slow=True,
)
