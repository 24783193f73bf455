"""One step of one program: the tile at hand, and the bytes that its loads and stores ask for."""

from collections.abc import Mapping
from dataclasses import dataclass

ByTensor = Mapping[str, int]


@dataclass(frozen=True)
class TileStep:
    """One step of one program; ranges are half-open rows of Q and of K/V, bytes are what its loads and stores ask.

    Rows of Q are those of the score matrix that is cut: queries, or the query heads of a K/V head (TileGrid.packs).
    """

    launch: str
    program_id: int
    step: int
    q_range: tuple[int, int]
    kv_range: tuple[int, int]
    mask: str  # full: every score counts; partial: some are masked; skipped: no score counts, nothing is read
    reads: ByTensor
    writes: ByTensor
