"""The limits of an audit as data, and the verdict on two numbers; of two bounds in a sentence the larger one counts."""

import math
from dataclasses import dataclass

from profiler.audit import FAIL, NOT_CHECKED, PASS

REFEREE = "ncu"
KNOWN = "model"
# Bytes: HBM is never quite idle, and what L2 writes back early differs.
READ_FLOOR, OUTPUT_FLOOR, WRITE_FLOOR = 1e5, 1e6, 4e6
EVENT_SECONDS = 5e-6  # what the two events around a pass take themselves
IDLE_HBM = 0.10  # share of HBM's peak below which an estimate from utilisation is coarse


@dataclass(frozen=True)
class Agreement:
    """`source` and `against` agree on a quantity to `relative` of what `against` says, or to `floor` if that is more.

    `floor` is in the quantity's unit. `busy` are the shares of HBM's peak, above the first and up to the second, at
    which the limit holds. `is_strict` wants less than the limit, instead of at most.
    """

    quantity: str
    source: str
    against: str
    sentence: str
    relative: float
    floor: float = 0.0
    unit: str = "B"
    busy: tuple[float, float] = (-1.0, math.inf)
    is_strict: bool = False

    def allowed(self, reference: float) -> float:
        """How far from `reference` a value may be, in its unit."""
        return max(self.relative * abs(reference), self.floor)

    def verdict(self, value: float | None, reference: float | None) -> str:
        """pass, fail, or not checked where one of the two is missing."""
        if value is None or reference is None:
            return NOT_CHECKED
        apart, allowed = abs(value - reference), self.allowed(reference)
        return PASS if apart == 0 or apart < allowed or (apart == allowed and not self.is_strict) else FAIL


@dataclass(frozen=True)
class Ceiling:
    """A quantity of `source` stays below `most`."""

    quantity: str
    source: str
    sentence: str
    most: float
    unit: str = "s"

    def verdict(self, value: float | None) -> str:
        """pass, fail, or not checked without a value."""
        return NOT_CHECKED if value is None else PASS if value < self.most else FAIL


Limit = Agreement | Ceiling

GPU_LIMITS: tuple[Limit, ...] = (
    Agreement("hbm_read_bytes", "cupti-range", REFEREE, "within 1% or 0.1 MB", 0.01, READ_FLOOR),
    Agreement("l2_sm_bytes", "cupti-range", REFEREE, "within 1%", 0.01),
    Agreement("l2_to_sm_bytes", "cupti-range", REFEREE, "within 1%", 0.01),
    Agreement("hbm_write_bytes", "cupti-range", REFEREE, "within 2% or 4 MB", 0.02, WRITE_FLOOR),
    Agreement("hbm_bytes", "cupti-sampling", "cupti-range", "within 2%", 0.02),
    Agreement(
        "hbm_bytes",
        "nvml-gpm",
        "cupti-range",
        "within 2%, HBM over 10% busy",
        0.02,
        busy=(IDLE_HBM, math.inf),
    ),
    Agreement(
        "hbm_bytes",
        "nvml-gpm",
        "cupti-range",
        "within 5%, HBM up to 10% busy",
        0.05,
        busy=(-1.0, IDLE_HBM),
    ),
    Ceiling("counting_seconds", "cupti-range", "under 60 ms a launch", 0.060),
    Agreement(
        "gpu_time_seconds",
        "cupti-range",
        "cuda-event",
        "less than 5% or 5 µs apart",
        0.05,
        EVENT_SECONDS,
        unit="s",
        is_strict=True,
    ),
)

KNOWN_LIMITS: tuple[Limit, ...] = tuple(
    Agreement(quantity, source, KNOWN, "copy, fill, sum within 1% or 4 MB", 0.01, WRITE_FLOOR)
    for quantity, source in (
        ("hbm_read_bytes", "cupti-range"),
        ("hbm_write_bytes", "cupti-range"),
        ("hbm_read_bytes", REFEREE),
        ("hbm_write_bytes", REFEREE),
        ("hbm_bytes", "cupti-sampling"),
    )
)

# Of kernels that write O, and nothing else but LSE, once.
WRITE_LIMITS: tuple[Limit, ...] = (
    Agreement("hbm_write_bytes", "cupti-range", KNOWN, "O and LSE within 1% or 1 MB", 0.01, OUTPUT_FLOOR),
)

INTERPRETER_LIMITS: tuple[Limit, ...] = tuple(
    Agreement(quantity, "schedule", "interpreter", "equal", 0.0)
    for quantity in ("requested_read_bytes", "requested_write_bytes")
)

# Those that a limit of a GPU names, the referee left out.
SOURCES = frozenset(
    source for limit in GPU_LIMITS if isinstance(limit, Agreement) for source in (limit.source, limit.against)
) - {REFEREE}

WHOLE_AUDIT = Ceiling("audit_seconds", "", "under 2 minutes", 120.0)
