"""One moment of a tiled launch: where a program stands, what it holds on chip, which bytes were asked for so far."""

from dataclasses import dataclass

import numpy as np

from kernels.problem import TileConfig
from kernels.schedule import TileGrid

FLOAT32_BYTES = 4
SMALLEST_DOT = 16  # the shortest side of a tensor-core product; smaller head_dims are padded up to it


@dataclass(frozen=True)
class OnChip:
    """A tile that a program holds: its shape, dtype and bytes, and how long it stays."""

    name: str
    tensor: str  # the key of its colour
    shape: tuple[int, ...]
    dtype: str
    size: int  # bytes
    stays: str


@dataclass(frozen=True)
class Moved:
    """Bytes of one tensor asked for so far, by the chosen program and by its (batch, head) up to this moment.

    `times` is how often each byte was asked for on average, of those that were asked for at all; None before that.
    """

    tensor: str
    program_read: int
    program_written: int
    head_read: int
    head_written: int
    times: float | None


@dataclass(frozen=True)
class Moment:
    """Program `program` works on the `step`-th KV tile that it visits, counted from 0.

    Programs of the same (batch, head) with a smaller number have ended and the others have not begun, as if one SM
    ran them in launch order. Out-of-range numbers are clamped.
    """

    grid: TileGrid
    program: int = 0
    step: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "program", min(max(self.program, 0), self.grid.programs - 1))
        object.__setattr__(self, "step", min(max(self.step, 0), self.steps - 1))

    @classmethod
    def at_tile(cls, grid: TileGrid, program: int, kv_tile: int) -> "Moment":
        """The moment at which `program` works on `kv_tile`, or on the nearest one that it visits."""
        q_tile = program % grid.q_tiles
        return cls(grid, program, kv_tile - int(grid.first[q_tile]))

    @classmethod
    def opening(cls, grid: TileGrid) -> "Moment":
        """Where a page opens: past the middle of the first head, so that a mask and bytes moved can be seen."""
        program = 9 * grid.q_tiles // 16
        return cls(grid, program, cls(grid, program).visited * 2 // 3)

    @property
    def q_tile(self) -> int:
        """The Q tile that the program owns."""
        return self.program % self.grid.q_tiles

    @property
    def batch_head(self) -> tuple[int, int]:
        """The (batch, head) that the program belongs to."""
        batch, head = divmod(self.program // self.grid.q_tiles, self.grid.problem.heads)
        return batch, head

    @property
    def rows(self) -> tuple[int, int]:
        """First row of the Q tile and the end of it."""
        first = self.q_tile * self.grid.BLOCK_M
        return first, first + int(self.grid.q_rows(self.q_tile))

    @property
    def visited(self) -> int:
        """KV tiles that the program visits; 0 where the mask hides them all."""
        return int(self.grid.last[self.q_tile] - self.grid.first[self.q_tile])

    @property
    def steps(self) -> int:
        """Steps of the program; one that visits no tile still has one, in which it writes its O."""
        return max(1, self.visited)

    @property
    def kv_tile(self) -> int | None:
        """The KV tile at hand; None where the program visits none."""
        return int(self.grid.first[self.q_tile]) + self.step if self.visited else None

    def after(self) -> "Moment":
        """One step on: after a program's last step the next Q tile of its (batch, head), at the end the first."""
        if self.step + 1 < self.steps:
            return Moment(self.grid, self.program, self.step + 1)
        first = self.program - self.q_tile
        return Moment(self.grid, first + (self.q_tile + 1) % self.grid.q_tiles, 0)

    def before(self) -> "Moment":
        """One step back, into the previous Q tile's last step where this is a program's first."""
        if self.step > 0:
            return Moment(self.grid, self.program, self.step - 1)
        first = self.program - self.q_tile
        previous = Moment(self.grid, first + (self.q_tile - 1) % self.grid.q_tiles)
        return Moment(self.grid, previous.program, previous.steps - 1)

    def moved(self) -> tuple[Moved, ...]:
        """Requested bytes so far, this step's included, by tensor in the order Q, K, V, O, LSE."""
        grid, chosen = self.grid, self.q_tile
        steps = np.full(grid.q_tiles, -1, dtype=np.int64)
        steps[:chosen] = grid.kv_tiles
        steps[chosen] = self.step + 1
        table = []
        for tensor, (reads, writes) in grid.program_bytes(steps).items():
            read, written = int(reads.sum()), int(writes.sum())
            distinct = self._distinct_kv_bytes(steps) if tensor in ("k", "v") else read + written
            times = (read + written) / distinct if distinct else None
            table.append(Moved(tensor, int(reads[chosen]), int(writes[chosen]), read, written, times))
        return tuple(table)

    def _distinct_kv_bytes(self, steps: np.ndarray[tuple[int], np.dtype[np.int64]]) -> int:
        """Bytes of K (or of V) that were read at least once; neighbouring programs' tiles leave no gap."""
        grid = self.grid
        stop = np.minimum(grid.first + np.maximum(steps, 0), grid.last)
        reading = stop > grid.first
        if not reading.any():
            return 0
        rows = int(grid.kv_rows(int(grid.first[reading].min()), int(stop[reading].max())))
        return rows * grid.problem.head_dim * grid.problem.element_bytes

    def on_chip(self, tile: TileConfig) -> tuple[OnChip, ...]:
        """Tiles that the program holds at this step, head_dim padded as the kernel pads it."""
        problem = self.grid.problem
        head_dim = max(SMALLEST_DOT, 1 << (problem.head_dim - 1).bit_length())
        element, dtype = problem.element_bytes, problem.dtype
        q, kv = (tile.BLOCK_M, head_dim), (tile.BLOCK_N, head_dim)
        s, row = (tile.BLOCK_M, tile.BLOCK_N), (tile.BLOCK_M,)
        streams = f"one step, {tile.num_stages} in flight" if tile.num_stages > 1 else "one step"
        return tuple(
            OnChip(name, tensor, shape, kind, int(np.prod(shape)) * size, stays)
            for name, tensor, shape, kind, size, stays in (
                ("Q", "q", q, dtype, element, "all steps"),
                ("K", "k", kv, dtype, element, streams),
                ("V", "v", kv, dtype, element, streams),
                ("S", "s", s, "float32", FLOAT32_BYTES, "one step"),
                ("P", "p", s, dtype, element, "one step"),
                ("acc", "acc", q, "float32", FLOAT32_BYTES, "all steps, then O"),
                ("m", "m", row, "float32", FLOAT32_BYTES, "all steps"),
                ("l", "l", row, "float32", FLOAT32_BYTES, "all steps"),
            )
        )
