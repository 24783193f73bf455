"""Flash with K/V outside: FlashAttention-1's loop order, one launch, forward pass.

One program owns a whole (batch, head) and loops over its KV tiles; for each it loops over the Q tiles that see it.

Grid      (batch · heads,)
Tiles     k, v [BLOCK_N, HEAD_DIM] stay while q [BLOCK_M, HEAD_DIM] streams past them; s, p [BLOCK_M, BLOCK_N] live in
          registers for one step
State     m_i, l_i [BLOCK_M], acc [BLOCK_M, HEAD_DIM], float32: loaded and stored at every step, since every Q tile is
          left and met again; set to −inf, 0, 0 before the first step, divided after the last one
HBM       requested read: K + V of each head where any query sees them + Q, acc, m and l for each visited tile + acc, m
          and l once more; written: acc, m and l for each visited tile and once before + O + LSE
          (equals schedule(); a test checks it)
L2↔SM     no bound is claimed
Numerics  as flash; acc is kept unnormalised where the paper keeps O = acc / l, so O is rounded to its dtype once; m is
          kept before sm_scale
Paper     Dao et al. 2022, FlashAttention, Algorithm 1
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

from kernels.launching import (
    TritonLaunch,
    fitting_stages,
    meta_tensors,
    outputs,
    problem_arguments,
    require_rows,
    strides,
    tile_constants,
    timeline_arguments,
    trace_arguments,
)
from kernels.online_tile import (
    attend_held_tile,
    divided,
    load_rows,
    load_state,
    record_state,
    store_state,
    visible_tiles,
)
from kernels.problem import AttentionProblem, TileConfig
from kernels.program import batch_and_heads, note_end, note_start
from kernels.run import LaunchHook, Output, StateTrace, Timeline


@triton.jit
def seeing_tiles(
    j, seq_len_q, seq_len_kv, window,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    """(first, last) of the Q tiles that see KV tile j, as ColumnWalk says the same in numpy."""
    # Queries are as far from a key as masks count once they are moved by this.
    shift = seq_len_q - seq_len_kv
    first = 0
    last = tl.cdiv(seq_len_q, BLOCK_M)
    # Of a Q tile the last query sees furthest ahead, and the first one furthest back.
    if CAUSAL:
        first = tl.maximum(j * BLOCK_N + shift, 0) // BLOCK_M
    elif WINDOW:
        first = tl.maximum(j * BLOCK_N + shift - window + 1, 0) // BLOCK_M
    if WINDOW:
        last = tl.minimum(tl.cdiv(tl.maximum((j + 1) * BLOCK_N + shift + window - 1, 0), BLOCK_M), last)
    return first, last


@triton.jit
def flash_kv_outer_forward(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr, m_ptr, l_ptr, acc_ptr,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale,
    traced_m, traced_l, traced_alpha, traced_norm, traced_acc, traced_scores, trace_bh, row_start, row_stop,
    acc_tile, acc_start, acc_stride, score_start, score_stop,
    sm_ptr, start_ptr, end_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    TRACE: tl.constexpr, TIMELINE: tl.constexpr,
):  # fmt: skip
    """Attention forward for one (batch, head), K and V outside; see the head of this file."""
    bh = tl.program_id(0)
    note_start(start_ptr, bh, TIMELINE)
    q_tiles = tl.cdiv(seq_len_q, BLOCK_M)
    kv_tiles = tl.cdiv(seq_len_kv, BLOCK_N)
    batch, head, kv_head = batch_and_heads(bh, heads, group)
    first_row = bh.to(tl.int64) * seq_len_q

    record = (
        traced_m, traced_l, traced_alpha, traced_norm, traced_acc, traced_scores, row_start, row_stop,
        acc_tile, acc_start, acc_stride, score_start, score_stop,
    )  # fmt: skip
    records = False
    if TRACE:
        records = bh == trace_bh
    offs_d = tl.arange(0, HEAD_DIM)
    mask_d = offs_d < head_dim
    q_rows = q_ptr + batch * stride_qb + head * stride_qh + offs_d[None, :]
    k_rows = k_ptr + batch * stride_kb + kv_head * stride_kh + offs_d[None, :]
    v_rows = v_ptr + batch * stride_vb + kv_head * stride_vh + offs_d[None, :]

    for i in tl.range(0, q_tiles):
        offs_m = i * BLOCK_M + tl.arange(0, BLOCK_M)
        store_state(
            m_ptr, l_ptr, acc_ptr, first_row + offs_m, offs_m < seq_len_q, offs_d, mask_d, head_dim,
            tl.full([BLOCK_M], float("-inf"), tl.float32), tl.zeros([BLOCK_M], tl.float32),
            tl.zeros([BLOCK_M, HEAD_DIM], tl.float32),
        )  # fmt: skip

    # The first query looks back furthest, and the last one sees the last key.
    begin, _, _, _ = visible_tiles(0, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW)
    for j in tl.range(begin, kv_tiles):
        # What a thread loads here, other threads of its CTA have stored for the KV tile before.
        tl.debug_barrier()
        offs_n = j * BLOCK_N + tl.arange(0, BLOCK_N)
        k = load_rows(k_rows, offs_n, stride_ks, seq_len_kv, mask_d, UPCAST)  # [BLOCK_N, HEAD_DIM]
        v = load_rows(v_rows, offs_n, stride_vs, seq_len_kv, mask_d, UPCAST)  # [BLOCK_N, HEAD_DIM]
        first, last = seeing_tiles(j, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW)
        for i in tl.range(first, last):
            offs_m = i * BLOCK_M + tl.arange(0, BLOCK_M)
            row, mask_m = first_row + offs_m, offs_m < seq_len_q
            q = load_rows(q_rows, offs_m, stride_qs, seq_len_q, mask_d, UPCAST)  # [BLOCK_M, HEAD_DIM]
            m_i, l_i, acc = load_state(m_ptr, l_ptr, acc_ptr, row, mask_m, offs_d, mask_d, head_dim)
            m_i, l_i, acc, alpha, s = attend_held_tile(
                q, k, v, offs_m, offs_n, m_i, l_i, acc, seq_len_q, seq_len_kv, window, sm_scale,
                CAUSAL, WINDOW, GUARD_V, UPCAST,
            )  # fmt: skip
            if records:
                record_state(
                    record, offs_m, offs_n, offs_d, mask_d, j, m_i, l_i, alpha, acc, s,
                    seq_len_kv, head_dim, sm_scale, BLOCK_M, BLOCK_N,
                )  # fmt: skip
            store_state(m_ptr, l_ptr, acc_ptr, row, mask_m, offs_d, mask_d, head_dim, m_i, l_i, acc)

    # As above: the last KV tile's stores, seen by all threads.
    tl.debug_barrier()
    o_rows = o_ptr + batch * stride_ob + head * stride_oh + offs_d[None, :]
    for i in tl.range(0, q_tiles):
        offs_m = i * BLOCK_M + tl.arange(0, BLOCK_M)
        row, mask_m = first_row + offs_m, offs_m < seq_len_q
        m_i, l_i, acc = load_state(m_ptr, l_ptr, acc_ptr, row, mask_m, offs_d, mask_d, head_dim)
        o, lse = divided(acc, m_i, l_i, sm_scale, UPCAST)
        place = o_rows + offs_m.to(tl.int64)[:, None] * stride_os
        tl.store(place, o.to(o_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_d[None, :])
        tl.store(lse_ptr + row, lse, mask=mask_m)
    note_end(sm_ptr, end_ptr, bh, TIMELINE)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    launch: LaunchHook = nullcontext,
    finite: bool = False,
    prepared: object = None,
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> Output:
    """O and LSE of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem, head_dim contiguous."""
    o, lse = outputs(q)
    tensors = (q, k, v, o, lse, *states(problem, q.device))
    arguments, constants = launch_arguments(tensors, problem, tile, finite, trace, timeline)
    with launch("flash_kv_outer"):
        flash_kv_outer_forward[grid(problem)](*arguments, **constants)
    return Output(o, lse)


def states(problem: AttentionProblem, device: torch.device | str) -> tuple[torch.Tensor, ...]:
    """m and l [batch, heads, seq_len_q] and acc [batch, heads, seq_len_q, head_dim], float32, unwritten."""
    shape = (problem.batch, problem.heads, problem.seq_len_q)
    m, l = (torch.empty(shape, dtype=torch.float32, device=device) for _ in range(2))  # noqa: E741
    return m, l, torch.empty((*shape, problem.head_dim), dtype=torch.float32, device=device)


def grid(problem: AttentionProblem) -> tuple[int]:
    """One program for each (batch, head)."""
    return (problem.batch * problem.heads,)


def launches(problem: AttentionProblem, tile: TileConfig) -> tuple[TritonLaunch, ...]:
    """What forward launches, with tensors that have no memory."""
    tensors = (*meta_tensors(problem), *states(problem, "meta"))
    arguments, constants = launch_arguments(tensors, problem, tile, finite=True)
    return (TritonLaunch("flash_kv_outer", flash_kv_outer_forward, arguments, constants, grid(problem)),)


def launch_arguments(
    tensors: tuple[torch.Tensor, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    finite: bool = False,
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What the kernel is launched or compiled with, for q, k, v, o, lse and states(): arguments and constexprs."""
    require_rows(*tensors[:3])
    q, k, v, o, lse = tensors[:5]
    arguments = (
        *tensors, *strides(q, k, v, o),
        *problem_arguments(problem), *trace_arguments(problem, lse, trace),
        *timeline_arguments(lse, timeline),
    )  # fmt: skip
    constants: dict[str, object] = {
        **tile_constants(problem, tile, finite),
        "TRACE": trace is not None,
        "TIMELINE": timeline is not None,
    }
    if trace:
        constants["num_stages"] = fitting_stages(flash_kv_outer_forward, arguments, constants)
    return arguments, constants
