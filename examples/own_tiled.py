"""A kernel of one's own that offers its tile and its schedule, so that the Tile schedule page can step through it.

    python -m profiler run --kernel examples.own_tiled:streamed --seq-len 256 --block-m 32 --block-n 64

BLOCK_M, BLOCK_N, num_warps and num_stages come from the form or the command line because the function takes them.
`schedule` names the kernel of Bytescope's that asks for the same tiles in the same order.
"""

import torch
import triton
import triton.language as tl

from examples.own_triton import load_rows, scores


@triton.jit
def streamed_kernel(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, group, seq_len_q, seq_len_kv, head_dim, sm_scale,
    CAUSAL: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
):  # fmt: skip
    """One program owns BLOCK_M queries of one (batch, head), and K and V stream past them."""
    head = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    first_key = head // group * seq_len_kv
    positions = rows + seq_len_kv - seq_len_q
    last = tl.minimum(tl.program_id(0) * BLOCK_M + BLOCK_M, seq_len_q) + seq_len_kv - seq_len_q
    end = tl.minimum(seq_len_kv, last) if CAUSAL else seq_len_kv
    q = load_rows(q_ptr, head * seq_len_q, rows, seq_len_q, head_dim, HEAD_DIM)

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for start in range(0, end, BLOCK_N):
        keys = start + tl.arange(0, BLOCK_N)
        k = load_rows(k_ptr, first_key, keys, seq_len_kv, head_dim, HEAD_DIM)
        s = scores(q, k, positions, keys, seq_len_kv, sm_scale, CAUSAL)
        m_new = tl.maximum(m_i, tl.max(s, 1))
        shift = tl.where(m_new > float("-inf"), m_new, 0.0)
        alpha, p = tl.exp(m_i - shift), tl.exp(s - shift[:, None])
        v = load_rows(v_ptr, first_key, keys, seq_len_kv, head_dim, HEAD_DIM)
        l_i = l_i * alpha + tl.sum(p, 1)
        acc = acc * alpha[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        m_i = m_new

    o = acc / tl.where(l_i > 0.0, l_i, 1.0)[:, None]
    columns = tl.arange(0, HEAD_DIM)
    is_query = rows < seq_len_q
    o_ptrs = o_ptr + (head * seq_len_q + rows)[:, None] * head_dim + columns[None, :]
    tl.store(o_ptrs, o.to(q.dtype), is_query[:, None] & (columns < head_dim)[None, :])
    lse = m_i + tl.log(tl.where(l_i > 0.0, l_i, 1.0))
    tl.store(lse_ptr + head * seq_len_q + rows, lse, is_query)


def streamed(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    BLOCK_M: int = 64,
    BLOCK_N: int = 64,
    num_warps: int = 4,
    num_stages: int = 2,
) -> torch.Tensor:
    """O [batch, heads, seq_len_q, head_dim]; k and v may have fewer heads."""
    q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
    batch, heads, seq_len_q, head_dim = q.shape
    o, lse = torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    streamed_kernel[(triton.cdiv(seq_len_q, BLOCK_M), batch * heads)](
        q, k, v, o, lse, heads // k.shape[1], seq_len_q, k.shape[2], head_dim, head_dim**-0.5,
        causal, BLOCK_M, BLOCK_N, max(16, triton.next_power_of_2(head_dim)),
        num_warps=num_warps, num_stages=num_stages,
    )  # fmt: skip
    return o


streamed.schedule = "flash"
