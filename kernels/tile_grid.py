"""The score matrix cut into tiles of BLOCK_M × BLOCK_N, and what the mask makes of each."""

from dataclasses import dataclass, field, replace

import numpy as np

from kernels.problem import AttentionProblem, Int64Array


@dataclass(frozen=True)
class TileGrid:
    """The score matrix of one (batch, head) cut into tiles, and which of them the mask lets a kernel see.

    Of the tiles beside Q tile i those in [first[i], last[i]) hold a score that counts, and those in
    [full_first[i], full_last[i]) need no mask. The arrays are int64 [q_tiles].

    With `packs` above 1 the rows of `problem` are query heads of another problem, of which so many share a K/V head and
    each has one query (kernels.packed_gqa); place_of and query_of lead from one to the other.
    """

    problem: AttentionProblem
    BLOCK_M: int
    BLOCK_N: int
    packs: int = 1
    first: Int64Array = field(init=False, compare=False)
    full_first: Int64Array = field(init=False, compare=False)
    full_last: Int64Array = field(init=False, compare=False)
    last: Int64Array = field(init=False, compare=False)

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
    def unpacked(self) -> AttentionProblem:
        """The problem whose heads and queries place_of takes, without the causal mask, which hides nothing there."""
        if self.packs == 1:
            return self.problem
        return replace(self.problem, heads=self.problem.heads * self.packs, seq_len_q=1)

    def place_of(self, batch: int, head: int, query: int) -> tuple[int, int]:
        """((batch, head) as one number, row) at which a query of a head stands in the score matrices that are cut."""
        number = batch * self.problem.heads * self.packs + head
        return (number, query) if self.packs == 1 else divmod(number, self.packs)

    def query_of(self, batch_head: int, row: int) -> tuple[int, int, int]:
        """(batch, head, query) of a row: the way back from place_of."""
        number, query = (batch_head, row) if self.packs == 1 else (batch_head * self.packs + row, 0)
        batch, head = divmod(number, self.problem.heads * self.packs)
        return batch, head, query

    @property
    def q_tiles(self) -> int:
        """Q tiles of one (batch, head)."""
        return len(self.first)

    @property
    def kv_tiles(self) -> int:
        """KV tiles that cover seq_len_kv, skipped ones included."""
        return -(-self.problem.seq_len_kv // self.BLOCK_N)

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

    @property
    def row_bytes(self) -> int:
        """Bytes of one row of Q, K, V or O."""
        return self.problem.head_dim * self.problem.element_bytes
