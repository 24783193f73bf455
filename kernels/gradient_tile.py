"""What a backward pass does with a Q tile beside the KV tile that stays, in Triton: P from LSE, and gradients."""

import triton
import triton.language as tl

from kernels.online_tile import LOG2_E, load_rows, round_to_bfloat16, sees


@triton.jit
def load_tile(
    source, stride_b, stride_h, stride_s, batch, head, start, count, head_dim,
    BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, UPCAST: tl.constexpr, DESCRIBED: tl.constexpr,
):  # fmt: skip
    """Rows [start, start + BLOCK) of one head, zeros from row `count` on; `source` is a descriptor, or a pointer."""
    if DESCRIBED:
        tile = source.load([batch, head, start, 0]).reshape(BLOCK, HEAD_DIM)
        tile = tile.to(tl.float32) if UPCAST else tile
    else:
        offs_d = tl.arange(0, HEAD_DIM)
        rows = source + batch.to(tl.int64) * stride_b + head.to(tl.int64) * stride_h + offs_d[None, :]
        tile = load_rows(rows, start + tl.arange(0, BLOCK), stride_s, count, offs_d < head_dim, UPCAST)
    return tile


@triton.jit
def seeing_tiles(
    start_n, seq_len_q, seq_len_kv, window,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """(first, full_first, full_last, last) of the Q tiles that see KV tile start_n: visible_tiles turned round.

    Those from full_first to full_last need no mask. A tile that reaches beyond the queries may be one of them: what
    does not exist has an LSE of +inf. Of a KV tile that reaches beyond the keys, none is.
    """
    # Queries that stand at the tile's first and last key.
    top = start_n * BLOCK_N - (seq_len_kv - seq_len_q)
    bottom = tl.minimum(start_n * BLOCK_N + BLOCK_N, seq_len_kv) - 1 - (seq_len_kv - seq_len_q)
    lo_top = 0
    lo_bottom = 0
    hi_top = seq_len_q
    hi_bottom = seq_len_q
    if CAUSAL:
        lo_top = tl.maximum(top, 0)
        lo_bottom = tl.maximum(bottom, 0)
    if WINDOW:
        lo_top = tl.maximum(lo_top, top - window + 1)
        lo_bottom = tl.maximum(lo_bottom, bottom - window + 1)
        hi_top = tl.minimum(seq_len_q, tl.maximum(top + window, 0))
        hi_bottom = tl.minimum(seq_len_q, tl.maximum(bottom + window, 0))
    first = lo_top // BLOCK_M
    last = tl.cdiv(hi_bottom, BLOCK_M)
    full_first = tl.minimum(tl.maximum(tl.cdiv(lo_bottom, BLOCK_M), first), last)
    full_first = tl.where((start_n + 1) * BLOCK_N > seq_len_kv, last, full_first)
    full_last = tl.where(hi_top == seq_len_q, last, hi_top // BLOCK_M)
    full_last = tl.maximum(full_last, full_first)
    return first, full_first, full_last, last


@triton.jit
def add_gradients(
    k, v, q, do, lse, delta, dk, dv, offs_m, offs_n, seq_len_q, seq_len_kv, window, sm_scale,
    MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """dk and dv [BLOCK_N, HEAD_DIM] with one Q tile's share, and the share dq [BLOCK_M, HEAD_DIM]; dk, dq unscaled.

    Scores are transposed, [BLOCK_N, BLOCK_M], so that P and dS are the left operands of dV and dK as they are. With
    GUARD what is not finite in K or Q counts as 0 beside hidden scores: who sees it has NaN in P already.
    """
    s = tl.dot(k, tl.trans(q), input_precision="ieee")
    p = tl.exp2(s * (sm_scale * LOG2_E) - (lse * LOG2_E)[None, :])
    seen = offs_n[:, None] < seq_len_kv
    if MASKED:
        seen = sees(offs_m[None, :], offs_n[:, None], seq_len_q, seq_len_kv, window, CAUSAL, WINDOW)
        p = tl.where(seen, p, 0.0)
    weights = round_to_bfloat16(p) if UPCAST else p
    dv = tl.dot(weights.to(do.dtype), do, dv, input_precision="ieee")
    dp = tl.dot(v, tl.trans(do), input_precision="ieee")
    ds = p * (dp - delta[None, :])
    if MASKED and GUARD:
        ds = tl.where(seen, ds, 0.0)
        k = tl.where(tl.abs(k) < float("inf"), k, 0.0).to(k.dtype)
        q = tl.where(tl.abs(q) < float("inf"), q, 0.0).to(q.dtype)
    ds = (round_to_bfloat16(ds) if UPCAST else ds).to(q.dtype)
    dk = tl.dot(ds, q, dk, input_precision="ieee")
    dq = tl.dot(tl.trans(ds), k, input_precision="ieee")
    return dk, dv, dq
