"""HBM and L2↔SM bytes over time: the GPU's hardware counters sampled every 20 µs while a pass runs, and their sums."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from time import perf_counter_ns, sleep

import numpy as np

from kernels.schedule import DRAIN
from profiler.bench import Load
from profiler.counted import checked
from profiler.counter import Counter, Reading, Unavailable
from profiler.cupti.chip import chip_metrics
from profiler.cupti.host import PM_SAMPLING, SECTOR_BYTES, traffic_metrics
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
PASSES, DRAINS = 3, 3  # one pass where three would take more than MAX_SAMPLES
INTERVAL_NS = 20_000
MAX_SAMPLES = 2**15  # 512 MiB of raw samples
STORED_SAMPLES = 20_000
# What sampling may take longer than when it was timed: clocks vary, and the host lets the GPU wait.
SLOWER, SLACK_NS, SLACK_SAMPLES = 2, 60_000_000, 64
GAP_SECONDS, GAP_INTERVALS = 5e-4, 15
SHORT_SPIN_CYCLES = 480_000  # about a quarter of a millisecond, for a single launch
SHOWN_IDLE = 10  # samples before a pass and after it
BUSY, HELD, TOLD = 0.01, 0.99, 0.01
FIRST_VERSION = 130_000  # CUDA 13.0; in 12.8 no chip has metrics of HBM bytes for PM sampling
PREPARE = "prepare"
DRAINED, UNDRAINED, DRAIN_ALONE = (PREPARE, "pass", DRAIN), (PREPARE, "pass"), (PREPARE, DRAIN)

Span = tuple[str, int, int]  # name, start and end in ns


@dataclass(frozen=True)
class Plan:
    """How one Load is sampled: what runs between idle gaps, and the most samples that may take."""

    parts: tuple[str, ...]
    interval_ns: int
    max_samples: int


@dataclass(frozen=True)
class Window:
    """One part of a Plan and when its work ran, in ns of the samples' clock: launches by name, or the part itself."""

    part: str
    spans: tuple[Span, ...]

    @property
    def start(self) -> int:
        """When its first work began."""
        return self.spans[0][1]

    @property
    def end(self) -> int:
        """When its last work ended."""
        return self.spans[-1][2]


def measure(load: Load) -> Reading:
    """hbm_read_bytes, hbm_write_bytes and l2_sm_bytes of a pass as sums of samples, and the first pass over time.

    All passes are in one sampling, each from an idle GPU to an idle GPU. If the Workload asks for the drain, writes
    are those until the end of a drain that follows the pass, a read of clean lines that pushes every dirty one out,
    less what a drain alone writes.
    """
    try:
        traffic = traffic_metrics(chip_metrics(PM_SAMPLING)[1])
        plan = _plan(load)
        with PmSampler((traffic.read, traffic.write, traffic.sectors)) as sampler:
            samples, windows = _sample(sampler, plan, load)
    except CuptiError as error:
        raise Unavailable(str(error)) from error
    passes = [window for window in windows if window.part == "pass"]
    drains = [window for window in windows if window.part == DRAIN]
    after, alone = drains[: len(passes)], drains[len(passes) :]
    drained = [_total(samples, w.start, d.end, "hbm_write_bytes") for w, d in zip(passes, after, strict=load.drain)]
    counted, reasons = checked(
        load,
        {q: [_total(samples, w.start, w.end, q) for w in passes] for q in QUANTITIES},
        drained,
        [_total(samples, d.start, d.end, "hbm_write_bytes") for d in alone],
    )
    until = "L2 holds no dirty line" if load.drain else "the pass ends, without what it wrote and L2 still holds"
    how = f"{load.l2} L2, device-wide, samples of {_mean_seconds(samples) * 1e6:.4g} µs"
    if plan.interval_ns > INTERVAL_NS:
        how += f", longer than {INTERVAL_NS / 1e3:.0f} µs so that {MAX_SAMPLES:,} suffice"
    how += _idle_traffic(samples, windows, passes[0])
    if others := _others(load.device):
        how += f"; {others}"
    meanings = (
        "dram read bytes",
        f"dram write bytes until {until}",
        f"L2 sectors from and to the SMs × {SECTOR_BYTES} B",
    )
    measurements = tuple(
        _median(quantity, counted[quantity], f"{meaning}, {how}")
        if quantity in counted
        else Measurement(quantity, None, "B", "cupti-sampling", reasons[quantity])
        for quantity, meaning in zip(QUANTITIES, meanings, strict=True)
    )
    shown = _between(samples, passes[0].start, (after or passes)[0].end, SHOWN_IDLE)
    zero = int(shown.start_ns[0])
    first = [span for window in windows for span in window.spans if zero <= span[1] and span[2] <= shown.end_ns[-1]]
    spans = tuple(LaunchSpan(name, (start - zero) * 1e-9, (end - zero) * 1e-9) for name, start, end in first)
    return Reading(measurements, series=_series(shown), spans=spans)


def _plan(load: Load) -> Plan:
    """An interval of INTERVAL_NS, or longer where even one pass would take more than MAX_SAMPLES."""
    times = {"pass": _host_ns(load, load.launch), DRAIN: _host_ns(load, load.evict_l2)}
    times[PREPARE] = times["pass"] if load.l2 == "warm" else times[DRAIN]
    for passes in (PASSES, 1):
        parts = (DRAINED if load.drain else UNDRAINED) * passes + (DRAIN_ALONE * DRAINS if load.drain else ())
        longest_ns = SLOWER * sum(times[part] for part in parts) + SLACK_NS
        if longest_ns <= INTERVAL_NS * (MAX_SAMPLES - SLACK_SAMPLES):
            break
    microseconds = -(-longest_ns // (1_000 * (MAX_SAMPLES - SLACK_SAMPLES)))
    interval_ns = max(INTERVAL_NS, 1_000 * microseconds)
    return Plan(parts, interval_ns, -(-longest_ns // interval_ns) + SLACK_SAMPLES)


def _host_ns(load: Load, work: Callable[[], object]) -> int:
    """What the host waits for `work`, the second time: at the first kernels are compiled and buffers made."""
    for _ in range(2):
        load.synchronize()
        begin = perf_counter_ns()
        work()
        load.synchronize()
    return perf_counter_ns() - begin


def _sample(sampler: PmSampler, plan: Plan, load: Load) -> tuple[Samples, tuple[Window, ...]]:
    """Samples of all parts, in bytes by QUANTITIES, and when each part ran.

    NVIDIA does not say whose clock gives samples their times. On an H200 it is the GPU's %globaltimer. Where it is
    neither that nor the host's, the first busy sample is taken for the first part. Raises CuptiError unless, in one of
    these, each part holds the traffic around it.
    """
    clock = GpuClock(load.device.device, sum(_count(part, load) for part in plan.parts))
    gap = max(GAP_SECONDS, GAP_INTERVALS * plan.interval_ns * 1e-9)
    with sampler.sampling(plan.interval_ns, plan.max_samples):
        for part in plan.parts:
            load.synchronize()
            sleep(gap)
            if part == "pass":
                load.spin()  # so that marks and launches follow one another without the host between
                load.launch(hook=clock.span)
                continue
            load.spin(SHORT_SPIN_CYCLES)
            with clock.span(part):
                if part == PREPARE:
                    load.prepare_l2()
                else:
                    load.evict_l2()
    read, write, sectors = sampler.samples.values.values()
    values = dict(zip(QUANTITIES, (read, write, sectors * SECTOR_BYTES), strict=True))
    samples = Samples(sampler.samples.start_ns, sampler.samples.end_ns, values)
    marks = clock.spans()
    if len(marks) != sum(_count(part, load) for part in plan.parts):
        raise CuptiError("No GPU counters: the work did not mark each of its launches. Report its kernel.")
    crossed = values["l2_sm_bytes"]
    busy = samples.start_ns[int(np.argmax(crossed > BUSY * crossed.max()))] - marks[0][1]
    for shift in (0, clock.host_ahead_ns, int(busy)):
        left = iter([(name, start + shift, end + shift) for name, start, end in marks])
        windows = tuple(Window(part, tuple(islice(left, _count(part, load)))) for part in plan.parts)
        if _hold(samples, windows):
            return samples, windows
    raise CuptiError(
        "No GPU counters: CUPTI's samples do not show the work where the GPU's clock says that it ran, so one pass "
        "cannot be told from the next. Repeat the measurement; if it stays so, report the versions of CUPTI and driver."
    )


def _count(part: str, load: Load) -> int:
    return len(load.launch_names) if part == "pass" else 1


def _hold(samples: Samples, windows: Sequence[Window]) -> bool:
    """Whether each part holds HELD of what crossed between L2 and the SMs around it, half-way to its neighbours.

    Only kernels make that move, while HBM has some traffic of its own.
    """
    if windows[0].start < samples.start_ns[0] or windows[-1].end > samples.end_ns[-1]:
        return False
    crossed = samples.values["l2_sm_bytes"]
    borders = [(before.end + after.start) // 2 for before, after in pairwise(windows)]
    around = np.searchsorted(borders, (samples.start_ns + samples.end_ns) // 2, side="right")
    for number, window in enumerate(windows):
        near = crossed[around == number].sum()
        if not _total(samples, window.start, window.end, "l2_sm_bytes") >= HELD * near > 0:
            return False
    return True


def _idle_traffic(samples: Samples, windows: Sequence[Window], one: Window) -> str:
    """What HBM moves while nothing of ours runs, as a clause where that is more than TOLD of what a pass moves."""
    step = int(np.median(samples.end_ns - samples.start_ns))
    is_idle = np.ones(len(samples.start_ns), dtype=np.bool_)
    for window in windows:
        is_idle &= (samples.end_ns <= window.start - step) | (samples.start_ns >= window.end + step)
    hbm = samples.values["hbm_read_bytes"] + samples.values["hbm_write_bytes"]
    seconds = float((samples.end_ns - samples.start_ns)[is_idle].sum()) * 1e-9
    rate = float(hbm[is_idle].sum()) / seconds if seconds else 0.0
    of_a_pass = rate * (one.end - one.start) * 1e-9
    if of_a_pass <= TOLD * sum(_total(samples, one.start, one.end, name) for name in QUANTITIES[:2]):
        return ""
    return f"; between passes HBM moves {rate:.3g} B/s by others, so about {of_a_pass:.3g} B of a pass are not its own"


def _total(samples: Samples, start: int, end: int, quantity: str) -> float:
    return float(_between(samples, start, end, 1).values[quantity].sum())


def _between(samples: Samples, start: int, end: int, idle: int) -> Samples:
    """Those from `idle` samples before `start` to as many after `end`."""
    margin = idle * int(np.median(samples.end_ns - samples.start_ns))
    kept = (samples.end_ns > start - margin) & (samples.start_ns < end + margin)
    values = {name: each[kept] for name, each in samples.values.items()}
    return Samples(samples.start_ns[kept], samples.end_ns[kept], values)


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
    note = f"{note}, {f'median of {len(values)} passes' if len(values) > 1 else 'one pass'}"
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
)
