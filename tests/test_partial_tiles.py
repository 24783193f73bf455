"""Whether a mask is compiled in at all: exactly where the geometry has a tile that is not full."""

import pytest

from kernels.launching import has_partial_tiles
from kernels.problem import AttentionProblem, TileConfig
from kernels.tile_grid import TileGrid


@pytest.mark.parametrize("block_n", [16, 32, 64])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 1, 40, 500])
@pytest.mark.parametrize(("queries", "keys"), [(64, 64), (64, 128), (65, 64), (64, 65), (1, 96), (128, 32)])
def test_a_mask_is_there_where_some_tile_needs_one(
    queries: int, keys: int, window: int | None, causal: bool, block_n: int
) -> None:
    problem = AttentionProblem(1, 1, 1, queries, keys, 16, causal=causal, window=window)
    grid = TileGrid(problem, 16, block_n)
    partial = {grid.mask_of(i, j) for i in range(grid.q_tiles) for j in range(grid.kv_tiles)} - {"full", "skipped"}
    told = has_partial_tiles(problem, TileConfig(16, block_n))
    assert told or not partial
    # Told for nothing it costs only compilation, so it may be where tiles are skipped whole; nowhere else.
    assert not told or partial or problem.is_masked
