"""A kernel of one's own in plain Triton: softmax in two passes over K, so that nothing is ever rescaled.

    python -m profiler run --kernel examples.own_triton:two_pass --kernel flash --seq-len 100 --causal

Bytescope calls two_pass(q, k, v, causal) and asks nothing else of this file.
"""

import torch
import triton
import triton.language as tl

BLOCK_M, BLOCK_N = 32, 32


@triton.jit
def load_rows(ptr, first, rows, limit, head_dim, HEAD_DIM: tl.constexpr):
    """Rows of one head, `first` being its row 0; zeros beyond `limit` and head_dim."""
    columns = tl.arange(0, HEAD_DIM)
    inside = (rows < limit)[:, None] & (columns < head_dim)[None, :]
    return tl.load(ptr + (first + rows)[:, None] * head_dim + columns[None, :], inside, 0.0)


@triton.jit
def scores(q, k, positions, keys, seq_len_kv, sm_scale, CAUSAL: tl.constexpr):
    """Q Kᵀ · sm_scale [BLOCK_M, BLOCK_N], −inf where a key is hidden."""
    s = tl.dot(q, tl.trans(k), input_precision="ieee") * sm_scale
    hidden = (keys >= seq_len_kv)[None, :]
    if CAUSAL:
        hidden = hidden | (keys[None, :] > positions[:, None])
    return tl.where(hidden, float("-inf"), s)


@triton.jit
def two_pass_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, group, seq_len_q, seq_len_kv, head_dim, sm_scale,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """One program owns BLOCK_M queries of one (batch, head)."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_key = head // group * seq_len_kv
    positions = rows + seq_len_kv - seq_len_q  # of the queries among the keys: masks are aligned bottom-right
    end = tl.minimum(seq_len_kv, tl.max(positions) + 1) if CAUSAL else seq_len_kv
    q = load_rows(q_ptr, head * seq_len_q, rows, seq_len_q, head_dim, HEAD_DIM)

    m = tl.full([BLOCK_M], float("-inf"), tl.float32)
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, first_key, keys, seq_len_kv, head_dim, HEAD_DIM)
        m = tl.maximum(m, tl.max(scores(q, k, positions, keys, seq_len_kv, sm_scale, CAUSAL), 1))
    m = tl.where(m > float("-inf"), m, 0.0)  # a query that sees no key

    l = tl.zeros([BLOCK_M], tl.float32)  # noqa: E741
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, first_key, keys, seq_len_kv, head_dim, HEAD_DIM)
        v = load_rows(v_ptr, first_key, keys, seq_len_kv, head_dim, HEAD_DIM)
        p = tl.exp(scores(q, k, positions, keys, seq_len_kv, sm_scale, CAUSAL) - m[:, None])
        l += tl.sum(p, 1)  # noqa: E741
        acc += tl.dot(p.to(v.dtype), v, input_precision="ieee")

    o = acc / tl.where(l > 0.0, l, 1.0)[:, None]
    columns = tl.arange(0, HEAD_DIM)
    inside = (rows < seq_len_q)[:, None] & (columns < head_dim)[None, :]
    o_ptrs = o_ptr + (head * seq_len_q + rows)[:, None] * head_dim + columns[None, :]
    tl.store(o_ptrs, o.to(q.dtype), inside)


def two_pass(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    """O [batch, heads, seq_len_q, head_dim]; k and v may have fewer heads."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, heads, seq_len_q, head_dim = q.shape
    o = torch.empty_like(q)
    two_pass_kernel[(triton.cdiv(seq_len_q, BLOCK_M), batch * heads)](
        q, k, v, o, heads // k.shape[1], seq_len_q, k.shape[2], head_dim, head_dim**-0.5,
        causal, BLOCK_M, BLOCK_N, max(16, triton.next_power_of_2(head_dim)),
    )  # fmt: skip
    return o
