"""A Schedule: which launches and tiles a kernel goes through, in which order, asking for which bytes."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kernels.on_chip import Held
from kernels.problem import AttentionProblem
from kernels.row_walk import RowWalk
from kernels.tile_grid import TileGrid
from kernels.tile_step import ByTensor, TileStep
from kernels.walk import Walk

DRAIN = "drain"  # what stands beside launches for the write-back of L2


@dataclass(frozen=True)
class Launch:
    """One kernel launch: requested bytes of the whole problem by tensor, and its Walk where its programs are known.

    `on_chip` is what a program of it holds. `visits` counts how often its programs visit a tile, where it goes by tiles
    but has no Walk. `flops` are the floating-point operations that it makes, on hidden scores too; None where it does
    not tell. `name` is an identifier, and not "drain", which stands beside launches for the write-back of L2.
    """

    name: str
    reads: ByTensor
    writes: ByTensor
    walk: Walk | None = None
    on_chip: tuple[Held, ...] = ()
    flops: int | None = None
    visits: int = 0

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name == DRAIN:
            raise ValueError(f"A launch cannot be named {self.name!r}; choose an identifier other than {DRAIN}.")

    @classmethod
    def of_walk(cls, name: str, walk: Walk, on_chip: tuple[Held, ...]) -> "Launch":
        """A launch whose bytes are the sums over its programs and over every (batch, head)."""
        return cls(name, *walk.total_bytes(), walk, on_chip)


@dataclass(frozen=True)
class Schedule:
    """All launches of one kernel on one problem, in order."""

    kernel: str
    problem: AttentionProblem
    launches: tuple[Launch, ...]

    @property
    def requested_read_bytes(self) -> int:
        """Bytes that loads ask for, all launches."""
        return sum(sum(launch.reads.values()) for launch in self.launches)

    @property
    def requested_write_bytes(self) -> int:
        """Bytes that stores ask for, all launches."""
        return sum(sum(launch.writes.values()) for launch in self.launches)

    @property
    def by_tensor(self) -> dict[str, dict[str, int]]:
        """{tensor: {"read": bytes, "write": bytes}}, all launches."""
        table: dict[str, dict[str, int]] = {}
        for launch in self.launches:
            for direction, part in (("read", launch.reads), ("write", launch.writes)):
                for tensor, size in part.items():
                    table.setdefault(tensor, {"read": 0, "write": 0})[direction] += size
        return table

    @property
    def tile_steps(self) -> int:
        """Visits of tiles, by all programs of all launches."""
        return sum(launch.visits if launch.walk is None else launch.walk.total_steps for launch in self.launches)

    @property
    def main(self) -> Launch | None:
        """The launch whose programs are known; None where there is none."""
        return next((launch for launch in self.launches if launch.walk is not None), None)

    @property
    def walk(self) -> Walk | None:
        """The Walk of the main launch."""
        return None if self.main is None else self.main.walk

    @property
    def tiles(self) -> TileGrid | None:
        """The score matrix as the main launch cuts it."""
        return None if self.walk is None else self.walk.grid

    def with_wave(self, programs: int) -> "Schedule":
        """The same where a GPU holds so many programs at once: what sawtooth turns on. Others stay as they are."""
        turned = tuple(
            replace(launch, walk=replace(launch.walk, wave=programs))
            if isinstance(launch.walk, RowWalk) and launch.walk.wave
            else launch
            for launch in self.launches
        )
        return replace(self, launches=turned)

    def steps(self) -> Iterator[TileStep]:
        """Every step of every program of every launch; a launch without a Walk is one step."""
        problem = self.problem
        everything = (0, problem.seq_len_q), (0, problem.seq_len_kv)
        for launch in self.launches:
            if launch.walk is None:
                mask = "partial" if problem.is_masked else "full"
                yield TileStep(launch.name, 0, 0, *everything, mask, launch.reads, launch.writes)
                continue
            for program in range(launch.walk.total_programs):
                yield from launch.walk.program_steps(launch.name, program)
