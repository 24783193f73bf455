"""Whether a Run read from a file can have happened: sizes that fit its Workload, values within nature's bounds."""

import re
from collections import Counter
from collections.abc import Collection
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kernels.problem import TileConfig
from kernels.schedule import DRAIN
from profiler.codec import NotARun
from profiler.plausible_memory import require_possible_memory
from profiler.plausible_traces import MAX_CTAS_OF_AN_SM, MAX_SMS, require_fitting_state, require_fitting_timeline
from profiler.workload import DEVICE

if TYPE_CHECKING:
    from profiler.run import DeviceInfo, Measurement, Run, Series

MAX_MEASUREMENTS, MAX_LAUNCHES, MAX_SAMPLES, MAX_TEXT = 5_000, 256, 1_000_000, 500
MAX_SAID = 3_000  # characters of a refusal
LARGEST, SMALLEST = 1e24, 1e-18
MAX_UNIX_SECONDS = 253_402_300_800  # the year 10,000
MAX_SECONDS, MAX_RUN_SECONDS = 3_600.0, 24 * 3_600.0
SHORTEST_SECONDS = 1e-9  # that a clock tells
MAX_CAPACITY, MAX_CAPABILITY = 10**18, 99  # bytes, and either half of a compute capability
MAX_WARPS_OF_AN_SM = 1_024
# What a device has at least 1 of, and at most.
DEVICE_LIMITS = {
    "memory_bytes": MAX_CAPACITY,
    "sm_count": MAX_SMS,
    "l2_bytes": MAX_CAPACITY,
    "shared_memory_per_block": MAX_CAPACITY,
    "shared_memory_per_sm": MAX_CAPACITY,
    "warps_per_sm": MAX_WARPS_OF_AN_SM,
    "peak_hbm_bytes_per_second": LARGEST,
    "peak_flops_per_second": LARGEST,
}
MAX_L2_SM = 1e14  # B/s; an H200's L2 gives a tenth of it
ROOFS = ("copy_bytes_per_second", "l2_copy_bytes_per_second", "l2_read_bytes_per_second")
SPREAD_SLACK = 1e-9  # of a value: what arithmetic loses
PASS_RATIO, PASS_SLACK = 3.0, 1e-3  # between one pass as sampled and the median of the timed ones; s
# What a name ends with when it says its unit; the longer end first.
UNIT_OF_NAME = {
    "_bytes_per_second": "B/s",
    "_bytes": "B",
    "_seconds": "s",
    "flops": "FLOP",
    "_percent": "%",
    "_watts": "W",
    "_joules": "J",
    "_hertz": "Hz",
    "_celsius": "°C",
    "_error": "1",
}
CREATED = re.compile(r"20\d\d-[01]\d-[0-3]\dT[0-2]\d:[0-5]\d:[0-6]\dZ", re.ASCII)


def require_plausible(run: "Run", place: str) -> None:
    """Raise NotARun, naming the place, for a Run that no measurement can have made."""
    if not CREATED.fullmatch(run.created):
        raise NotARun(f"{place}.created is {run.created[:40]!r}; it should be like 2026-11-29T15:59:09Z.")
    _require_short_texts(run, place)
    if len(run.measurements) > MAX_MEASUREMENTS or len({m.launch for m in run.measurements}) > MAX_LAUNCHES:
        raise NotARun(f"{place} has more than {MAX_MEASUREMENTS} measurements or {MAX_LAUNCHES} launches.")
    require_possible_device(run.device, f"{place}.device")
    if run.device.device != run.workload.device:
        raise NotARun(f"{place} ran on {run.workload.device}, but its device is {run.device.device}.")
    for measurement in run.measurements:
        _require_possible(measurement, f"{place}.{measurement.name[:40]}")
    # Reasons may be several: one source is asked in two ways where the first cannot answer.
    _require_single([(m.name, m.source, m.launch) for m in run.measurements if m.value is not None], place)
    _require_possible_samples(run, place)
    if len(run.kernels) > MAX_LAUNCHES:
        raise NotARun(f"{place} has more than {MAX_LAUNCHES} kernels.")
    _require_possible_spans(run, place)
    if run.measured_at is not None and not 0 < run.measured_at[0] <= run.measured_at[1] < MAX_UNIX_SECONDS:
        raise NotARun(f"{place}.measured_at is not a time followed by a later one, in seconds since 1970.")
    if run.softmax is not None:
        require_fitting_state(run.softmax, run, f"{place}.softmax")
    if run.timeline is not None:
        require_fitting_timeline(run.timeline, run, f"{place}.timeline")
    if run.memory is not None:
        require_possible_memory(run.memory, f"{place}.memory")


def require_possible_device(device: "DeviceInfo", place: str) -> None:
    """Raise NotARun, naming the place, for facts that no CPU or GPU has."""
    if not _are_short(
        (device.device, device.name, device.driver or "", device.peak_hbm_source, device.peak_flops_source)
    ):
        raise NotARun(f"{place} has a text that is longer than {MAX_TEXT} characters or cannot be printed.")
    if not DEVICE.fullmatch(device.device):
        raise NotARun(f"{place}.device is {device.device[:40]!r}; it should be cpu or like cuda:0.")
    if not device.name.strip():
        raise NotARun(f"{place}.name is empty.")
    if device.compute_capability is not None:
        major, minor = device.compute_capability
        if not (1 <= major <= MAX_CAPABILITY and 0 <= minor <= MAX_CAPABILITY):
            raise NotARun(f"{place}.compute_capability is not one that a GPU has, such as 9.0.")
    for name, largest in DEVICE_LIMITS.items():
        value = getattr(device, name)
        if value is not None and not 1 <= value <= largest:
            raise NotARun(f"{place}.{name} should be from 1 to {largest:.3g}, or absent where it is not known.")


def printable(text: str, most: int = MAX_TEXT) -> str:
    """Text of unknown origin as one line of at most `most` characters, without control characters."""
    # Cut before and after: a text may be millions of characters long, most of them blanks.
    words = " ".join(text[: 8 * most].split())[:most]
    return "".join(sign if sign.isprintable() else "�" for sign in words)


def said(fault: BaseException) -> str:
    """The words of a refusal as they can be put on a terminal, whatever names of files or options are in them."""
    words = str(fault)
    if len(words) > MAX_SAID:
        begin = printable(words, MAX_SAID)
        return f"{begin.rpartition(' ')[0].rstrip(',') or begin} and more."
    return words if words.isprintable() else printable(words, MAX_SAID)


def _require_short_texts(run: "Run", place: str) -> None:
    texts = [run.request, run.recorded, *run.environment, *run.environment.values()]
    texts += [text for m in run.measurements for text in (m.name, m.note, m.launch or "")]
    texts += [span.launch for span in run.spans]
    texts += [text for kernel in run.kernels for text in (kernel.launch, kernel.kernel)]
    texts += [text for series in run.series for text in (series.name, series.unit, series.source)]
    texts += [] if run.timeline is None else [run.timeline.launch]
    if not _are_short((*texts, *run.samples, *run.phases)):
        raise NotARun(f"{place} has a text that is longer than {MAX_TEXT} characters or cannot be printed.")


def _are_short(texts: Collection[str]) -> bool:
    """Together, for a file may hold a million of them."""
    return max(map(len, texts), default=0) <= MAX_TEXT and "".join(texts).isprintable()


def _require_possible(measurement: "Measurement", place: str) -> None:
    for value in (measurement.value, *(measurement.spread or ())):
        if value is None:
            continue
        if not _is_possible(value):
            raise NotARun(f"{place} is {measurement.value}, which cannot be measured.")
        if value < 0 and measurement.unit != "°C":
            raise NotARun(f"{place} is {measurement.value}; it cannot be negative.")
        if measurement.unit == "s" and not _is_duration(value):
            raise NotARun(f"{place} is {measurement.value} s, which no clock gives.")
    if measurement.name == "gpu_time_seconds" and measurement.value == 0:
        raise NotARun(f"{place} is 0; nothing runs in no time.")
    if measurement.name in ROOFS and measurement.value is not None and not 1 <= measurement.value <= MAX_L2_SM:
        raise NotARun(f"{place} is {measurement.value} B/s; no memory is as slow or as fast as that.")
    if measurement.value is None and measurement.spread is not None:
        raise NotARun(f"{place} has a spread, but no value that it could be of.")
    if measurement.name == "programs_at_once" and not _is_count(measurement.value, MAX_SMS * MAX_CTAS_OF_AN_SM):
        most = MAX_SMS * MAX_CTAS_OF_AN_SM
        raise NotARun(f"{place} is {measurement.value}; a GPU holds 1 to {most:,} programs at once.")
    if measurement.spread is not None and not _is_inside(measurement.value, measurement.spread):
        low, high = measurement.spread
        raise NotARun(f"{place} is {measurement.value}, outside its spread from {low} to {high}.")
    _require_unit(measurement, place)


def _is_duration(value: float) -> bool:
    return value == 0 or SHORTEST_SECONDS <= value <= MAX_RUN_SECONDS


def _is_count(value: float | None, most: int) -> bool:
    return value is None or (value == int(value) and 1 <= value <= most)


def _is_inside(value: float | None, spread: tuple[float, float]) -> bool:
    low, high = spread
    slack = SPREAD_SLACK * abs(value or 0.0)
    return value is not None and low - slack <= value <= high + slack


def _require_possible_samples(run: "Run", place: str) -> None:
    samples = list(run.samples.values())
    samples += [part for series in run.series for part in (series.seconds, series.values)]
    if sum(map(len, samples)) > MAX_SAMPLES:
        raise NotARun(f"{place} has more than {MAX_SAMPLES:,} samples.")
    sizes = np.abs(np.concatenate([np.zeros(1), *map(np.asarray, samples)]))
    if not bool(((sizes == 0) | ((sizes >= SMALLEST) & (sizes <= LARGEST))).all()):
        raise NotARun(f"{place} has a sample that no clock or counter gives.")
    if any(len(series.seconds) != len(series.values) for series in run.series):
        raise NotARun(f"{place} has a series with more times than values, or fewer.")
    if any(series.interval is not None and not SMALLEST <= series.interval <= MAX_SECONDS for series in run.series):
        raise NotARun(f"{place} has a series whose samples cover no time, or more than an hour.")
    seconds = [series.seconds for series in run.series if series.seconds]
    if any(min(times) < 0 or max(times) > MAX_RUN_SECONDS for times in seconds):
        raise NotARun(f"{place} has a series that begins before its first sample, or lasts longer than a day.")
    for series in run.series:
        _require_unit(series, f"{place}.{series.name[:40]}")
        if series.name == "l2_sm_bytes_per_second" and max(series.values, default=0.0) > MAX_L2_SM:
            raise NotARun(f"{place}.{series.name} is above {MAX_L2_SM / 1e12:.0f} TB/s, which no L2 gives.")
    _require_single([(series.name, series.source, None) for series in run.series], place)


def _require_possible_spans(run: "Run", place: str) -> None:
    """Spans are of the schedule's launches and the drain, and a pass in them takes about as long as the timed ones."""
    if not run.spans:
        return
    if not all(0 <= span.start <= span.end <= MAX_SECONDS for span in run.spans):
        raise NotARun(f"{place} has a launch that ends before it starts or lasts longer than an hour.")
    work = run.workload
    launches = [
        launch.name for launch in work.attention_kernel.schedule(work.problem, work.tile or TileConfig()).launches
    ]
    known = [*launches, DRAIN] if work.drain else launches
    for name, count in Counter(span.launch for span in run.spans).items():
        if name not in known:
            raise NotARun(f"{place} has a span of {name[:40]!r}, which its workload does not run.")
        if count > 1:
            raise NotARun(f"{place} has more than one span of {name[:40]!r}; keep one of them.")
    spans = [span for span in run.spans if span.launch != DRAIN]
    end = max((span.end for span in spans), default=0.0)
    if any(span.start < end for span in run.spans if span.launch == DRAIN):
        raise NotARun(f"{place} has a drain that begins before its pass ends.")
    timed = run.find("gpu_time_seconds", source="cuda-event")
    if not spans or timed is None or timed.value is None:
        return
    seconds = end - min(span.start for span in spans)
    # A launch at the edge of what was sampled has no span; the others are then shorter than the pass.
    is_short = len(spans) == len(launches) and timed.value > PASS_RATIO * seconds + PASS_SLACK
    if is_short or seconds > PASS_RATIO * timed.value + PASS_SLACK:
        raise NotARun(f"{place} has spans of {seconds:.3g} s, but a pass was timed at {timed.value:.3g} s.")


@lru_cache(maxsize=1024)
def _unit_of(name: str) -> str:
    """The unit that a name says; empty where it says none."""
    return next((unit for end, unit in UNIT_OF_NAME.items() if name.endswith(end)), "")


def _require_unit(one: "Measurement | Series", place: str) -> None:
    unit = _unit_of(one.name) or one.unit
    if one.unit != unit:
        raise NotARun(f"{place} is in {one.unit[:40]!r}; what it names is in {unit}.")


def _require_single(keys: list[tuple[str, str, str | None]], place: str) -> None:
    """Name, source and launch tell measurements, and series, apart: of two alike nobody knows which is true."""
    twice = next((key for key, count in Counter(keys).items() if count > 1), None)
    if twice is not None:
        name, source, launch = (part and part[:40] for part in twice)
        of = f" of launch {launch}" if launch else ""
        raise NotARun(f"{place} has {name} by {source}{of} more than once; keep one of them.")


def _is_possible(value: float) -> bool:
    return value == 0 or SMALLEST <= abs(value) <= LARGEST
