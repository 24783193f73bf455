"""Softmax traces written by numpy from scores given by hand, in the order of any Walk."""

from collections.abc import Mapping, Sequence

import numpy as np

from app.softmax_recording import Recording
from kernels.problem import AttentionProblem
from kernels.row_walk import RowWalk
from kernels.tile_grid import TileGrid
from profiler.codec import PackedArray
from profiler.run import SoftmaxTrace


def packed(values: object) -> PackedArray:
    return PackedArray.pack(np.array(values, dtype=np.float32))


def walk_of(scores: Sequence[Sequence[float]], block: int, **options: object) -> RowWalk:
    """One program for each row, in rising order; `options` as RowWalk.whole_rows takes them."""
    problem = AttentionProblem(1, 1, 1, len(scores), len(scores[0]), 1, "float32")
    return RowWalk.whole_rows(TileGrid(problem, 1, block), {}, **options)  # type: ignore[arg-type]


def shared_walk(scores: Sequence[Sequence[float]], block: int, shares: Mapping[int, tuple[int, int]]) -> RowWalk:
    """Programs that share row 0: `shares` are their ranges of KV tiles by program."""
    problem = AttentionProblem(1, 1, 1, 1, len(scores[0]), 1, "float32")
    first, last = (np.array([span[end] for span in shares.values()]) for end in (0, 1))
    return RowWalk(TileGrid(problem, 1, block), np.zeros(len(shares), dtype=np.int64), first, last, {})


def recorded(scores: Sequence[Sequence[float]], walk: RowWalk, l_error: float = 0.0) -> Recording:
    """What a kernel without rounding would record of scores [rows, keys] with v = 1, but for `l_error` on every l."""
    grid = walk.grid
    table = np.full((4, len(scores), grid.kv_tiles), np.nan)
    for row, values in enumerate(scores):
        for order in walk.states_of(0, row // grid.BLOCK_M):
            m, total = -np.inf, 0.0
            for tile in order:
                part = np.array(values[tile * grid.BLOCK_N : (tile + 1) * grid.BLOCK_N])
                m_new = max(m, part.max())
                shift = m_new if np.isfinite(m_new) else 0.0
                alpha = np.exp(m - shift)
                total = total * alpha + np.exp(part - shift).sum()
                m = m_new
                table[:, row, tile] = m, total, alpha, total
    m_, l_, alpha_, norm_ = map(packed, table)
    trace = SoftmaxTrace(
        0, 0, 0, len(scores), grid.BLOCK_N, m_, packed(table[1] + l_error), alpha_, norm_, m_, l_, norm_,
        packed(np.ones((1, 1, 1))), 0, 0, grid.kv_tiles, packed(scores), 0,
    )  # fmt: skip
    return Recording(trace, walk)
