"""What `doctor` finds out: facts of the machine, and for each source of numbers whether it answers here; plain data."""

from dataclasses import dataclass

from profiler.run import DeviceInfo, Measurement
from profiler.show import spell
from profiler.workload import LADDER

MOST_VALUES = 3  # of what a source measured; more are no better proof
BUSY = "another Bytescope measurement holds the GPU; try again when it ends"
HOLDERS = ("nvml", "torch")  # their bytes are memory held, not traffic
CAPITALS = ("gpu", "hbm", "nvml", "sm")


@dataclass(frozen=True)
class Fact:
    """One fact of a device, or of the whole machine where device is empty; `warning` is a sentence or empty."""

    device: str
    name: str
    value: str
    warning: str = ""


@dataclass(frozen=True)
class Found:
    """What a source measured when it was tried, and on what: the proof that it answers."""

    load: str
    measurements: tuple[Measurement, ...]


@dataclass(frozen=True)
class Answer:
    """One source on one device ("any": it needs none).

    `reason` says why it is not available and what would allow it; of an available one, what it lacks or why its
    numbers are in doubt. `found` is None where nothing was tried.
    """

    device: str
    name: str
    title: str
    available: bool
    reason: str = ""
    found: Found | None = None

    @property
    def counters(self) -> str:
        """What --counters calls it; empty where it counts no bytes that moved."""
        option = self.name.replace("_", "-")
        return option if option in LADDER else ""

    @property
    def verdict(self) -> str:
        """yes, partly or no."""
        return "no" if not self.available else "partly" if self.reason else "yes"

    @property
    def words(self) -> str:
        """What it measured, and what is to be said against it."""
        return " ".join(filter(None, (_proof(self.found) if self.found else "", self.reason)))


@dataclass(frozen=True)
class Diagnosis:
    """Everything `doctor` says; devices are empty and why_no_gpu is a sentence where there is no GPU."""

    devices: tuple[DeviceInfo, ...]
    why_no_gpu: str
    facts: tuple[Fact, ...]
    sources: tuple[Answer, ...]

    @property
    def tried_on(self) -> str:
        """A sentence on what the sources have measured; empty where nothing was tried."""
        loads = dict.fromkeys(answer.found.load for answer in self.sources if answer.found)
        return f"Tried on a {', a '.join(loads)}." if loads else ""


def _proof(found: Found) -> str:
    values = [f"{_words(one.name)} {_value(one)}" for one in found.measurements]
    more = f" and {len(values) - MOST_VALUES} more" if len(values) > MOST_VALUES else ""
    return f"{', '.join(values[:MOST_VALUES])}{more}."


def _value(one: Measurement) -> str:
    if one.unit == "B" and one.source in HOLDERS and one.value is not None:
        return f"{one.value / 2**30:.4g} GiB"
    return spell(one)


def _words(name: str) -> str:
    """A Measurement's name without the unit that it ends with: HBM read, GPU time."""
    if name == "l2_sm_bytes":
        return "L2↔SM"
    return " ".join(word.upper() if word in CAPITALS else word for word in name.split("_")[:-1])
