"""Flash, warp-specialised, by programs that stay, in Gluon: as many as the GPU holds, which share out the Q tiles.

The rings of K and V go on from one Q tile to the next: while the consumers divide and store O, tiles of the next are on
their way already, and where O has shared memory of its own the next Q tile as well.
"""

import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

from kernels.flash_ws.clock import note_sm, note_time
from kernels.flash_ws.consumer import attend, give_turn, wait_for_turn
from kernels.flash_ws.producer import copy_tile, copy_to_stage
from kernels.flash_ws.warps import CONSUMER_REGISTERS, FIRST, PRODUCER_REGISTERS, SECOND, full_and_empty
from kernels.flash_ws.work import items_of, nth_item, place, tiles_seen


@gluon.jit
def consume_items(
    o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, o_shared,
    q_full, q_empty, k_full, k_empty, v_full, v_empty,
    heads, group, section, q_tiles, items, seq_len_q, seq_len_kv, sm_scale, scale, coarse, sm_ptr, start_ptr, end_ptr,
    INDEX: gl.constexpr, ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr,
    STAGES: gl.constexpr, CAUSAL: gl.constexpr, PARTIAL: gl.constexpr, LONGEST_FIRST: gl.constexpr,
    SOFTMAX_TURNS: gl.constexpr, SHARE_P: gl.constexpr, OWN_O: gl.constexpr, TIMELINE: gl.constexpr,
):  # fmt: skip
    """Consumer INDEX. A timeline has the times of consumer 0, from its wait for Q until O is on its way out, or out."""
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    k_stage = 0
    k_phase = 0
    if INDEX == 1:
        give_turn(0)
    # What each item could share with the next, such as addresses, would take registers from the products.
    for n in tl.range(items_of(program, programs, items, LONGEST_FIRST), disable_licm=True):
        item = nth_item(n, program, programs, LONGEST_FIRST)
        batch, head, _, tile, number = place(item, heads, group, q_tiles, section, LONGEST_FIRST)
        if TIMELINE and INDEX == 0:
            note_sm(sm_ptr, number)
            note_time(start_ptr, number)
        n_tiles = tiles_seen(tile, seq_len_q, seq_len_kv, ROWS * CONSUMERS, BLOCK_N, CAUSAL)
        k_stage, k_phase = attend(
            o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, o_shared,
            q_full, q_empty, k_full, k_empty, v_full, v_empty,
            batch, head, heads, tile, n_tiles, True, seq_len_q, seq_len_kv, sm_scale, scale, coarse,
            k_stage, k_phase, n & 1,
            INDEX, ROWS, CONSUMERS, BLOCK_N, WIDTH, STAGES, CAUSAL, PARTIAL, False, SOFTMAX_TURNS, SHARE_P, True, OWN_O,
        )  # fmt: skip
        if TIMELINE and INDEX == 0:
            note_time(end_ptr, number)
    if OWN_O:
        tma.store_wait(0)
    # The last turn that was given to consumer 0 has no taker yet.
    if INDEX == 0:
        wait_for_turn(0)


@gluon.jit
def produce_items(
    q_described, k_described, v_described, q_shared, k_shared, v_shared,
    q_full, q_empty, k_full, k_empty, v_full, v_empty,
    heads, group, section, q_tiles, items, seq_len_q, seq_len_kv,
    ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    LONGEST_FIRST: gl.constexpr,
):  # fmt: skip
    """All copies of one program. The first K tile of an item comes before its Q, for which there must be room."""
    program = gl.program_id(0)
    programs = gl.num_programs(0)
    stage = 0
    # The first time round nobody holds a tile: a fresh barrier lets through who waits for the phase before its first.
    phase = 1
    for n in tl.range(items_of(program, programs, items, LONGEST_FIRST), disable_licm=True):
        item = nth_item(n, program, programs, LONGEST_FIRST)
        batch, head, kv_head, tile, _ = place(item, heads, group, q_tiles, section, LONGEST_FIRST)
        n_tiles = tiles_seen(tile, seq_len_q, seq_len_kv, ROWS * CONSUMERS, BLOCK_N, CAUSAL)
        for i in range(n_tiles):
            row = (n_tiles - 1 - i) * BLOCK_N
            copy_to_stage(k_described, batch, kv_head, row, k_full, k_empty, k_shared, stage, phase)
            if i == 0:
                for c in gl.static_range(CONSUMERS):
                    mbarrier.wait(q_empty.index(c), n & 1 ^ 1)
                    q_row = (tile * CONSUMERS + c) * ROWS
                    copy_tile(q_described, batch, head, q_row, q_full.index(c), q_shared.index(c))
            copy_to_stage(v_described, batch, kv_head, row, v_full, v_empty, v_shared, stage, phase)
            stage += 1
            if stage == STAGES:
                stage = 0
                phase ^= 1


@gluon.jit(do_not_specialize=["heads", "group", "section", "q_tiles", "seq_len_q", "seq_len_kv", "items"])
def flash_ws_persistent(
    q_described, k_described, v_described, o_described, lse_ptr,
    heads, group, section, q_tiles, seq_len_q, seq_len_kv, sm_scale, scale, coarse, items,
    sm_ptr, start_ptr, end_ptr,
    ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, PARTIAL: gl.constexpr, LONGEST_FIRST: gl.constexpr, SOFTMAX_TURNS: gl.constexpr,
    SHARE_P: gl.constexpr, OWN_O: gl.constexpr, TIMELINE: gl.constexpr,
):  # fmt: skip
    """Flash attention forward for one Q tile of each wave; see the head of kernel.py."""
    q_shared = gl.allocate_shared_memory(q_described.dtype, [CONSUMERS, 1, 1, ROWS, WIDTH], q_described.layout)
    k_shared = gl.allocate_shared_memory(k_described.dtype, [STAGES, 1, 1, BLOCK_N, WIDTH], k_described.layout)
    v_shared = gl.allocate_shared_memory(v_described.dtype, [STAGES, 1, 1, BLOCK_N, WIDTH], v_described.layout)
    p_shared = q_shared
    if SHARE_P:
        p_layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
        p_shared = gl.allocate_shared_memory(q_described.dtype, [CONSUMERS, ROWS, BLOCK_N], p_layout)
    o_shared = q_shared
    if OWN_O:
        o_shared = gl.allocate_shared_memory(o_described.dtype, [CONSUMERS, 1, 1, ROWS, WIDTH], o_described.layout)
    q_full, q_empty = full_and_empty(CONSUMERS, 1)
    k_full, k_empty = full_and_empty(STAGES, CONSUMERS)
    v_full, v_empty = full_and_empty(STAGES, CONSUMERS)
    fence_async_shared()

    gl.warp_specialize(
        [
            (consume_items, (
                o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, o_shared,
                q_full, q_empty, k_full, k_empty, v_full, v_empty, heads, group, section, q_tiles, items,
                seq_len_q, seq_len_kv, sm_scale, scale, coarse, sm_ptr, start_ptr, end_ptr,
                FIRST, ROWS, CONSUMERS, BLOCK_N, WIDTH, STAGES, CAUSAL, PARTIAL, LONGEST_FIRST,
                SOFTMAX_TURNS, SHARE_P, OWN_O, TIMELINE,
            )),
            (consume_items, (
                o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, o_shared,
                q_full, q_empty, k_full, k_empty, v_full, v_empty, heads, group, section, q_tiles, items,
                seq_len_q, seq_len_kv, sm_scale, scale, coarse, sm_ptr, start_ptr, end_ptr,
                SECOND, ROWS, CONSUMERS, BLOCK_N, WIDTH, STAGES, CAUSAL, PARTIAL, LONGEST_FIRST,
                SOFTMAX_TURNS, SHARE_P, OWN_O, TIMELINE,
            )),
            (produce_items, (
                q_described, k_described, v_described, q_shared, k_shared, v_shared,
                q_full, q_empty, k_full, k_empty, v_full, v_empty, heads, group, section, q_tiles, items,
                seq_len_q, seq_len_kv, ROWS, CONSUMERS, BLOCK_N, STAGES, CAUSAL, LONGEST_FIRST,
            )),
        ],
        [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip
