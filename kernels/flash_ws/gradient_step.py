"""One of the warp groups of the backward pass, in Gluon: 64 keys against every Q tile that the producer brings.

S and dP are issued together, and P is made while dP is under way, dS while dV is. dS of both groups goes through shared
memory, since each makes one half of dQ's columns from all 128 keys: half as many adds as if each had a dQ of its own.
They leave while dK is under way. Nothing is under way from one step to the next: the other group has the tensor cores
meanwhile.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from kernels.flash_ws.barriers import wait_for_both
from kernels.flash_ws.gradient_work import q_tile_of, sum_place
from kernels.flash_ws.softmax import exp2


@gluon.jit
def start_transposed(a, b, M: gl.constexpr, N: gl.constexpr):
    """Issue A Bᵀ of two tiles in shared memory."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, N, 16])
    zeros = gl.zeros([M, N], gl.float32, layout)
    return warpgroup_mma(a, b.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def add_sums(sums, values):
    """Add to float32 sums in global memory, a thread's four in one instruction; sums are addresses, equal in fours."""
    gl.inline_asm_elementwise(
        """red.relaxed.gpu.global.add.v4.f32 [$4], {$8, $9, $10, $11};
        mov.b32 $0, 0; mov.b32 $1, 0; mov.b32 $2, 0; mov.b32 $3, 0;""",
        "=r,=r,=r,=r,l,l,l,l,f,f,f,f", [sums, values], dtype=gl.int32, is_pure=False, pack=4,
    )  # fmt: skip


@gluon.jit
def add_tile(
    q_shared, k_shared, v_shared, do_shared, rows_shared, ds_shared, q_full, do_full, empty,
    dk, dv, n, row, j, sums, seq_len_q, seq_len_kv, scale,
    INDEX: gl.constexpr, ROWS: gl.constexpr, BLOCK_M: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr, DTYPE: gl.constexpr,
):  # fmt: skip
    """dk, dv with the share of Q tile j, whose sums of dQ begin at `sums`; n counts the program's steps.

    Scores are transposed, [ROWS, BLOCK_M], so that P and dS are the left operands of dV and dK as they are.
    """
    stage = n % STAGES
    phase = n // STAGES % 2
    # A barrier of both groups a step is enough for two buffers of dS: who has passed that of the step before has waited
    # for its own dQ of the step before that, which was the last to read this buffer, and so has the other group.
    ds_buffer = n % 2 * 2
    HALF: gl.constexpr = WIDTH // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_M, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HALF, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, dv.type.layout, 2)
    q = q_shared.index(stage).reshape([BLOCK_M, WIDTH])
    do = do_shared.index(stage).reshape([BLOCK_M, WIDTH])

    mbarrier.wait(q_full.index(stage), phase)
    s = start_transposed(k_shared.index(INDEX).reshape([ROWS, WIDTH]), q, ROWS, BLOCK_M)
    mbarrier.wait(do_full.index(stage), phase)
    dp = start_transposed(v_shared.index(INDEX).reshape([ROWS, WIDTH]), do, ROWS, BLOCK_M)
    s = warpgroup_mma_wait(1, deps=[s])

    lse = rows_shared.index(stage).slice(0, 1, 0).load(layout)  # [1, BLOCK_M], times log2 e
    p = exp2(s * scale - lse)
    if MASKED:
        keys = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
        if CAUSAL:
            queries = j * BLOCK_M + gl.arange(0, BLOCK_M, layout=gl.SliceLayout(0, layout))
            ends = gl.minimum(queries + (seq_len_kv - seq_len_q + 1), seq_len_kv)
            p = gl.where(keys[:, None] < ends[None, :], p, 0.0)
        else:
            p = gl.where((keys < seq_len_kv)[:, None], p, 0.0)
    p_operand = gl.convert_layout(p.to(DTYPE), operand)
    dv = warpgroup_mma(p_operand, do, dv, is_async=True)

    dp, p = warpgroup_mma_wait(1, deps=[dp, p])
    delta = rows_shared.index(stage).slice(1, 1, 0).load(layout)  # [1, BLOCK_M]
    ds = (p * (dp - delta)).to(DTYPE)
    ds_shared.index(ds_buffer + INDEX).store(ds)
    fence_async_shared()
    ds_operand = gl.convert_layout(ds, operand)
    wait_for_both()
    dq = gl.zeros([BLOCK_M, HALF], gl.float32, dq_layout)
    for c in gl.static_range(2):
        k_half = k_shared.index(c).reshape([ROWS, WIDTH]).slice(INDEX * HALF, HALF, 1)
        dq = warpgroup_mma(ds_shared.index(ds_buffer + c).permute((1, 0)), k_half, dq, use_acc=c > 0, is_async=True)
    dv, p_operand = warpgroup_mma_wait(2, deps=[dv, p_operand])
    dk = warpgroup_mma(ds_operand, q, dk, is_async=True)

    dq = warpgroup_mma_wait(1, deps=[dq])
    rows = gl.arange(0, BLOCK_M, layout=gl.SliceLayout(1, dq_layout))
    cols = gl.arange(0, HALF, layout=gl.SliceLayout(0, dq_layout))
    inside = sum_place(rows[:, None], cols[None, :]) + INDEX * (BLOCK_M * HALF)
    add_sums((sums + inside).to(gl.int64), dq)
    dk, ds_operand = warpgroup_mma_wait(0, deps=[dk, ds_operand])
    mbarrier.arrive(empty.index(stage))
    # What is under way where a loop begins or ends, and read by anything but a product, makes ptxas serialise them all.
    return warpgroup_mma_init(dk), dv, n + 1


@gluon.jit
def consume_queries(
    dk_described, dv_described, sums,
    q_shared, k_shared, v_shared, do_shared, rows_shared, ds_shared, kv_full, q_full, do_full, empty,
    batch, kv_head, heads, group, tile, first, clear, last, q_tiles, turn, seq_len_q, seq_len_kv, sm_scale, scale,
    INDEX: gl.constexpr, ROWS: gl.constexpr, BLOCK_M: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, PARTIAL: gl.constexpr,
):  # fmt: skip
    """All Q tiles of all heads that share the 64 keys of group INDEX, then dK and dV of these keys."""
    DTYPE: gl.constexpr = dk_described.dtype
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    row = (tile * 2 + INDEX) * ROWS
    dv = gl.zeros([ROWS, WIDTH], gl.float32, layout)
    dk = warpgroup_mma_init(gl.zeros([ROWS, WIDTH], gl.float32, layout))
    n = 0
    mbarrier.wait(kv_full.index(0), 0)
    mbarrier.wait(kv_full.index(1), 0)
    for member in range(group):
        rows = (batch * heads + kv_head * group + member) * q_tiles
        if PARTIAL:
            for i in range(first, clear):
                j = q_tile_of(i, turn, last, CAUSAL)
                dk, dv, n = add_tile(
                    q_shared, k_shared, v_shared, do_shared, rows_shared, ds_shared, q_full, do_full, empty,
                    dk, dv, n, row, j, sums + (rows + j).to(gl.int64) * (BLOCK_M * WIDTH),
                    seq_len_q, seq_len_kv, scale,
                    INDEX, ROWS, BLOCK_M, WIDTH, STAGES, CAUSAL, True, DTYPE,
                )  # fmt: skip
        for i in range(clear, last):
            j = q_tile_of(i, turn, last, CAUSAL)
            dk, dv, n = add_tile(
                q_shared, k_shared, v_shared, do_shared, rows_shared, ds_shared, q_full, do_full, empty,
                dk, dv, n, row, j, sums + (rows + j).to(gl.int64) * (BLOCK_M * WIDTH),
                seq_len_q, seq_len_kv, scale,
                INDEX, ROWS, BLOCK_M, WIDTH, STAGES, CAUSAL, False, DTYPE,
            )  # fmt: skip
    dk = warpgroup_mma_wait(0, deps=[dk])
    # The other group may still read K for its dQ.
    wait_for_both()
    # No product reads K and V any more: dK and dV leave through their shared memory.
    k_mine = k_shared.index(INDEX)
    v_mine = v_shared.index(INDEX)
    k_mine.reshape([ROWS, WIDTH]).store((dk * sm_scale).to(DTYPE))
    v_mine.reshape([ROWS, WIDTH]).store(dv.to(DTYPE))
    fence_async_shared()
    tma.async_copy_shared_to_global(dk_described, [batch, kv_head, row, 0], k_mine)
    tma.async_copy_shared_to_global(dv_described, [batch, kv_head, row, 0], v_mine)
    tma.store_wait(0)
