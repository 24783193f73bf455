"""The backward pass of kernels that leave LSE, in bytes: programs keep a KV tile and stream Q tiles past it."""

from dataclasses import dataclass, replace

import numpy as np

from kernels.column_walk import ColumnWalk
from kernels.on_chip import Held
from kernels.problem import AttentionProblem, TileConfig
from kernels.row_walk import RowWalk
from kernels.schedule import Launch, Schedule
from kernels.tile_grid import TileGrid

# Keys that stay and queries that stream, at most, by bytes of an element: above them Triton's code spills kilobytes.
# In float32, which tensor cores do not multiply, each product is unrolled into its FMAs.
MOST = {2: (128, 64), 4: (32, 32)}
FULL_WIDTH = 128  # padded head_dim up to which that many fit
VALUES_OF_A_WARP = 2048  # of dK, and as many of dV: 64 + 64 registers of each thread


def turned(problem: AttentionProblem, tile: TileConfig) -> TileConfig:
    """The tile of the backward pass: the forward's turned round.

    A program keeps as many keys, BLOCK_N, as one of the forward pass keeps queries, and streams as many queries,
    BLOCK_M, as that streams keys; of both at most what fits. Where dK and dV would take more than half of the registers
    of its warps, there are more warps.
    """
    share = max(1, problem.padded_head_dim // FULL_WIDTH)
    most_keys, most_queries = (most // share for most in MOST[problem.element_bytes])
    keys = min(tile.BLOCK_M, most_keys)
    warps = max(tile.num_warps, keys * problem.padded_head_dim // VALUES_OF_A_WARP)
    return replace(tile, BLOCK_M=min(tile.BLOCK_N, most_queries), BLOCK_N=keys, num_warps=warps)


def with_backward(kernel: str, walk: RowWalk, on_chip: tuple[Held, ...], backward: tuple[Launch, ...]) -> Schedule:
    """The schedule of a kernel whose forward pass is one launch of its name, followed by those of its backward pass."""
    problem = walk.grid.problem
    forward = replace(
        Launch.of_walk(kernel, walk, on_chip),
        flops=4 * problem.batch * problem.heads * walk.scores * problem.head_dim,
    )
    return Schedule(kernel, problem, (forward, *backward))


def backward_launches(problem: AttentionProblem, tile: TileConfig) -> tuple[Launch, ...]:
    """delta, gradients and dq; none without a backward pass. `tile` is the forward's.

    `delta` writes rowsum(dO ∘ O) of every query, and clears the sums of dQ. A program of `gradients` reads K and V of
    its tile once; of each head that shares them Q, dO, LSE and delta of the queries that see the tile; and adds the
    share of dQ that these keys have to the sums, in float32. An element that is added counts as a write of 4 bytes and
    as no read: it is L2 that adds, not the SM that asks for it. `dq` scales the sums and rounds them.
    """
    if not problem.backward:
        return ()
    tile = turned(problem, tile)
    size, more, seen = (
        problem.tensor_bytes,
        backward_temporaries(problem),
        seen_by_tiles(problem, tile.BLOCK_M, tile.BLOCK_N),
    )
    elements = size["q"] // problem.element_bytes

    def streamed(whole: int) -> int:
        return whole // problem.seq_len_q * seen.rows

    return (
        Launch("delta", {"o": size["o"], "do": size["do"]}, more, flops=2 * elements),
        Launch(
            "gradients",
            {name: size[name] for name in ("k", "v")}
            | {name: streamed(size[name]) for name in ("q", "do", "lse")}
            | {"delta": streamed(more["delta"])},
            {"dq_sum": streamed(more["dq_sum"]), "dk": size["dk"], "dv": size["dv"]},
            flops=10 * problem.batch * problem.heads * seen.scores * problem.head_dim,
            visits=problem.batch * problem.heads * seen.tiles,
        ),
        Launch("dq", {"dq_sum": more["dq_sum"]}, {"dq": size["dq"]}, flops=elements),
    )


def backward_temporaries(problem: AttentionProblem) -> dict[str, int]:
    """Bytes of delta and of the sums of dQ, both float32; none without a backward pass."""
    if not problem.backward:
        return {}
    row = problem.tensor_bytes["lse"]
    return {"delta": row, "dq_sum": row * problem.head_dim}


@dataclass(frozen=True)
class Seen:
    """Of one (batch, head): tiles visited, the rows of Q in all of them, and their scores, hidden ones included."""

    tiles: int
    rows: int
    scores: int


def seen_by_tiles(problem: AttentionProblem, block_m: int, block_n: int) -> Seen:
    """What programs visit that keep block_n keys each and stream block_m queries a step."""
    grid = TileGrid(problem, block_m, block_n)
    walk = ColumnWalk(grid)
    rows = np.maximum(np.minimum(walk.q_last * block_m, problem.seq_len_q) - walk.q_first * block_m, 0)
    kv_tile = np.arange(grid.kv_tiles)
    scores = rows * grid.kv_rows(kv_tile, kv_tile + 1)
    return Seen(int(walk.start[-1]), int(rows.sum()), int(scores.sum()))
