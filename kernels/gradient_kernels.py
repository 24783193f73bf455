"""Backward: gradients of attention with P made anew from LSE, three launches, for every kernel that leaves O and LSE.

`delta` has a program for each of its tiles of queries. In `gradients` one program owns a tile of BLOCK_N keys of one
(batch, kv head) and loops over the query heads that share it, and over the Q tiles that see it. `dq` goes over the sums
of dQ element by element.

Grid      gradients: (batch · kv_heads · ⌈seq_len_kv / BLOCK_N⌉,), KV tiles fastest, so neighbours share Q and dO in L2;
          with a causal mask the first tile of a head is the longest
Tiles     k, v [BLOCK_N, HEAD_DIM] stay; q, do [BLOCK_M, HEAD_DIM] stream through shared memory, by tensor descriptor or
          by pointer; s, p, dp, ds [BLOCK_N, BLOCK_M] live in registers for one step
State     dk, dv [BLOCK_N, HEAD_DIM], float32, over all query heads of the group
HBM       requested: see kernels.streamed_q.backward_launches (equals schedule(); a test checks it)
Numerics  P = exp2(S · sm_scale · log2 e − LSE · log2 e), hidden scores 0; products accumulate in float32, with P and dS
          rounded to the inputs' dtype, float32 inputs use ieee dots; dQ is summed in float32 in whatever order programs
          come, so its last bits differ from run to run on a GPU; rows that attend to nothing have no part in a gradient
Paper     Dao 2023, FlashAttention-2, Algorithm 2
"""

import triton
import triton.language as tl

from kernels.gradient_tile import add_gradients, load_tile, seeing_tiles
from kernels.online_tile import load_rows, round_to_bfloat16


@triton.jit
def delta_kernel(
    o_ptr, do_ptr, delta_ptr, dq_sum_ptr,
    stride_ob, stride_oh, stride_os, stride_dob, stride_doh, stride_dos, heads, seq_len_q, head_dim,
    ROWS: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """delta = rowsum(dO ∘ O) of ROWS queries, and 0 in their sums of dQ."""
    tiles = tl.cdiv(seq_len_q, ROWS)
    bh = (tl.program_id(0) // tiles).to(tl.int64)
    batch = bh // heads
    head = bh % heads
    offs_m = tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_m = offs_m < seq_len_q
    mask_d = offs_d < head_dim
    o_rows = o_ptr + batch * stride_ob + head * stride_oh + offs_d[None, :]
    do_rows = do_ptr + batch * stride_dob + head * stride_doh + offs_d[None, :]
    o = load_rows(o_rows, offs_m, stride_os, seq_len_q, mask_d, True)
    do = load_rows(do_rows, offs_m, stride_dos, seq_len_q, mask_d, True)
    row = bh * seq_len_q + offs_m
    tl.store(delta_ptr + row, tl.sum(o * do, 1), mask=mask_m)
    place = row[:, None] * head_dim + offs_d[None, :]
    tl.store(dq_sum_ptr + place, tl.zeros([ROWS, HEAD_DIM], tl.float32), mask=mask_m[:, None] & mask_d[None, :])


@triton.jit
def gradients_kernel(
    q_from, k_from, v_from, do_from, dq_sum_into, dk_into, dv_into, lse_ptr, delta_ptr,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_dob, stride_doh, stride_dos,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, PARTIAL: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    DESCRIBED: tl.constexpr, REDUCED: tl.constexpr,
):  # fmt: skip
    """dK and dV of one KV tile, and its share of dQ; see the head of this file.

    With DESCRIBED all that is named _from and _into is a descriptor, else a pointer; the sums of dQ with REDUCED.
    """
    kv_tiles = tl.cdiv(seq_len_kv, BLOCK_N)
    batch_kv = tl.program_id(0) // kv_tiles
    start_n = tl.program_id(0) % kv_tiles
    # A descriptor takes places of 32 bits.
    batch = batch_kv // (heads // group)
    kv_head = batch_kv % (heads // group)
    offs_n = start_n * BLOCK_N + tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_d = offs_d < head_dim
    k = load_tile(
        k_from, stride_kb, stride_kh, stride_ks, batch, kv_head, start_n * BLOCK_N, seq_len_kv, head_dim,
        BLOCK_N, HEAD_DIM, UPCAST, DESCRIBED,
    )  # fmt: skip
    v = load_tile(
        v_from, stride_vb, stride_vh, stride_vs, batch, kv_head, start_n * BLOCK_N, seq_len_kv, head_dim,
        BLOCK_N, HEAD_DIM, UPCAST, DESCRIBED,
    )  # fmt: skip
    dk = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    dv = tl.zeros([BLOCK_N, HEAD_DIM], tl.float32)
    first, full_first, full_last, last = seeing_tiles(
        start_n, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW
    )
    for member in range(group):
        head = kv_head * group + member
        row = (batch * heads + head).to(tl.int64) * seq_len_q
        for stage in tl.static_range(3):  # before, inside and after the tiles that need no mask
            if stage == 1 or (PARTIAL and (WINDOW or stage == 0)):
                begin = first if stage == 0 else (full_first if stage == 1 else full_last)
                end = full_first if stage == 0 else (full_last if stage == 1 else last)
                for i in tl.range(begin, end):
                    offs_m = i * BLOCK_M + tl.arange(0, BLOCK_M)
                    mask_m = offs_m < seq_len_q
                    q = load_tile(
                        q_from, stride_qb, stride_qh, stride_qs, batch, head, i * BLOCK_M, seq_len_q, head_dim,
                        BLOCK_M, HEAD_DIM, UPCAST, DESCRIBED,
                    )  # fmt: skip
                    do = load_tile(
                        do_from, stride_dob, stride_doh, stride_dos, batch, head, i * BLOCK_M, seq_len_q, head_dim,
                        BLOCK_M, HEAD_DIM, UPCAST, DESCRIBED,
                    )  # fmt: skip
                    # Queries that do not exist have P = 0.
                    lse = tl.load(lse_ptr + row + offs_m, mask=mask_m, other=float("inf"))
                    delta = tl.load(delta_ptr + row + offs_m, mask=mask_m, other=0.0)
                    dk, dv, dq = add_gradients(
                        k, v, q, do, lse, delta, dk, dv, offs_m, offs_n, seq_len_q, seq_len_kv, window, sm_scale,
                        stage != 1, CAUSAL, WINDOW, GUARD_V, UPCAST,
                    )  # fmt: skip
                    if REDUCED:
                        dq_sum_into.atomic_add([batch, head, i * BLOCK_M, 0], dq.reshape(1, 1, BLOCK_M, HEAD_DIM))
                    else:
                        place = (row + offs_m)[:, None] * head_dim + offs_d[None, :]
                        mask = mask_m[:, None] & mask_d[None, :]
                        tl.atomic_add(dq_sum_into + place, dq, mask=mask, sem="relaxed")

    dk = dk * sm_scale
    if UPCAST:
        dk = round_to_bfloat16(dk)
        dv = round_to_bfloat16(dv)
    dk = dk.to(dk_into.dtype.element_ty if not DESCRIBED else dk_into.dtype)
    dv = dv.to(dv_into.dtype.element_ty if not DESCRIBED else dv_into.dtype)
    if DESCRIBED:
        dk_into.store([batch, kv_head, start_n * BLOCK_N, 0], dk.reshape(1, 1, BLOCK_N, HEAD_DIM))
        dv_into.store([batch, kv_head, start_n * BLOCK_N, 0], dv.reshape(1, 1, BLOCK_N, HEAD_DIM))
    else:
        key = batch_kv.to(tl.int64) * seq_len_kv + offs_n
        place = key[:, None] * head_dim + offs_d[None, :]
        mask = (offs_n < seq_len_kv)[:, None] & mask_d[None, :]
        tl.store(dk_into + place, dk, mask=mask)
        tl.store(dv_into + place, dv, mask=mask)


@triton.jit
def dq_kernel(dq_sum_ptr, dq_ptr, elements, sm_scale, BLOCK: tl.constexpr, UPCAST: tl.constexpr):
    """dQ from its sums: scaled, and rounded to the inputs' dtype."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    dq = tl.load(dq_sum_ptr + place, mask=place < elements, other=0.0) * sm_scale
    if UPCAST:
        dq = round_to_bfloat16(dq)
    tl.store(dq_ptr + place, dq.to(dq_ptr.dtype.element_ty), mask=place < elements)
