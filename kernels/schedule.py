"""A Schedule: which launches and tiles a kernel goes through, in which order, asking for which bytes."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from kernels.problem import AttentionProblem, Int64Array

ByTensor = Mapping[str, int]

DRAIN = "drain"  # what stands beside launches for the write-back of L2


@dataclass(frozen=True)
class TileStep:
    """One step of one program; ranges are half-open rows of Q and of K/V, bytes are what its loads and stores ask."""

    launch: str
    program_id: int
    step: int
    q_range: tuple[int, int]
    kv_range: tuple[int, int]
    mask: str  # full: every score counts; partial: some are masked; skipped: no score counts, nothing is read
    reads: ByTensor
    writes: ByTensor


@dataclass(frozen=True)
class TileGrid:
    """The tiles of one (batch, head) for a kernel whose programs keep a Q tile and stream K and V tiles.

    Program (batch·heads + head) · q_tiles + i owns Q tile i and visits KV tiles first[i] to last[i] in rising order;
    those in [full_first[i], full_last[i]) need no mask. The arrays are int64 [q_tiles].
    """

    problem: AttentionProblem
    BLOCK_M: int
    BLOCK_N: int
    first: Int64Array = field(init=False)
    full_first: Int64Array = field(init=False)
    full_last: Int64Array = field(init=False)
    last: Int64Array = field(init=False)

    def __post_init__(self) -> None:
        top = np.arange(0, self.problem.seq_len_q, self.BLOCK_M)
        bottom = np.minimum(top + self.BLOCK_M, self.problem.seq_len_q) - 1
        (lo_top, hi_top), (lo_bottom, hi_bottom) = self.problem.keys_of(top), self.problem.keys_of(bottom)
        # Both ends of a row's key range rise with the row, so a tile's first and last row bound the rest.
        first, last = lo_top // self.BLOCK_N, -(-hi_bottom // self.BLOCK_N)
        full_first = np.clip(-(-lo_bottom // self.BLOCK_N), first, last)
        full_last = np.clip(hi_top // self.BLOCK_N, full_first, last)
        for name, value in (("first", first), ("full_first", full_first), ("full_last", full_last), ("last", last)):
            value.flags.writeable = False
            object.__setattr__(self, name, value)

    @property
    def q_tiles(self) -> int:
        """Q tiles, and so programs, of one (batch, head)."""
        return len(self.first)

    @property
    def kv_tiles(self) -> int:
        """KV tiles that cover seq_len_kv, skipped ones included."""
        return -(-self.problem.seq_len_kv // self.BLOCK_N)

    @property
    def programs(self) -> int:
        """Programs of the whole launch."""
        return self.problem.batch * self.problem.heads * self.q_tiles

    def q_rows(self, tile: int | Int64Array) -> Int64Array:
        """Rows of Q in a tile; the last tile may be ragged."""
        start = np.asarray(tile) * self.BLOCK_M
        return np.asarray(np.minimum(start + self.BLOCK_M, self.problem.seq_len_q) - start)

    def kv_rows(self, start_tile: int | Int64Array, stop_tile: int | Int64Array) -> Int64Array:
        """Rows of K (and of V) in the tiles [start_tile, stop_tile)."""
        stop = np.minimum(np.asarray(stop_tile) * self.BLOCK_N, self.problem.seq_len_kv)
        return np.asarray(np.maximum(stop - np.asarray(start_tile) * self.BLOCK_N, 0))

    def mask_of(self, q_tile: int, kv_tile: int) -> str:
        """full, partial or skipped."""
        if not self.first[q_tile] <= kv_tile < self.last[q_tile]:
            return "skipped"
        return "full" if self.full_first[q_tile] <= kv_tile < self.full_last[q_tile] else "partial"

    def program_bytes(self, steps: Int64Array | None = None) -> dict[str, tuple[Int64Array, Int64Array]]:
        """(read, written) bytes by tensor of each program of one (batch, head), each int64 [q_tiles].

        `steps` [q_tiles] stops program i after steps[i] of its tiles; a program's Q is read before its first
        tile, its O and LSE are written after the last one. Without `steps` all run to the end.
        """
        row = self.problem.head_dim * self.problem.element_bytes
        visited = self.last - self.first
        done = visited if steps is None else np.minimum(steps, visited)
        started = np.ones_like(done) if steps is None else (steps >= 0).astype(np.int64)
        finished = started if steps is None else (steps >= np.maximum(visited, 1)).astype(np.int64)
        rows = self.q_rows(np.arange(self.q_tiles))
        kv = self.kv_rows(self.first, self.first + np.maximum(done, 0)) * row
        none = np.zeros_like(kv)
        return {
            "q": (rows * row * started, none),
            "k": (kv, none),
            "v": (kv, none),
            "o": (none, rows * row * finished),
            "lse": (none, rows * 4 * finished),
        }

    def program_steps(self, launch: str, program_id: int) -> Iterator[TileStep]:
        """Every KV tile of one program in order, skipped ones included, with the bytes each step asks for.

        Q is booked on the first visited tile, O and LSE on the last; a program that visits none books all on step 0.
        """
        tile = program_id % self.q_tiles
        row = self.problem.head_dim * self.problem.element_bytes
        q_rows = int(self.q_rows(tile))
        q_range = (tile * self.BLOCK_M, tile * self.BLOCK_M + q_rows)
        first, last = int(self.first[tile]), int(self.last[tile])
        opening, closing = (first, last - 1) if last > first else (0, 0)
        for step in range(self.kv_tiles):
            kv_start = step * self.BLOCK_N
            kv_rows = int(self.kv_rows(step, step + 1))
            mask = self.mask_of(tile, step)
            reads = {"q": q_rows * row} if step == opening else {}
            if mask != "skipped":
                reads |= {"k": kv_rows * row, "v": kv_rows * row}
            writes = {"o": q_rows * row, "lse": q_rows * 4} if step == closing else {}
            yield TileStep(launch, program_id, step, q_range, (kv_start, kv_start + kv_rows), mask, reads, writes)


@dataclass(frozen=True)
class Launch:
    """One kernel launch: requested bytes of the whole problem by tensor, and its tiles where it has a known grid.

    `name` is an identifier, and not "drain", which stands beside launches for the write-back of L2.
    """

    name: str
    reads: ByTensor
    writes: ByTensor
    tiles: TileGrid | None = None

    def __post_init__(self) -> None:
        if not self.name.isidentifier() or self.name == DRAIN:
            raise ValueError(f"A launch cannot be named {self.name!r}; choose an identifier other than {DRAIN}.")

    @classmethod
    def of_tiles(cls, name: str, tiles: TileGrid) -> "Launch":
        """A launch whose bytes are the sums over its tiles and over every (batch, head)."""
        copies = tiles.problem.batch * tiles.problem.heads
        sums = {t: (int(r.sum()) * copies, int(w.sum()) * copies) for t, (r, w) in tiles.program_bytes().items()}
        reads = {tensor: read for tensor, (read, _) in sums.items() if read}
        writes = {tensor: written for tensor, (_, written) in sums.items() if written}
        return cls(name, reads, writes, tiles)


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
    def tiles(self) -> TileGrid | None:
        """The grid of the first tiled launch; None where no launch tells its tiles."""
        return next((launch.tiles for launch in self.launches if launch.tiles is not None), None)

    def steps(self) -> Iterator[TileStep]:
        """Every step of every program of every launch; a launch without known tiles is one step."""
        problem = self.problem
        everything = (0, problem.seq_len_q), (0, problem.seq_len_kv)
        for launch in self.launches:
            if launch.tiles is None:
                mask = "partial" if problem.is_masked else "full"
                yield TileStep(launch.name, 0, 0, *everything, mask, launch.reads, launch.writes)
                continue
            for program_id in range(launch.tiles.programs):
                yield from launch.tiles.program_steps(launch.name, program_id)
