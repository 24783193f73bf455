"""What differs between two Runs besides what was measured: problem, kernel and tile, how it was measured, and where."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from kernels.problem import AttentionProblem, TileConfig
from profiler.run import Run

UNKNOWN = "–"
GIB = 2.0**30


@dataclass(frozen=True)
class Difference:
    """One fact that is not the same for both Runs, in words; a dash where a Run does not tell it."""

    what: str
    before: str
    after: str


def differences(before: Run, after: Run) -> tuple[Difference, ...]:
    """Everything that differs, what a ratio depends on most first: problem, kernel, tile, method, device, versions."""
    are_tiled = before.workload.tile is not None and after.workload.tile is not None
    facts = [_facts(run, are_tiled) for run in (before, after)]
    names = dict.fromkeys(name for known in facts for name in known)
    pairs = [(name, *(known.get(name, UNKNOWN) for known in facts)) for name in names]
    return tuple(Difference(name, one, other) for name, one, other in pairs if one != other)


def _facts(run: Run, are_tiled: bool) -> dict[str, str]:
    """What is known of a Run, in words; a tile part by part only where it can be held against another one."""
    work, tile = run.workload, run.workload.tile
    found = {part.name: _spell(getattr(work.problem, part.name)) for part in fields(AttentionProblem)}
    found["kernel"] = work.kernel
    if tile is not None and are_tiled:
        found |= {part.name: _spell(getattr(tile, part.name)) for part in fields(TileConfig)}
    elif tile is not None:
        words = f"{tile.BLOCK_M}×{tile.BLOCK_N}, {tile.num_warps} warps, {tile.num_stages} stages, {tile.order}"
        found["BLOCK_M×BLOCK_N"] = words
    found |= {title: _spell(getattr(work, name)) for name, title in HOW.items() if work.on_gpu}
    found["seed"] = str(work.seed)
    found |= {name: _spell(of(run)) for name, of in DEVICE.items()}
    return found | dict(run.environment)


# Of a GPU: a CPU has nothing of it.
HOW = {
    "l2": "L2 before each pass",
    "repeats": "passes",
    "counters": "bytes counted by",
    "drain": "write-back drain",
    "detail": "detail counters",
}


DEVICE: Mapping[str, Callable[[Run], object]] = {
    "device": lambda run: f"{run.device.name} ({run.device.device})",
    "driver": lambda run: run.device.driver,
    "compute capability": lambda run: (
        None if run.device.compute_capability is None else "{}.{}".format(*run.device.compute_capability)
    ),
    "SMs": lambda run: run.device.sm_count,
    "memory": lambda run: _capacity(run.device.memory_bytes),
    "L2": lambda run: _capacity(run.device.l2_bytes),
    "peak HBM bandwidth": lambda run: (
        None
        if run.device.peak_hbm_bytes_per_second is None
        else f"{run.device.peak_hbm_bytes_per_second / 1e9:,.0f} GB/s"
    ),
}


def _capacity(size: int | None) -> str | None:
    if size is None:
        return None
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / 2**20:.1f} MiB"


def _spell(value: object) -> str:
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
