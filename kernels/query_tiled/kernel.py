"""Query tiled: exact attention with one ordinary softmax, BLOCK_M queries against all keys in one round, forward pass.

One program owns a tile of BLOCK_M queries of one (batch, head) and takes K and V whole, once each.

Grid      (batch · heads · ⌈seq_len_q / BLOCK_M⌉,), Q tiles fastest, so neighbours share K and V in L2
Tiles     q [BLOCK_M, HEAD_DIM], k [BLOCK_N, HEAD_DIM], then v [BLOCK_N, HEAD_DIM] in shared memory, BLOCK_N the power
          of two that covers all keys; s, p [BLOCK_M, BLOCK_N] in registers: the row block, which is what stops fitting
State     none: the softmax sees whole rows; acc [BLOCK_M, HEAD_DIM], float32, is written once
HBM       requested read: Q + K and V for each Q tile that sees a key; written: O + LSE
          (equals schedule(); a test checks it)
L2↔SM     at most what is requested, in whole sectors; at least the compulsory bytes; spills, which come where the row
          block outgrows the registers, come on top (l2_sm_bounds())
Numerics  base-2 exponentials of (s − m) · sm_scale · log2 e; products accumulate in float32, float32 inputs use ieee
          dots; masks are −inf; ragged edges and head_dim are padded with masked zeros; rows that attend to nothing give
          O = 0 and LSE = −inf
Paper     none: the step before the online softmax, Dao et al. 2022, Algorithm 0 on BLOCK_M rows
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
from kernels.online_tile import LOG2_E, add_values, divided, load_rows, seen_keys, visible_tiles
from kernels.problem import AttentionProblem, TileConfig
from kernels.program import batch_and_heads, note_end, note_start
from kernels.query_tiled.schedule import row_length
from kernels.run import LaunchHook, Output, Timeline


@triton.jit
def query_tiled_forward(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale,
    sm_ptr, start_ptr, end_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr, TIMELINE: tl.constexpr,
):  # fmt: skip
    """Attention forward for one Q tile; see the head of this file."""
    program = tl.program_id(0)
    note_start(start_ptr, program, TIMELINE)
    q_tiles = tl.cdiv(seq_len_q, BLOCK_M)
    bh = program // q_tiles
    start_m = program % q_tiles
    batch, head, kv_head = batch_and_heads(bh, heads, group)

    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_n = tl.arange(0, BLOCK_N)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_m = offs_m < seq_len_q
    mask_d = offs_d < head_dim
    q_rows = q_ptr + batch * stride_qb + head * stride_qh + offs_d[None, :]
    k_rows = k_ptr + batch * stride_kb + kv_head * stride_kh + offs_d[None, :]
    v_rows = v_ptr + batch * stride_vb + kv_head * stride_vh + offs_d[None, :]
    first, _, _, last = visible_tiles(start_m, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW)
    kv_count = tl.where(first < last, seq_len_kv, 0)  # a tile that sees nothing reads nothing

    q = load_rows(q_rows, offs_m, stride_qs, seq_len_q, mask_d, UPCAST)  # [BLOCK_M, HEAD_DIM]
    k = load_rows(k_rows, offs_n, stride_ks, kv_count, mask_d, UPCAST)  # [BLOCK_N, HEAD_DIM]
    s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N]
    seen = seen_keys(offs_m, offs_n, seq_len_q, seq_len_kv, window, CAUSAL, WINDOW)
    s = tl.where(seen, s, float("-inf"))

    m = tl.max(s, 1)
    # A row that sees nothing has m = −inf; −inf − (−inf) would be NaN.
    m_safe = tl.where(m == float("-inf"), 0.0, m)
    # Scaling after the subtraction keeps exp2's argument at or below 0 for scores of any magnitude.
    p = tl.exp2((s - m_safe[:, None]) * (sm_scale * LOG2_E))
    l = tl.sum(p, 1)  # noqa: E741 - the name in the papers
    v = load_rows(v_rows, offs_n, stride_vs, kv_count, mask_d, UPCAST)  # [BLOCK_N, HEAD_DIM]
    acc = add_values(p, v, tl.zeros([BLOCK_M, HEAD_DIM], tl.float32), seen, GUARD_V, UPCAST)

    o, lse = divided(acc, m, l, sm_scale, UPCAST)
    o_rows = o_ptr + batch * stride_ob + head * stride_oh + offs_m.to(tl.int64)[:, None] * stride_os + offs_d[None, :]
    tl.store(o_rows, o.to(o_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_d[None, :])
    tl.store(lse_ptr + bh.to(tl.int64) * seq_len_q + offs_m, lse, mask=mask_m)
    note_end(sm_ptr, end_ptr, program, TIMELINE)


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
    with launch("query_tiled"):
        query_tiled_forward[grid(problem, tile)](*arguments, **constants)
    return Output(o, lse)


def grid(problem: AttentionProblem, tile: TileConfig) -> tuple[int]:
    """One program for each Q tile of each (batch, head)."""
    return (problem.batch * problem.heads * -(-problem.seq_len_q // tile.BLOCK_M),)


def launches(problem: AttentionProblem, tile: TileConfig) -> tuple[TritonLaunch, ...]:
    """What forward launches, with tensors that have no memory."""
    arguments, constants = launch_arguments(meta_tensors(problem), problem, tile, finite=True)
    return (TritonLaunch("query_tiled", query_tiled_forward, arguments, constants, grid(problem, tile)),)


def launch_arguments(
    tensors: tuple[torch.Tensor, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    finite: bool = False,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What query_tiled_forward is launched or compiled with, for q, k, v, o, lse: arguments and constexprs."""
    require_rows(*tensors[:3])
    q, k, v, o, lse = tensors
    arguments = (
        *tensors, *strides(q, k, v, o),
        *problem_arguments(problem),
        *timeline_arguments(lse, timeline),
    )  # fmt: skip
    constants: dict[str, object] = {
        "BLOCK_M": tile.BLOCK_M,
        "BLOCK_N": row_length(problem),
        "HEAD_DIM": problem.padded_head_dim,
        **mask_constants(problem, finite),
        "TIMELINE": timeline is not None,
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
    }
    return arguments, constants
