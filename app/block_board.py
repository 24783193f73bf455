"""One GPU's grid of tiles for one kernel and problem: what was measured there, compiled for it, and asked for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache

from app.block_quantities import (
    COMPILED,
    COMPILED_HERE,
    CTAS,
    ERROR,
    HBM,
    L2_SM,
    MEASURED_HERE,
    OCCUPANCY,
    RATE,
    REGISTERS,
    REQUESTED,
    SHARED_MEMORY,
    SPILLS,
    TIME,
    WAVES,
)
from kernels.base import all_kernels
from kernels.problem import LINEAR, AttentionProblem, Refused, TileConfig
from profiler.resources import Resources, on_gpu, why_not
from profiler.target import GpuTarget
from profiler.workload import Workload

NOT_COMPILED = "not compiled yet for this GPU; press Compile"
NOT_MEASURED = "not measured yet on this GPU; press Measure"
NOT_HERE = "not measured on this GPU, which is not here"
NO_GPU_TIME = "an interpreted kernel tells no time and no bytes of a GPU"


@dataclass(frozen=True)
class Subject:
    """What the tiles are of."""

    kernel: str
    problem: AttentionProblem
    order: str = LINEAR

    @property
    def title(self) -> str:
        """The kernel's title, and its order where it is not the usual one."""
        name = all_kernels()[self.kernel].title
        return name if self.order == LINEAR else f"{name}, {self.order}"


@dataclass(frozen=True)
class Measured:
    """What one Run found for one tile: values with their sources by name. `recorded` is set for one that ships."""

    workload: Workload
    device: str
    created: str
    run_id: str
    found: Mapping[str, tuple[float, str]] = field(hash=False)
    recorded: bool = False


@dataclass(frozen=True)
class Number:
    """A value with its source, or the reason why there is none."""

    value: float | None
    source: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Cell:
    """One tile on one GPU. `why_not` is a sentence where the GPU cannot run it, `limits` what holds its CTAs back."""

    tile: TileConfig
    numbers: Mapping[str, Number] = field(hash=False)
    why_not: str = ""
    limits: tuple[str, ...] = ()
    resources: Resources | None = field(default=None, hash=False)

    def value(self, key: str) -> float | None:
        """The value of one quantity."""
        return self.numbers[key].value

    @property
    def name(self) -> str:
        """BLOCK_M×BLOCK_N."""
        return f"{self.tile.BLOCK_M}×{self.tile.BLOCK_N}"


@dataclass(frozen=True)
class Board:
    """The cells of one GPU."""

    title: str
    cells: tuple[Cell, ...]

    def sources(self, key: str) -> tuple[str, ...]:
        """Where the values of one quantity come from."""
        return tuple(dict.fromkeys(c.numbers[key].source for c in self.cells if c.value(key) is not None))


def board(
    subject: Subject,
    tiles: Sequence[TileConfig],
    title: str,
    gpu: GpuTarget | None,
    measured: Iterable[Measured] = (),
    compiled: Mapping[TileConfig, Resources] | None = None,
    failed: Mapping[TileConfig, str] | None = None,
    is_here: bool = False,
    why_no_gpu: str = "",
) -> Board:
    """Every tile with all that is known of it on one GPU; of several Runs of a tile the newest counts."""
    newest: dict[TileConfig, Measured] = {}
    for one in sorted(measured, key=lambda one: (one.created, one.run_id)):
        if one.workload.tile is not None:
            newest[one.workload.tile] = one
    cells = []
    for tile in tiles:
        refused, requested = _requested(subject, tile)
        cell = Cell(tile, {REQUESTED: requested}, refused)
        cell = _with_resources(cell, gpu, (compiled or {}).get(tile), why_no_gpu)
        fault = (failed or {}).get(tile, "")
        missing = fault or (NOT_MEASURED if is_here else NOT_HERE)
        cells.append(_with_measured(cell, subject, newest.get(tile), missing))
    return Board(title, tuple(cells))


def _with_measured(cell: Cell, subject: Subject, run: Measured | None, missing: str) -> Cell:
    if run is None:
        numbers = {key: Number(None, reason=cell.why_not or missing) for key in MEASURED_HERE}
        return replace(cell, numbers={**cell.numbers, **numbers})

    missing_value = "its Run has no value; open it to see why" if run.workload.on_gpu else NO_GPU_TIME

    def of(name: str) -> Number:
        value, source = run.found.get(name, (None, ""))
        return Number(value, source, "" if value is not None else missing_value)

    # What a GPU's Run says of requests is the schedule's, which is here already.
    asked = cell.numbers[REQUESTED] if run.workload.on_gpu or REQUESTED not in run.found else of(REQUESTED)
    time = of(TIME)
    rate = Number(subject.problem.flops / time.value, time.source) if time.value else replace(time, value=None)
    numbers = {TIME: time, RATE: rate, L2_SM: of(L2_SM), HBM: of(HBM), ERROR: of(ERROR), REQUESTED: asked}
    # It has run, so whatever a compiler here thinks, it can.
    return replace(cell, numbers={**cell.numbers, **numbers}, why_not="")


def _with_resources(cell: Cell, gpu: GpuTarget | None, found: Resources | None, why_no_gpu: str) -> Cell:
    reason = cell.why_not or (why_no_gpu if gpu is None else NOT_COMPILED)
    if cell.why_not or gpu is None or found is None:
        return replace(cell, numbers={**cell.numbers, **{key: Number(None, reason=reason) for key in COMPILED_HERE}})
    fault = why_not(found, gpu)
    if found.main is None:
        numbers = {key: Number(None, reason=fault) for key in COMPILED_HERE}
        return replace(cell, numbers={**cell.numbers, **numbers}, why_not=fault, resources=found)
    main = on_gpu(found, gpu)[0]
    values: dict[str, float | None] = {
        REGISTERS: main.resources.registers,
        SPILLS: main.resources.spill_bytes,
        SHARED_MEMORY: main.resources.shared_memory,
        CTAS: main.occupancy.ctas_per_sm,
        OCCUPANCY: main.occupancy.occupancy,
        WAVES: None if main.waves is None else main.waves.count,
    }
    told = {key: Number(value, COMPILED, fault if value is None else "") for key, value in values.items()}
    limits = main.occupancy.limited_by
    return replace(cell, numbers={**cell.numbers, **told}, why_not=fault, limits=limits, resources=found)


@lru_cache(maxsize=4096)
def _requested(subject: Subject, tile: TileConfig) -> tuple[str, Number]:
    """Why the kernel refuses the tile on every GPU, if it does; and the bytes that it asks for."""
    kernel = all_kernels()[subject.kernel]
    try:
        if kernel.cut(subject.problem, tile) != tile:
            raise Refused(f"{kernel.title} does not use this tile.")
        schedule = kernel.schedule(subject.problem, tile)
    except Refused as refusal:
        return str(refusal), Number(None, reason=str(refusal))
    return "", Number(float(schedule.requested_read_bytes + schedule.requested_write_bytes), "schedule")
