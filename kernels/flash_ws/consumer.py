"""One of the warp groups that compute, in Gluon: 64 queries against every KV tile that the producer brings.

S of a tile is issued before P V of the tile before, and its softmax runs while that product does. The groups take
turns, so that one has the tensor cores while the other has the exponentials: they issue their products one after the
other, or, with SOFTMAX_TURNS, do their exponentials so. With SHARE_P the product reads P from shared memory: tiles of
so many keys leave no registers for it beside S.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

from kernels.flash_ws.softmax import masked, sum_of_lanes, weighed
from kernels.flash_ws.work import tiles_clear


@gluon.jit
def wait_for_turn(INDEX: gl.constexpr):
    """Hardware barrier 8 + INDEX: consumer INDEX waits until the other one has arrived there; 256 threads are both."""
    if INDEX == 0:
        gl.inline_asm_elementwise("bar.sync 8, 256; mov.b32 $0, 0;", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1)
    else:
        gl.inline_asm_elementwise("bar.sync 9, 256; mov.b32 $0, 0;", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1)


@gluon.jit
def give_turn(INDEX: gl.constexpr):
    """Arrive where consumer INDEX waits, and go on."""
    if INDEX == 0:
        gl.inline_asm_elementwise(
            "bar.arrive 8, 256; mov.b32 $0, 0;", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1
        )
    else:
        gl.inline_asm_elementwise(
            "bar.arrive 9, 256; mov.b32 $0, 0;", "=r,r", [0], dtype=gl.int32, is_pure=False, pack=1
        )


@gluon.jit
def never_loop(count):
    """A loop that is not entered, count being positive: ptxas moves no wait for a product up across a branch."""
    gl.inline_asm_elementwise(
        """{
        .reg .pred never;
        again: setp.lt.s32 never, $1, 0;
        @!never bra over;
        nanosleep.u32 20;
        bra again;
        over: mov.b32 $0, $1;
        }""",
        "=r,r", [count], dtype=gl.int32, is_pure=False, pack=1,
    )  # fmt: skip


@gluon.jit
def start_scores(q, k_shared, stage, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr):
    """Issue S = Q Kᵀ of the K tile in a stage."""
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    k = k_shared.index(stage).reshape([BLOCK_N, WIDTH])
    zeros = gl.zeros([ROWS, BLOCK_N], gl.float32, layout)
    return warpgroup_mma(q, k.permute((1, 0)), zeros, use_acc=False, is_async=True)


@gluon.jit
def shared_operand(p, p_shared, INDEX: gl.constexpr, DTYPE: gl.constexpr):
    """P of consumer INDEX where its product reads it from shared memory."""
    operand = p_shared.index(INDEX)
    operand.store(p.to(DTYPE))
    fence_async_shared()
    return operand


@gluon.jit
def start_values(p, v_shared, stage, acc, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr, DTYPE: gl.constexpr):
    """Issue acc + P V of the V tile in a stage; returns P as the product reads it, which must live as long."""
    p = gl.convert_layout(p.to(DTYPE), gl.DotOperandLayout(0, acc.type.layout, 2))
    v = v_shared.index(stage).reshape([BLOCK_N, WIDTH])
    return warpgroup_mma(p, v, acc, is_async=True), p


@gluon.jit
def start_shared_values(operand, v_shared, stage, acc, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr):
    """As start_values, with P in shared memory."""
    v = v_shared.index(stage).reshape([BLOCK_N, WIDTH])
    return warpgroup_mma(operand, v, acc, is_async=True)


@gluon.jit
def attend_tile(
    q, k_shared, v_shared, p_shared, k_full, k_empty, v_full, v_empty, k_stage, k_phase, v_stage, v_phase,
    acc, m_i, l_i, p, j, row, seq_len_q, seq_len_kv, scale, coarse,
    INDEX: gl.constexpr, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, MASKED: gl.constexpr, SOFTMAX_TURNS: gl.constexpr, SHARE_P: gl.constexpr, DTYPE: gl.constexpr,
):  # fmt: skip
    """Scores and softmax of tile j, while the tile before, of which p are the weights, is multiplied with its V."""
    # P comes here as float32: as 16 bits it would be converted early, and wait for registers of a product under way.
    if SHARE_P:
        p_operand = shared_operand(p, p_shared, INDEX, DTYPE)
    mbarrier.wait(k_full.index(k_stage), k_phase)
    if not SOFTMAX_TURNS:
        wait_for_turn(INDEX)
    s = start_scores(q, k_shared, k_stage, ROWS, BLOCK_N, WIDTH)
    mbarrier.wait(v_full.index(v_stage), v_phase)
    if SHARE_P:
        acc = start_shared_values(p_operand, v_shared, v_stage, acc, BLOCK_N, WIDTH)
    else:
        acc, p_operand = start_values(p, v_shared, v_stage, acc, BLOCK_N, WIDTH, DTYPE)
    if not SOFTMAX_TURNS:
        give_turn(1 - INDEX)
    s = warpgroup_mma_wait(1, deps=[s])
    mbarrier.arrive(k_empty.index(k_stage))
    if SOFTMAX_TURNS:
        wait_for_turn(INDEX)
    if MASKED:
        s = masked(s, j, row, seq_len_q, seq_len_kv, ROWS, BLOCK_N, CAUSAL)
    m_i, alpha, p = weighed(s, m_i, scale, coarse, MASKED)
    l_i = l_i * gl.convert_layout(alpha, gl.SliceLayout(1, l_i.type.layout))[:, None] + sum_of_lanes(p, ROWS, BLOCK_N)
    # The wait for P V belongs after the exponentials. LLVM would move it before them, were p and l_i not among what it
    # hands on; ptxas would, were there no branch between.
    never_loop(seq_len_kv)
    if SOFTMAX_TURNS:
        give_turn(1 - INDEX)
    if SHARE_P:
        acc, p, l_i = warpgroup_mma_wait(0, deps=[acc, p, l_i])
    else:
        acc, p_operand, p, l_i = warpgroup_mma_wait(0, deps=[acc, p_operand, p, l_i])
    mbarrier.arrive(v_empty.index(v_stage))
    acc = acc * gl.convert_layout(alpha, gl.SliceLayout(1, acc.type.layout))[:, None]
    v_stage = k_stage
    v_phase = k_phase
    k_stage += 1
    if k_stage == STAGES:
        k_stage = 0
        k_phase ^= 1
    return acc, m_i, l_i, p, k_stage, k_phase, v_stage, v_phase


@gluon.jit
def attend(
    o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, o_shared,
    q_full, q_empty, k_full, k_empty, v_full, v_empty,
    batch, head, heads, tile, n_tiles, backward, seq_len_q, seq_len_kv, sm_scale, scale, coarse,
    first_stage, first_phase, q_phase,
    INDEX: gl.constexpr, ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, PARTIAL: gl.constexpr, TURNS: gl.constexpr, SOFTMAX_TURNS: gl.constexpr,
    SHARE_P: gl.constexpr, PERSISTENT: gl.constexpr, OWN_O: gl.constexpr,
):  # fmt: skip
    """All KV tiles of a Q tile's rows of consumer INDEX, then O and LSE of these; returns the stage and phase after.

    The first K and V tile are in first_stage. With PERSISTENT the caller gives the first turn and takes the last.
    With OWN_O the memory of Q is given back while O of this Q tile is still to come, and O of the one before has left.
    """
    DTYPE: gl.constexpr = o_described.dtype
    row = (tile * CONSUMERS + INDEX) * ROWS
    clear = tiles_clear(row, seq_len_q, seq_len_kv, n_tiles, BLOCK_N, CAUSAL)
    first = n_tiles - 1
    if TURNS:
        first = gl.where(backward, first, 0)
    if INDEX == 1 and not PERSISTENT:
        give_turn(0)

    # The first tile has no tile before it.
    mbarrier.wait(q_full.index(INDEX), q_phase)
    mbarrier.wait(k_full.index(first_stage), first_phase)
    if not SOFTMAX_TURNS:
        wait_for_turn(INDEX)
    q = q_shared.index(INDEX).reshape([ROWS, WIDTH])
    s = start_scores(q, k_shared, first_stage, ROWS, BLOCK_N, WIDTH)
    if not SOFTMAX_TURNS:
        give_turn(1 - INDEX)
    s = warpgroup_mma_wait(0, deps=[s])
    mbarrier.arrive(k_empty.index(first_stage))
    if SOFTMAX_TURNS:
        wait_for_turn(INDEX)
    if PARTIAL:
        s = masked(s, first, row, seq_len_q, seq_len_kv, ROWS, BLOCK_N, CAUSAL)
    m_i = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, s.type.layout))
    m_i, _, p = weighed(s, m_i, scale, coarse, True)
    l_i = sum_of_lanes(p, ROWS, BLOCK_N)
    if SOFTMAX_TURNS:
        never_loop(seq_len_kv)
        give_turn(1 - INDEX)
    o_layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, WIDTH, 16])
    acc = gl.zeros([ROWS, WIDTH], gl.float32, o_layout)
    if PERSISTENT:
        k_stage = (first_stage + 1) % STAGES
        k_phase = first_phase ^ (first_stage + 1) // STAGES
    else:
        k_stage = 1 % STAGES
        k_phase = 1 // STAGES
    v_stage = first_stage
    v_phase = first_phase

    # Falling, the tiles with a mask come first; of those without a causal one only the last tile can need one, and that
    # was the first.
    masks = n_tiles - clear
    if TURNS:
        masks = gl.where(backward, masks, 0)
    if CAUSAL:
        for j in range(n_tiles - 2, n_tiles - 1 - masks, -1):
            acc, m_i, l_i, p, k_stage, k_phase, v_stage, v_phase = attend_tile(
                q, k_shared, v_shared, p_shared, k_full, k_empty, v_full, v_empty, k_stage, k_phase, v_stage, v_phase,
                acc, m_i, l_i, p, j, row, seq_len_q, seq_len_kv, scale, coarse,
                INDEX, ROWS, BLOCK_N, WIDTH, STAGES, CAUSAL, True, SOFTMAX_TURNS, SHARE_P, DTYPE,
            )  # fmt: skip
    # Which tile it is only a mask asks: here i counts.
    plain = n_tiles - gl.maximum(masks, 1)
    if TURNS:
        plain = gl.where(backward, plain, gl.maximum(clear - 1, 0))
    for i in range(plain):
        acc, m_i, l_i, p, k_stage, k_phase, v_stage, v_phase = attend_tile(
            q, k_shared, v_shared, p_shared, k_full, k_empty, v_full, v_empty, k_stage, k_phase, v_stage, v_phase,
            acc, m_i, l_i, p, i, row, seq_len_q, seq_len_kv, scale, coarse,
            INDEX, ROWS, BLOCK_N, WIDTH, STAGES, CAUSAL, False, SOFTMAX_TURNS, SHARE_P, DTYPE,
        )  # fmt: skip
    if TURNS:
        # Rising, they come last.
        for j in range(gl.maximum(clear, 1), gl.where(backward, 0, n_tiles)):
            acc, m_i, l_i, p, k_stage, k_phase, v_stage, v_phase = attend_tile(
                q, k_shared, v_shared, p_shared, k_full, k_empty, v_full, v_empty, k_stage, k_phase, v_stage, v_phase,
                acc, m_i, l_i, p, j, row, seq_len_q, seq_len_kv, scale, coarse,
                INDEX, ROWS, BLOCK_N, WIDTH, STAGES, CAUSAL, True, SOFTMAX_TURNS, SHARE_P, DTYPE,
            )  # fmt: skip

    if OWN_O:
        mbarrier.arrive(q_empty.index(INDEX))
    mbarrier.wait(v_full.index(v_stage), v_phase)
    acc, p_operand = start_values(p, v_shared, v_stage, acc, BLOCK_N, WIDTH, DTYPE)
    acc, p_operand = warpgroup_mma_wait(0, deps=[acc, p_operand])
    if PERSISTENT:
        mbarrier.arrive(v_empty.index(v_stage))
    # The last turn that was given to consumer 0 has no taker yet.
    if INDEX == 0 and not PERSISTENT:
        wait_for_turn(0)

    l_i = gl.convert_layout(gl.sum(l_i, 1), gl.SliceLayout(1, s.type.layout))
    blind = l_i == 0.0
    lse = gl.where(blind, float("-inf"), m_i * sm_scale + gl.log(gl.where(blind, 1.0, l_i)))
    rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s.type.layout))
    bh = (batch * heads + head).to(gl.int64)
    gl.store(lse_ptr + bh * seq_len_q + rows, lse, mask=rows < seq_len_q)
    # P of hidden keys is 0, so acc of a query that saw nothing is 0 already.
    over = gl.convert_layout(1.0 / gl.where(blind, 1.0, l_i), gl.SliceLayout(1, o_layout))
    if OWN_O:
        tma.store_wait(0)
    o_shared.index(INDEX).reshape([ROWS, WIDTH]).store((acc * over[:, None]).to(DTYPE))
    fence_async_shared()
    tma.async_copy_shared_to_global(o_described, [batch, head, row, 0], o_shared.index(INDEX))
    if not OWN_O:
        tma.store_wait(0)
        if PERSISTENT:
            mbarrier.arrive(q_empty.index(INDEX))
    return k_stage, k_phase


@gluon.jit
def consume(
    o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, q_full, k_full, k_empty, v_full, v_empty,
    batch, head, heads, tile, n_tiles, backward, seq_len_q, seq_len_kv, sm_scale, scale, coarse,
    INDEX: gl.constexpr, ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, PARTIAL: gl.constexpr, TURNS: gl.constexpr, SOFTMAX_TURNS: gl.constexpr,
    SHARE_P: gl.constexpr,
):  # fmt: skip
    """Consumer INDEX of a program with one Q tile. O leaves through the memory of Q, which no product reads then."""
    # Nobody waits for Q's memory here, so there is no q_empty.
    attend(
        o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, q_shared,
        q_full, q_full, k_full, k_empty, v_full, v_empty,
        batch, head, heads, tile, n_tiles, backward, seq_len_q, seq_len_kv, sm_scale, scale, coarse, 0, 0, 0,
        INDEX, ROWS, CONSUMERS, BLOCK_N, WIDTH, STAGES, CAUSAL, PARTIAL, TURNS, SOFTMAX_TURNS, SHARE_P, False, False,
    )  # fmt: skip
