"""The warp that copies, in Gluon: Q once, then K and V tile by tile into rings of STAGES tiles."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma


@gluon.jit
def copy_tile(described, batch, head, row, full, shared):
    """Start the copy of one tile; the barrier `full` opens when all of its bytes are there."""
    mbarrier.expect(full, described.block_type.nbytes)
    tma.async_copy_global_to_shared(described, [batch, head, row, 0], full, shared)


@gluon.jit
def copy_to_stage(described, batch, head, row, full, empty, shared, stage, phase):
    """Start the copy of a tile of K or V as soon as the tile before in its stage has been read."""
    mbarrier.wait(empty.index(stage), phase)
    copy_tile(described, batch, head, row, full.index(stage), shared.index(stage))


@gluon.jit
def produce(
    q_described, k_described, v_described, q_shared, k_shared, v_shared, q_full, k_full, k_empty, v_full, v_empty,
    batch, head, kv_head, tile, n_tiles, backward,
    ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, TURNS: gl.constexpr,
):  # fmt: skip
    """All copies of one program. With TURNS, `backward` false makes K and V rise from tile 0."""
    for c in gl.static_range(CONSUMERS):
        copy_tile(q_described, batch, head, (tile * CONSUMERS + c) * ROWS, q_full.index(c), q_shared.index(c))
    stage = 0
    # The first time round nobody holds a tile: a fresh barrier lets through who waits for the phase before its first.
    phase = 1
    for i in range(n_tiles):
        j = n_tiles - 1 - i
        if TURNS:
            j = gl.where(backward, j, i)
        copy_to_stage(k_described, batch, kv_head, j * BLOCK_N, k_full, k_empty, k_shared, stage, phase)
        copy_to_stage(v_described, batch, kv_head, j * BLOCK_N, v_full, v_empty, v_shared, stage, phase)
        stage += 1
        if stage == STAGES:
            stage = 0
            phase ^= 1
