"""The roofs of one GPU: bandwidths that copies reached and that its memory has at most, and compute peaks by dtype."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.problem_names import named
from app.style import bandwidth
from profiler.device import compute_peak
from profiler.run import DeviceInfo, Run

HBM, L2, COMPUTE = "HBM", "L2", "compute"
OLD = "these Runs do not hold it: run one of them again"


@dataclass(frozen=True)
class Roof:
    """One limit: B/s of a memory level, or FLOP/s; None where it is not known.

    `told` says how it was obtained, or why it is not known. `dtypes` are those that a compute peak is for.
    """

    level: str
    name: str
    rate: float | None
    source: str
    told: str
    dtypes: tuple[str, ...] = ()

    @property
    def is_measured(self) -> bool:
        """False for what the vendor tells."""
        return self.source == "cuda-event"

    @property
    def in_words(self) -> str:
        """Its rate as part of a sentence: HBM's copy bandwidth, HBM's peak bandwidth, the bfloat16 peak."""
        if self.level == COMPUTE:
            return f"the {self.name}"
        return f"{self.level}'s {self.name.removeprefix(self.level).strip()} bandwidth"


@dataclass(frozen=True)
class Machine:
    """A GPU as some Runs know it, these Runs with their names, and its roofs."""

    title: str
    runs: tuple[Run, ...]
    names: tuple[str, ...]
    roofs: tuple[Roof, ...]

    def over(self, run: Run) -> dict[str, Roof]:
        """The first known roof of each level for a Run, and its own dtype's peak."""
        found: dict[str, Roof] = {}
        for roof in self.roofs:
            is_its = not roof.dtypes or run.workload.problem.dtype in roof.dtypes
            if roof.rate is not None and is_its:
                found.setdefault(roof.level, roof)
        if why_other_peak(run):
            found.pop(COMPUTE, None)
        return found


def machines(runs: Sequence[Run]) -> tuple[Machine, ...]:
    """The GPUs that Runs were made on, each with its own roofs; Runs of a CPU are left out."""
    groups: dict[tuple[object, ...], list[Run]] = {}
    for run in runs:
        if run.device.compute_capability is not None:
            groups.setdefault(_identity(run), []).append(run)
    titles = [f"{first.device.name}{', recorded' if first.recorded else ''}" for first, *_ in groups.values()]
    return tuple(
        Machine(
            f"{name} ({number})" if titles.count(name) > 1 else name, tuple(members), named(members), roofs_of(members)
        )
        for number, (name, members) in enumerate(zip(titles, groups.values(), strict=True), start=1)
    )


def _identity(run: Run) -> tuple[object, ...]:
    """What tells GPUs apart: one roof is not another's, even between two of a kind."""
    device = run.device
    return (
        *(device.name, device.device, device.memory_bytes, device.driver, device.peak_hbm_bytes_per_second),
        bool(run.recorded),
    )


def roofs_of(runs: Sequence[Run]) -> tuple[Roof, ...]:
    """The roofs of the GPU that all these Runs were made on; of each level the one that counts first.

    Of HBM that is what a copy reached, before what no work reaches; of L2 the faster of copying and reading.
    """
    device = runs[-1].device
    peak, told = device.peak_hbm_bytes_per_second, device.peak_hbm_source or "these Runs do not tell it"
    # NVML tells clock and bus width; the rate is their product.
    source = "datasheet" if told == "datasheet" else "model"
    within_l2 = [
        _reached(L2, "L2 copy", "l2_copy_bytes_per_second", runs, None),
        _reached(L2, "L2 read", "l2_read_bytes_per_second", runs, None),
    ]
    return (
        _reached(HBM, "HBM copy", "copy_bytes_per_second", runs, peak),
        Roof(HBM, "HBM peak", peak, source, told),
        *sorted(within_l2, key=lambda roof: -(roof.rate or 0.0)),
        *_peaks(device, runs),
    )


def _reached(level: str, name: str, quantity: str, runs: Sequence[Run], peak: float | None) -> Roof:
    """The best that was reached beside any of the Runs: what lowered it elsewhere is no property of the GPU."""
    found = [part for run in runs if (part := run.find(quantity)) is not None]
    values = [part for part in found if part.value is not None]
    if not values:
        return Roof(level, name, None, "cuda-event", found[-1].note if found else OLD)
    best = max(values, key=lambda part: part.value or 0.0)
    if peak is not None and best.value is not None and best.value > peak:
        words = f"{bandwidth(best.value)} would be above the peak of {bandwidth(peak)}, so it is not drawn"
        return Roof(level, name, None, best.source, words)
    return Roof(level, name, best.value, best.source, best.note)


def _peaks(device: DeviceInfo, runs: Sequence[Run]) -> tuple[Roof, ...]:
    """A compute peak for each that the Runs' dtypes have; two dtypes may share one."""
    shared: dict[tuple[float | None, str], list[str]] = {}
    for dtype in dict.fromkeys(run.workload.problem.dtype for run in runs):
        shared.setdefault(compute_peak(device, dtype), []).append(dtype)
    return tuple(
        Roof(COMPUTE, f"{' and '.join(dtypes)} peak", rate, "datasheet", told, tuple(dtypes))
        for (rate, told), dtypes in shared.items()
    )


def why_other_peak(run: Run) -> str:
    """Why the peak of its dtype is none for a Run; empty where it is one."""
    if run.workload.problem.dtype == "float32" and run.value("tensor_flops"):
        return "its tensor cores worked, in TF32, so the peak of float32 without them is not its limit"
    return ""
