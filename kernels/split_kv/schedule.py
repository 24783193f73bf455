"""Flash-Decoding: a launch whose programs share a Q tile, each over a part of K and V, and one that merges."""

import numpy as np

from kernels.on_chip import tiled
from kernels.packed_gqa import packed
from kernels.problem import FLOAT32_BYTES, AttentionProblem, TileConfig
from kernels.row_walk import RowWalk
from kernels.schedule import Launch, Schedule
from kernels.tile_grid import TileGrid

# One wave where an SM holds three programs, on the 132 SMs of an H100 or H200: in a wave that is not full, the programs
# that are left wait for their own loads, and HBM for them.
TARGET_PROGRAMS = 384
MAX_SPLITS = 128
MERGED_VALUES = 8192  # of acc in a merging program's registers at once: 16 for each thread of 16 warps


def splits_of(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """(splits, KV tiles of each): enough for TARGET_PROGRAMS on whatever GPU, and no share empty; the last is shorter.

    The problem is as packed() gives it. A share of which the mask shows a Q tile nothing still has its program.
    """
    q_tiles, kv_tiles = -(-problem.seq_len_q // tile.BLOCK_M), -(-problem.seq_len_kv // tile.BLOCK_N)
    wanted = min(-(-TARGET_PROGRAMS // (problem.batch * problem.heads * q_tiles)), MAX_SPLITS, kv_tiles)
    share_tiles = -(-kv_tiles // wanted)
    return -(-kv_tiles // share_tiles), share_tiles


def merged_at_once(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """(rows of a merging program, shares that it takes at once), powers of two, of a problem as packed() gives it.

    All shares at once where they fit, and then as many rows as do: loads that wait for one another would take longer
    than the bytes.
    """
    splits, _ = splits_of(problem, tile)
    values = MERGED_VALUES // problem.padded_head_dim
    shares = min(_power_of_two(splits), values)
    return min(_power_of_two(problem.seq_len_q), tile.BLOCK_M, values // shares), shares


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """split reads Q once for each share, K and V once for each Q tile, and writes acc, m and l of each share.

    A Q tile holds queries of one head or, where each head has one, the heads that share K and V (see packed).
    merge reads those states and writes O and LSE, once. In split the Q tiles run fastest: neighbours read the same
    share of K and V, from HBM once; with the shares fastest every one of them would be in flight at once and have to
    wait in L2.
    """
    rows = packed(problem)
    grid = TileGrid(rows, tile.BLOCK_M, tile.BLOCK_N, packs=problem.heads // rows.heads)
    splits, share_tiles = splits_of(rows, tile)
    share = np.repeat(np.arange(splits), grid.q_tiles)
    q_tile = np.tile(np.arange(grid.q_tiles), splits)
    at_end = {"acc": problem.head_dim * FLOAT32_BYTES, "m": FLOAT32_BYTES, "l": FLOAT32_BYTES}
    walk = RowWalk(grid, q_tile, share * share_tiles, np.minimum((share + 1) * share_tiles, grid.kv_tiles), at_end)
    stages = tile.num_stages
    streams = f"one step, {stages} in flight" if stages > 1 else "one step"
    held = tiled(problem, tile.BLOCK_M, tile.BLOCK_N, "all steps", streams, "all steps")
    size, partial = problem.tensor_bytes, temporaries(problem, tile)
    merge = Launch("merge", {name: partial[name] for name in at_end}, {name: size[name] for name in ("o", "lse")})
    return Schedule("split_kv", problem, (Launch.of_walk("split", walk, held), merge))


def temporaries(problem: AttentionProblem, tile: TileConfig) -> dict[str, int]:
    """The state of every row in each of its shares, in float32, and LSE."""
    row, (splits, _) = problem.tensor_bytes["lse"], splits_of(packed(problem), tile)
    return {"acc": splits * row * problem.head_dim, "m": splits * row, "l": splits * row, "lse": row}
