"""What every kernel with an online softmax does with one tile, in Triton: load, score, mask, update, record."""

import triton
import triton.language as tl

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)


@triton.jit
def round_to_bfloat16(x):
    """float32 rounded to the nearest bfloat16, ties to even; the interpreter's own cast cuts the low bits off."""
    bits = x.to(tl.uint32, bitcast=True)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def load_rows(rows, offs, stride, count, mask_d, UPCAST: tl.constexpr):
    """Rows `offs` of a matrix whose row 0 is at the pointers `rows` [1, HEAD_DIM]; zeros from row `count` on."""
    mask = (offs < count)[:, None] & mask_d[None, :]
    tile = tl.load(rows + offs.to(tl.int64)[:, None] * stride, mask=mask, other=0.0)
    return tile.to(tl.float32) if UPCAST else tile


@triton.jit
def sees(query, key, seq_len_q, seq_len_kv, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Whether a query sees a key, aligned bottom-right; places that broadcast. Without a mask it sees all there are."""
    position = query + (seq_len_kv - seq_len_q)
    seen = key < seq_len_kv
    if CAUSAL:
        seen = seen & (key <= position)
    if WINDOW:
        seen = seen & (key > position - window) & (key < position + window)
    return seen


@triton.jit
def seen_keys(offs_m, offs_n, seq_len_q, seq_len_kv, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Which keys each query sees, [BLOCK_M, BLOCK_N], or [1, BLOCK_N] without a mask."""
    return sees(offs_m[:, None], offs_n[None, :], seq_len_q, seq_len_kv, window, CAUSAL, WINDOW)


@triton.jit
def add_values(p, v, acc, seen, GUARD_V: tl.constexpr, UPCAST: tl.constexpr):
    """acc + P V; with GUARD_V a non-finite value reaches only the rows that see it, since 0 · NaN is NaN."""
    if UPCAST:
        p = round_to_bfloat16(p)
    p = p.to(v.dtype)
    if GUARD_V:
        finite = tl.abs(v) < float("inf")
        sees_bad = tl.dot(seen.to(v.dtype), (1 - finite.to(tl.int32)).to(v.dtype), input_precision="ieee") > 0.5
        clean = tl.dot(p, tl.where(finite, v, 0.0).to(v.dtype), input_precision="ieee")
        return acc + tl.where(sees_bad, tl.dot(p, v, input_precision="ieee"), clean)
    return tl.dot(p, v, acc, input_precision="ieee")


@triton.jit
def weigh_tile(
    q, k, offs_m, offs_n, m_i, l_i, seq_len_q, seq_len_kv, window, sm_scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """Scores, mask and online softmax of one KV tile. Returns the new m_i and l_i, then P, alpha, scores, seen keys.

    The scores are those of Q Kᵀ before sm_scale, −inf where masked.
    """
    s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N]
    seen = offs_n[None, :] < seq_len_kv
    if MASKED:
        seen = seen_keys(offs_m, offs_n, seq_len_q, seq_len_kv, window, CAUSAL, WINDOW)
        s = tl.where(seen, s, float("-inf"))

    m_new = tl.maximum(m_i, tl.max(s, 1))
    # A row that has seen nothing yet has m = −inf; −inf − (−inf) would be NaN.
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    scale = sm_scale * LOG2_E
    # Scaling after the subtraction keeps exp2's argument at or below 0 for scores of any magnitude.
    p = tl.exp2((s - m_safe[:, None]) * scale)
    alpha = tl.exp2((m_i - m_safe) * scale)
    return m_new, l_i * alpha + tl.sum(p, 1), p, alpha, s, seen


@triton.jit
def attend_tile(
    q, k, v_rows, stride_vs, offs_m, offs_n, m_i, l_i, acc, mask_d, seq_len_q, seq_len_kv, window, sm_scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """One KV tile: weigh, rescale, accumulate. Returns the new m_i, l_i, acc, and alpha and the scores.

    V is loaded once P is there.
    """
    m_i, l_i, p, alpha, s, seen = weigh_tile(
        q, k, offs_m, offs_n, m_i, l_i, seq_len_q, seq_len_kv, window, sm_scale, MASKED, CAUSAL, WINDOW
    )
    acc = acc * alpha[:, None]
    v = load_rows(v_rows, offs_n, stride_vs, seq_len_kv, mask_d, UPCAST)  # [BLOCK_N, HEAD_DIM]
    acc = add_values(p, v, acc, seen, MASKED and GUARD_V, UPCAST)
    return m_i, l_i, acc, alpha, s


@triton.jit
def attend_held_tile(
    q, k, v, offs_m, offs_n, m_i, l_i, acc, seq_len_q, seq_len_kv, window, sm_scale,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """As attend_tile, masked, with a V tile that is on chip already."""
    m_i, l_i, p, alpha, s, seen = weigh_tile(
        q, k, offs_m, offs_n, m_i, l_i, seq_len_q, seq_len_kv, window, sm_scale, True, CAUSAL, WINDOW
    )
    acc = add_values(p, v, acc * alpha[:, None], seen, GUARD_V, UPCAST)
    return m_i, l_i, acc, alpha, s


@triton.jit
def visible_tiles(
    start_m, seq_len_q, seq_len_kv, window,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """(first, full_first, full_last, last) of Q tile start_m, as TileGrid says the same in numpy."""
    # Keys seen by the tile's first and last query bound what the tile sees.
    top = start_m * BLOCK_M + seq_len_kv - seq_len_q
    bottom = tl.minimum(start_m * BLOCK_M + BLOCK_M, seq_len_q) - 1 + seq_len_kv - seq_len_q
    lo_top = 0
    lo_bottom = 0
    hi_top = seq_len_kv
    hi_bottom = seq_len_kv
    if CAUSAL:
        hi_top = tl.maximum(top + 1, 0)
        hi_bottom = tl.maximum(bottom + 1, 0)
    if WINDOW:
        lo_top = tl.maximum(top - window + 1, 0)
        lo_bottom = tl.maximum(bottom - window + 1, 0)
        hi_top = tl.minimum(hi_top, tl.maximum(top + window, 0))
        hi_bottom = tl.minimum(hi_bottom, tl.maximum(bottom + window, 0))
    first = lo_top // BLOCK_N
    last = tl.cdiv(hi_bottom, BLOCK_N)
    full_first = tl.minimum(tl.maximum(tl.cdiv(lo_bottom, BLOCK_N), first), last)
    full_last = tl.minimum(tl.maximum(hi_top // BLOCK_N, full_first), last)
    return first, full_first, full_last, last


@triton.jit
def divided(acc, m_i, l_i, sm_scale, UPCAST: tl.constexpr):
    """(O = acc / l, LSE = m · sm_scale + ln l); rows that saw nothing give 0 and −inf."""
    blind = l_i == 0.0
    o = tl.where(blind[:, None], 0.0, acc / tl.where(blind, 1.0, l_i)[:, None])
    lse = tl.where(blind, float("-inf"), m_i * sm_scale + tl.log(tl.where(blind, 1.0, l_i)))
    return round_to_bfloat16(o) if UPCAST else o, lse


@triton.jit
def load_state(m_ptr, l_ptr, acc_ptr, row, mask_m, offs_d, mask_d, head_dim):
    """(m_i, l_i, acc) of the rows `row` (int64) of float32 tensors in HBM; where masked, those of an unseen row."""
    m_i = tl.load(m_ptr + row, mask=mask_m, other=float("-inf"))
    l_i = tl.load(l_ptr + row, mask=mask_m, other=0.0)
    place = row[:, None] * head_dim + offs_d[None, :]
    return m_i, l_i, tl.load(acc_ptr + place, mask=mask_m[:, None] & mask_d[None, :], other=0.0)


@triton.jit
def store_state(m_ptr, l_ptr, acc_ptr, row, mask_m, offs_d, mask_d, head_dim, m_i, l_i, acc):
    """Write m_i, l_i and acc, as they are, to the rows `row` (int64) of float32 tensors in HBM."""
    tl.store(m_ptr + row, m_i, mask=mask_m)
    tl.store(l_ptr + row, l_i, mask=mask_m)
    tl.store(acc_ptr + row[:, None] * head_dim + offs_d[None, :], acc, mask=mask_m[:, None] & mask_d[None, :])


@triton.jit
def record_state(
    record, offs_m, offs_n, offs_d, mask_d, j, m_i, l_i, alpha, acc, s, seq_len_kv, head_dim, sm_scale,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Store m, l, alpha, |acc| and the scores after KV tile j, and acc for the traced Q tile.

    See StateTrace; each kind is kept for its own rows. `record` holds the pointers and those rows.
    """
    (
        m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, scores_ptr, row_start, row_stop,
        acc_tile, acc_start, acc_stride, score_start, score_stop,
    ) = record  # fmt: skip
    mask = (offs_m >= row_start) & (offs_m < row_stop)
    offset = (offs_m - row_start).to(tl.int64) * tl.cdiv(seq_len_kv, BLOCK_N) + j
    tl.store(m_ptr + offset, m_i * sm_scale, mask=mask)
    tl.store(l_ptr + offset, l_i, mask=mask)
    tl.store(alpha_ptr + offset, alpha, mask=mask)
    tl.store(norm_ptr + offset, tl.sqrt(tl.sum(acc * acc, 1)), mask=mask)
    rows = offs_m - acc_tile * BLOCK_M
    chosen = (rows >= 0) & (rows < BLOCK_M) & (j % acc_stride == acc_start)
    slot = ((j // acc_stride) * BLOCK_M + rows).to(tl.int64) * head_dim
    tl.store(acc_ptr + slot[:, None] + offs_d[None, :], acc, mask=chosen[:, None] & mask_d[None, :])
    scored = (offs_m >= score_start) & (offs_m < score_stop)
    place = (offs_m - score_start).to(tl.int64)[:, None] * seq_len_kv + offs_n[None, :]
    tl.store(scores_ptr + place, s * sm_scale, mask=scored[:, None] & (offs_n < seq_len_kv)[None, :])
