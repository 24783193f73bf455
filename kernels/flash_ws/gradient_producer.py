"""The warp that copies in the backward pass, in Gluon: K and V once, then Q, LSE, delta and dO, Q tile by Q tile."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

from kernels.flash_ws.gradient_work import q_tile_of


@gluon.jit
def copy_keys(described, batch, kv_head, row, full, shared, ROWS: gl.constexpr):
    """Start the copy of the keys of both groups; the barrier `full` opens when all of them are there."""
    mbarrier.expect(full, 2 * described.block_type.nbytes)
    for c in gl.static_range(2):
        tma.async_copy_global_to_shared(described, [batch, kv_head, row + c * ROWS, 0], full, shared.index(c))


@gluon.jit
def produce_gradients(
    q_described, k_described, v_described, do_described, rows_described,
    q_shared, k_shared, v_shared, do_shared, rows_shared, kv_full, q_full, do_full, empty,
    batch, kv_head, heads, group, tile, first, last, q_tiles, turn,
    ROWS: gl.constexpr, BLOCK_M: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
):  # fmt: skip
    """All copies of one program, what the first scores need first."""
    copy_keys(k_described, batch, kv_head, tile * 2 * ROWS, kv_full.index(0), k_shared, ROWS)
    stage = 0
    # The first time round nobody holds a tile: a fresh barrier lets through who waits for the phase before its first.
    phase = 1
    for member in range(group):
        head = kv_head * group + member
        rows = (batch * heads + head) * q_tiles
        for i in range(first, last):
            j = q_tile_of(i, turn, last, CAUSAL)
            mbarrier.wait(empty.index(stage), phase)
            mbarrier.expect(q_full.index(stage), q_described.block_type.nbytes + rows_described.block_type.nbytes)
            tma.async_copy_global_to_shared(
                q_described, [batch, head, j * BLOCK_M, 0], q_full.index(stage), q_shared.index(stage)
            )
            tma.async_copy_global_to_shared(
                rows_described, [(rows + j) * 2, 0], q_full.index(stage), rows_shared.index(stage)
            )
            if (member == 0) & (i == first):
                copy_keys(v_described, batch, kv_head, tile * 2 * ROWS, kv_full.index(1), v_shared, ROWS)
            mbarrier.expect(do_full.index(stage), do_described.block_type.nbytes)
            tma.async_copy_global_to_shared(
                do_described, [batch, head, j * BLOCK_M, 0], do_full.index(stage), do_shared.index(stage)
            )
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1
