"""What the warp-specialised backward pass launches before and after its gradients, in Triton.

Before, delta; after, dQ from its sums. Both have a program for each BLOCK_M queries, a Q tile of the gradients. LSE and
delta of these stand side by side, [2, BLOCK_M], and the sums of dQ by tiles too: both reach beyond the last query, and
the sums beyond head_dim, so that whole tiles can be copied and added without a mask.
"""

import triton
import triton.language as tl

from kernels.online_tile import LOG2_E, load_rows


@triton.jit
def flash_ws_delta(
    o_ptr, do_ptr, lse_ptr, rows_ptr, sums_ptr,
    stride_ob, stride_oh, stride_os, stride_dob, stride_doh, stride_dos, heads, seq_len_q, head_dim,
    BLOCK_M: tl.constexpr, WIDTH: tl.constexpr,
):  # fmt: skip
    """Of BLOCK_M queries LSE · log2 e, +inf beyond the last, and delta = rowsum(dO ∘ O); 0 in their sums of dQ."""
    tiles = tl.cdiv(seq_len_q, BLOCK_M)
    place = tl.program_id(0).to(tl.int64)
    bh = place // tiles
    batch = bh // heads
    head = bh % heads
    offs = tl.arange(0, BLOCK_M)
    offs_m = tl.program_id(0) % tiles * BLOCK_M + offs
    offs_d = tl.arange(0, WIDTH)
    mask_d = offs_d < head_dim
    o_rows = o_ptr + batch * stride_ob + head * stride_oh + offs_d[None, :]
    do_rows = do_ptr + batch * stride_dob + head * stride_doh + offs_d[None, :]
    o = load_rows(o_rows, offs_m, stride_os, seq_len_q, mask_d, True)
    do = load_rows(do_rows, offs_m, stride_dos, seq_len_q, mask_d, True)
    lse = tl.load(lse_ptr + bh * seq_len_q + offs_m, mask=offs_m < seq_len_q, other=float("inf"))
    rows = rows_ptr + place * (2 * BLOCK_M) + offs
    tl.store(rows, lse * LOG2_E)
    tl.store(rows + BLOCK_M, tl.sum(o * do, 1))
    elements = tl.arange(0, BLOCK_M * WIDTH)
    tl.store(sums_ptr + place * (BLOCK_M * WIDTH) + elements, tl.zeros([BLOCK_M * WIDTH], tl.float32))


@triton.jit
def flash_ws_dq(
    sums_ptr, dq_ptr, seq_len_q, head_dim, sm_scale, BLOCK_M: tl.constexpr, WIDTH: tl.constexpr
):  # fmt: skip
    """dQ of BLOCK_M queries from its sums: scaled, and rounded to the inputs' dtype.

    Sums stand in the order in which a warp group's registers have them, see gradient_work.sum_place: first one half of
    the tile, [64, 64], by columns or by rows, then the other; of four side by side two are of one row, and two of the
    row 8 on.
    """
    tiles = tl.cdiv(seq_len_q, BLOCK_M)
    place = tl.program_id(0).to(tl.int64)
    offs = tl.arange(0, BLOCK_M)
    offs_m = tl.program_id(0) % tiles * BLOCK_M + offs
    offs_d = tl.arange(0, WIDTH)
    mask = (offs_m < seq_len_q)[:, None] & (offs_d < head_dim)[None, :]
    row = offs[:, None]
    col = offs_d[None, :]
    half = row // 64 * 4096 + col // 64 * 4096
    four = row % 64 // 16 * 128 + row % 8 * 16 + (col % 64 // 8 * 512 + col % 8 // 2 * 4)
    inside = half + four + row % 16 // 8 * 2 + col % 2
    dq = tl.load(sums_ptr + place * (BLOCK_M * WIDTH) + inside, mask=mask, other=0.0) * sm_scale
    into = (place // tiles * seq_len_q + offs_m)[:, None] * head_dim + offs_d[None, :]
    tl.store(dq_ptr + into, dq.to(dq_ptr.dtype.element_ty), mask=mask)
