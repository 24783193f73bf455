"""One of the warp groups of the backward pass, in Gluon: 64 keys against every Q tile that the producer brings.

S and dP are issued together, and P is made while dP is under way, dS while dV is. dS of both groups goes through shared
memory, since each makes one half of dQ from all 128 keys: half as many adds as if each had a dQ of its own. They leave
while dK is under way. Nothing is under way from one step to the next: the other group has the tensor cores meanwhile.

A half is 64 of 128 columns for the 64 queries of a step, and 64 of the 128 queries that a step has where WIDTH is 64: a
product has 64 rows, and a row of shared memory 64 columns.
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

from kernels.flash_ws.gradient_work import q_tile_of, sum_place
from kernels.flash_ws.softmax import exp2
from kernels.flash_ws.warps import wait_for_both


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

    Scores are transposed, [ROWS, PART], so that P and dS are the left operands of dV and dK as they are.
    """
    # Of so many queries are the products: those of a tile come in parts.
    PART: gl.constexpr = 64
    PARTS: gl.constexpr = BLOCK_M // PART
    stage = n % STAGES
    phase = n // STAGES % 2
    # A barrier of both groups a step is enough for two buffers of dS: who has passed that of the step before has waited
    # for its own dQ of the step before that, which was the last to read this buffer, and so has the other group.
    ds_buffer = n % 2 * 2
    COLS: gl.constexpr = WIDTH * PARTS // 2
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, PART, 16])
    dq_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, COLS, 16])
    operand: gl.constexpr = gl.DotOperandLayout(0, dv.type.layout, 2)

    p_operand = gl.zeros([ROWS, PART], DTYPE, operand)
    ds_operand = p_operand
    for part in gl.static_range(PARTS):
        q = q_shared.index(stage).reshape([BLOCK_M, WIDTH]).slice(part * PART, PART, 0)
        do = do_shared.index(stage).reshape([BLOCK_M, WIDTH]).slice(part * PART, PART, 0)
        if part == 0:
            mbarrier.wait(q_full.index(stage), phase)
        s = start_transposed(k_shared.index(INDEX).reshape([ROWS, WIDTH]), q, ROWS, PART)
        if part == 0:
            mbarrier.wait(do_full.index(stage), phase)
        dp = start_transposed(v_shared.index(INDEX).reshape([ROWS, WIDTH]), do, ROWS, PART)
        if part == 0:
            s = warpgroup_mma_wait(1, deps=[s])
        else:
            # The products of the part before end here; what they read must live as long.
            s, dk, dv, p_operand, ds_operand = warpgroup_mma_wait(1, deps=[s, dk, dv, p_operand, ds_operand])

        rows = rows_shared.index(stage).slice(part * PART, PART, 1)
        lse = rows.slice(0, 1, 0).load(layout)  # [1, PART], times log2 e
        p = exp2(s * scale - lse)
        if MASKED:
            keys = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, layout))
            if CAUSAL:
                queries = j * BLOCK_M + part * PART + gl.arange(0, PART, layout=gl.SliceLayout(0, layout))
                ends = gl.minimum(queries + (seq_len_kv - seq_len_q + 1), seq_len_kv)
                p = gl.where(keys[:, None] < ends[None, :], p, 0.0)
            else:
                p = gl.where((keys < seq_len_kv)[:, None], p, 0.0)
        p_operand = gl.convert_layout(p.to(DTYPE), operand)
        dv = warpgroup_mma(p_operand, do, dv, is_async=True)

        dp, p = warpgroup_mma_wait(1, deps=[dp, p])
        delta = rows.slice(1, 1, 0).load(layout)  # [1, PART]
        ds = (p * (dp - delta)).to(DTYPE)
        ds_shared.index((ds_buffer + INDEX) * PARTS + part).store(ds)
        fence_async_shared()
        ds_operand = gl.convert_layout(ds, operand)
        if part + 1 < PARTS:
            dk = warpgroup_mma(ds_operand, q, dk, is_async=True)
    wait_for_both()
    # Of one part this group makes one half of the columns, of two parts one part.
    dq = gl.zeros([PART, COLS], gl.float32, dq_layout)
    for c in gl.static_range(2):
        ds_keys = ds_shared.index((ds_buffer + c) * PARTS + INDEX * (PARTS - 1)).permute((1, 0))
        k_part = k_shared.index(c).reshape([ROWS, WIDTH]).slice(INDEX * (2 - PARTS) * COLS, COLS, 1)
        dq = warpgroup_mma(ds_keys, k_part, dq, use_acc=c > 0, is_async=True)
    dv, p_operand = warpgroup_mma_wait(2, deps=[dv, p_operand])
    dk = warpgroup_mma(ds_operand, q, dk, is_async=True)

    dq = warpgroup_mma_wait(1, deps=[dq])
    queries = gl.arange(0, PART, layout=gl.SliceLayout(1, dq_layout))
    cols = gl.arange(0, COLS, layout=gl.SliceLayout(0, dq_layout))
    inside = sum_place(queries[:, None], cols[None, :]) + INDEX * (PART * COLS)
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
