"""A Run: everything one Workload's measuring found that cannot be recomputed; plain, frozen, saved as JSON."""

import re
import statistics
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kernels.problem import ADDED
from kernels.shown import named, shown
from profiler.codec import NotARun, PackedArray
from profiler.memory_trace import MemoryTrace
from profiler.workload import LADDER, Workload

MEASURED = ("cuda-event", "torch", "interpreter", *LADDER, "cupti-callback", "nvml")
DERIVED = ("schedule", "model")
TRUST = (*MEASURED, *DERIVED)  # where several answer, the first of them is believed
# Quantities that a source may tell whole or in two halves.
HALVES = {
    "hbm_bytes": ("hbm_read_bytes", "hbm_write_bytes"),
    "requested_bytes": ("requested_read_bytes", "requested_write_bytes"),
}
# Bytes that are held, in GiB, and not moved, in GB.
HELD = frozenset(
    {
        "predicted_peak_bytes",
        "baseline_allocated_bytes",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
        "nvml_memory_used_bytes",
        "process_memory_bytes",
        "context_bytes",
        "other_processes_bytes",
        "device_memory_bytes",
    }
)
KERNEL = ", kernel "  # stands between a launch and the number of its kernel, where it makes several
UNITS = frozenset({"B", "B/s", "s", "FLOP", "1", "J", "W", "Hz", "°C", "%"})


@dataclass(frozen=True)
class Measurement:
    """One number with its unit and source; value None means it could not be had, and `note` says why.

    `spread` is the 20th and 80th percentile over repeats, whose median is `value`. `launch` names the kernel launch
    it belongs to; None means the whole run.
    """

    name: str
    value: float | None
    unit: str
    source: str
    note: str = ""
    spread: tuple[float, float] | None = None
    launch: str | None = None

    def __post_init__(self) -> None:
        if self.source not in TRUST:
            raise NotARun(f"{named(self.name)}: source {shown(self.source)} is not known.")
        if self.unit not in UNITS:
            raise NotARun(f"{named(self.name)}: unit {shown(self.unit)} is not known.")
        if self.value is None and not self.note:
            raise NotARun(f"{named(self.name)} has neither a value nor a reason.")

    @property
    def is_measured(self) -> bool:
        """True for a counter, clock, allocator or trace; False for closed forms and schedules."""
        return self.source in MEASURED


@dataclass(frozen=True)
class DeviceInfo:
    """Facts of the device a Run was made on; None where they could not be read (or a CPU has none).

    Bytes and bytes per second; `source` says where the peak comes from.
    """

    device: str
    name: str
    memory_bytes: int | None = None
    compute_capability: tuple[int, int] | None = None
    sm_count: int | None = None
    l2_bytes: int | None = None
    shared_memory_per_block: int | None = None
    peak_hbm_bytes_per_second: float | None = None
    peak_hbm_source: str = ""
    peak_flops_per_second: float | None = None
    peak_flops_source: str = ""
    driver: str | None = None
    shared_memory_per_sm: int | None = field(default=None, metadata=ADDED)
    warps_per_sm: int | None = field(default=None, metadata=ADDED)


@dataclass(frozen=True)
class SoftmaxTrace:
    """m, l, alpha and |acc| after every KV tile, written by the running kernel, beside exact float64 prefix values.

    Rows [row_start, row_stop) of one (batch, head): m, l, alpha, acc_norm and the exact_ ones are [rows, kv_tiles],
    NaN where the mask skips the tile. m and l are in natural units (l = Σ exp(s − m)). acc [acc_steps, rows of the Q
    tile, head_dim] is the whole accumulator of Q tile `acc_tile` after KV tiles acc_start, acc_start + acc_stride,
    …, which end with the last one that the tile's program visits. scores [score_rows, seq_len_kv] are the scaled
    scores of the rows from `score_start` on, −inf where the mask hides one and NaN where no tile was visited; None
    where a row is too long to keep.
    """

    batch: int
    head: int
    row_start: int
    row_stop: int
    BLOCK_N: int
    m: PackedArray
    l: PackedArray  # noqa: E741 - the name in the papers
    alpha: PackedArray
    acc_norm: PackedArray
    exact_m: PackedArray
    exact_l: PackedArray
    exact_acc_norm: PackedArray
    acc: PackedArray
    acc_tile: int
    acc_start: int
    acc_stride: int
    scores: PackedArray | None = field(default=None, metadata=ADDED)
    score_start: int = field(default=0, metadata=ADDED)


@dataclass(frozen=True)
class ProgramTrace:
    """For each program of one launch: its SM, and start and end in ns after the first start (%globaltimer)."""

    launch: str
    sm: PackedArray
    start_ns: PackedArray
    end_ns: PackedArray
    timer_step_ns: int


@dataclass(frozen=True)
class Series:
    """Samples over time of one quantity, seconds after the first sample.

    `interval` is set where a value is the mean over the `interval` seconds that begin at its time, as for B/s; None
    where it is a reading of that moment.
    """

    name: str
    unit: str
    source: str
    seconds: tuple[float, ...]
    values: tuple[float, ...]
    interval: float | None = field(default=None, metadata=ADDED)


@dataclass(frozen=True)
class LaunchedKernel:
    """One kernel of a pass, in the order in which they ran: the launch that made it, and the name the driver knows."""

    launch: str
    kernel: str


@dataclass(frozen=True)
class LaunchSpan:
    """When one launch ran, on the time axis of the Run's sampled Series; start and end in seconds."""

    launch: str
    start: float
    end: float


@dataclass(frozen=True)
class Run:
    """One measured Workload. `request` is shared by Runs asked for together; `created` is UTC, ISO 8601.

    `measured_at` is when measuring began and ended, in seconds since 1970 by the host's clock: it shows that no two
    Runs of a device overlap. None where it is not known.
    """

    id: str
    request: str
    created: str
    workload: Workload
    device: DeviceInfo
    environment: dict[str, str]
    measurements: tuple[Measurement, ...]
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    series: tuple[Series, ...] = ()
    spans: tuple[LaunchSpan, ...] = field(default=(), metadata=ADDED)
    kernels: tuple[LaunchedKernel, ...] = field(default=(), metadata=ADDED)
    memory: MemoryTrace | None = field(default=None, metadata=ADDED)
    softmax: SoftmaxTrace | None = None
    timeline: ProgramTrace | None = None
    phases: dict[str, float] = field(default_factory=dict)  # seconds spent in each phase of measuring
    measured_at: tuple[float, float] | None = field(default=None, metadata=ADDED)
    recorded: str = ""  # label of a Run that ships with Bytescope; empty for one made here

    def __post_init__(self) -> None:
        if not self.id or not all(c.isalnum() or c in "-_" for c in self.id) or len(self.id) > 80:
            raise NotARun(f"A Run's id is {self.id[:80]!r}; it may hold letters, digits, - and _ only.")

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        """What a Python shell shows of it; without this, thousands of characters."""
        from profiler.notebook import line

        return line(self)

    def _repr_html_(self) -> str:
        """What a notebook shows of it."""
        # It is the Run's own picture, made of nothing but the Run.
        from profiler.notebook import card

        return card(self)

    def find(self, name: str, launch: str | None = None, source: str | None = None) -> Measurement | None:
        """The best measurement of that name: a value before a reason for its absence, then by TRUST."""
        found = [m for m in self.measurements if m.name == name and m.launch == launch and source in (None, m.source)]
        return min(found, key=lambda m: (m.value is None, TRUST.index(m.source)), default=None)

    def value(self, name: str, launch: str | None = None) -> float | None:
        """The value of `find`, or None."""
        measurement = self.find(name, launch)
        return None if measurement is None else measurement.value

    def launches(self, name: str) -> list[Measurement]:
        """The measurements of one name that belong to single launches, in order; not those of kernels within one."""
        return [m for m in self.measurements if m.name == name and m.launch is not None and KERNEL not in m.launch]


def new_id(kernel: str) -> str:
    """An id for a Run, and a name for its file: when, of what, and some digits that nobody else draws."""
    name = re.sub(r"[^A-Za-z0-9_]", "-", kernel)[-48:]
    return f"{datetime.now(UTC):%Y%m%dT%H%M%S}-{name}-{uuid.uuid4().hex[:8]}"


def spread_of(samples: tuple[float, ...]) -> tuple[float, float] | None:
    """20th and 80th percentile; None for a single sample."""
    if len(samples) < 2:
        return None
    fifths = statistics.quantiles(samples, n=5, method="inclusive")
    return fifths[0], fifths[3]
