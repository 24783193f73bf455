"""Row streaming: exact attention one query at a time, a whole row of scores on chip, forward pass.

One program owns one query of one (batch, head) and goes over the KV tiles it sees twice: all of K, then all of V.

Grid      (batch · heads · seq_len_q,), queries fastest, so neighbours share K and V in L2
Tiles     q [HEAD_DIM] stays; k, v [BLOCK_N, HEAD_DIM] stream through registers; s [CHUNKS, BLOCK_N], the whole row of
          scores, stays in registers, and P takes its place
State     none while K streams: the softmax sees the whole row; acc [HEAD_DIM], float32, while V streams
HBM       requested read: Q + Σ over queries of the visited K and V rows; written: O + LSE
          (equals schedule(); a test checks it)
L2↔SM     at most what is requested, in whole sectors, one for each query's LSE; at least the compulsory bytes; spills
          would come on top (l2_sm_bounds())
Numerics  base-2 exponentials of (s − m) · sm_scale · log2 e; products in float32 without tensor cores, P rounded to the
          inputs' dtype before it meets V; masks are −inf; ragged edges and head_dim are padded with masked zeros; rows
          that attend to nothing give O = 0 and LSE = −inf
Paper     none: the step before tiling, softmax(q Kᵀ) V for one row (Dao et al. 2022, Algorithm 0, a row at a time)
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

from kernels.launching import (
    TritonLaunch,
    mask_constants,
    meta_tensors,
    outputs,
    problem_arguments,
    require_rows,
    strides,
    timeline_arguments,
)
from kernels.online_tile import LOG2_E, load_rows, round_to_bfloat16, visible_tiles
from kernels.problem import AttentionProblem, TileConfig
from kernels.program import batch_and_heads, note_end, note_start
from kernels.row_streaming.schedule import chunks
from kernels.run import LaunchHook, Output, Timeline


@triton.jit
def row_streaming_forward(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale,
    sm_ptr, start_ptr, end_ptr,
    CHUNKS: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr, TIMELINE: tl.constexpr,
):  # fmt: skip
    """Attention forward for one query; see the head of this file."""
    program = tl.program_id(0)
    note_start(start_ptr, program, TIMELINE)
    bh = program // seq_len_q
    query = program % seq_len_q
    batch, head, kv_head = batch_and_heads(bh, heads, group)

    offs_m = query + tl.arange(0, 1)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_d = offs_d < head_dim
    q_rows = q_ptr + batch * stride_qb + head * stride_qh + offs_d[None, :]
    k_rows = k_ptr + batch * stride_kb + kv_head * stride_kh + offs_d[None, :]
    v_rows = v_ptr + batch * stride_vb + kv_head * stride_vh + offs_d[None, :]
    q = load_rows(q_rows, offs_m, stride_qs, seq_len_q, mask_d, UPCAST).to(tl.float32)  # [1, HEAD_DIM]
    first, _, _, last = visible_tiles(query, seq_len_q, seq_len_kv, window, 1, BLOCK_N, CAUSAL, WINDOW)

    chunk = tl.arange(0, CHUNKS)[:, None]
    s = tl.full([CHUNKS, BLOCK_N], float("-inf"), tl.float32)  # the whole row
    for j in tl.range(first, last):
        offs_n = j * BLOCK_N + tl.arange(0, BLOCK_N)
        k = load_rows(k_rows, offs_n, stride_ks, seq_len_kv, mask_d, UPCAST).to(tl.float32)  # [BLOCK_N, HEAD_DIM]
        scores = tl.sum(q * k, 1)
        seen = seen_by_one(query, offs_n, seq_len_q, seq_len_kv, window, CAUSAL, WINDOW)
        s = tl.where(chunk == j, tl.where(seen, scores, float("-inf"))[None, :], s)

    m = tl.max(tl.max(s, 1), 0)
    # A row that sees nothing has m = −inf; −inf − (−inf) would be NaN.
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    # Scaling after the subtraction keeps exp2's argument at or below 0 for scores of any magnitude.
    p = tl.exp2((s - m_safe) * (sm_scale * LOG2_E))
    l = tl.sum(tl.sum(p, 1), 0)  # noqa: E741 - the name in the papers

    acc = tl.zeros([HEAD_DIM], tl.float32)
    for j in tl.range(first, last):
        offs_n = j * BLOCK_N + tl.arange(0, BLOCK_N)
        v = load_rows(v_rows, offs_n, stride_vs, seq_len_kv, mask_d, UPCAST)  # [BLOCK_N, HEAD_DIM]
        p_j = tl.sum(tl.where(chunk == j, p, 0.0), 0)
        if UPCAST:
            p_j = round_to_bfloat16(p_j)
        weighted = p_j.to(v.dtype).to(tl.float32)[:, None] * v.to(tl.float32)
        if GUARD_V:
            # 0 · NaN is NaN.
            seen = seen_by_one(query, offs_n, seq_len_q, seq_len_kv, window, CAUSAL, WINDOW)
            weighted = tl.where(seen[:, None], weighted, 0.0)
        acc += tl.sum(weighted, 0)

    blind = l == 0.0
    total = tl.where(blind, 1.0, l)
    o = tl.where(blind, 0.0, acc / total)
    if UPCAST:
        o = round_to_bfloat16(o)
    o_row = o_ptr + batch * stride_ob + head * stride_oh + query.to(tl.int64) * stride_os + offs_d
    tl.store(o_row, o.to(o_ptr.dtype.element_ty), mask=mask_d)
    tl.store(lse_ptr + program, tl.where(blind, float("-inf"), m * sm_scale + tl.log(total)))
    note_end(sm_ptr, end_ptr, program, TIMELINE)


@triton.jit
def seen_by_one(query, offs_n, seq_len_q, seq_len_kv, window, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Which keys one query sees, [BLOCK_N]; aligned bottom-right."""
    position = query + (seq_len_kv - seq_len_q)
    seen = offs_n < seq_len_kv
    if CAUSAL:
        seen = seen & (offs_n <= position)
    if WINDOW:
        seen = seen & (offs_n > position - window) & (offs_n < position + window)
    return seen


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    launch: LaunchHook = nullcontext,
    finite: bool = False,
    prepared: object = None,
    timeline: Timeline | None = None,
) -> Output:
    """O and LSE of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem, head_dim contiguous."""
    o, lse = outputs(q)
    arguments, constants = launch_arguments((q, k, v, o, lse), problem, tile, finite, timeline)
    with launch("row_streaming"):
        row_streaming_forward[grid(problem)](*arguments, **constants)
    return Output(o, lse)


def grid(problem: AttentionProblem) -> tuple[int]:
    """One program for each query of each (batch, head)."""
    return (problem.batch * problem.heads * problem.seq_len_q,)


def launches(problem: AttentionProblem, tile: TileConfig) -> tuple[TritonLaunch, ...]:
    """What forward launches, with tensors that have no memory."""
    arguments, constants = launch_arguments(meta_tensors(problem), problem, tile, finite=True)
    return (TritonLaunch("row_streaming", row_streaming_forward, arguments, constants, grid(problem)),)


def launch_arguments(
    tensors: tuple[torch.Tensor, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    finite: bool = False,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What row_streaming_forward is launched or compiled with, for q, k, v, o, lse: arguments and constexprs."""
    require_rows(*tensors[:3])
    q, k, v, o, lse = tensors
    arguments = (
        *tensors, *strides(q, k, v, o),
        *problem_arguments(problem),
        *timeline_arguments(lse, timeline),
    )  # fmt: skip
    constants: dict[str, object] = {
        "CHUNKS": chunks(problem, tile),
        "BLOCK_N": tile.BLOCK_N,
        "HEAD_DIM": problem.padded_head_dim,
        **mask_constants(problem, finite),
        "TIMELINE": timeline is not None,
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
    }
    return arguments, constants
