"""Split K/V: Flash-Decoding, in which several programs share a tile of queries, two launches, forward pass.

split: one program owns a share of the KV tiles of BLOCK_M queries of one (batch, head) and loops over those that the
mask lets them see. merge: one program owns a few of these queries and takes as many of their shares at once as fit;
from compute capability 9.0 on it is in its place before split has ended, and waits.
Where each head has one query and no window, the heads that share K and V are the queries of one head: below, heads is
then kv_heads and seq_len_q is heads / kv_heads (packed(); Q, O and LSE are views).

Grid      split (batch · heads · splits · ⌈seq_len_q / BLOCK_M⌉,), Q tiles fastest, so neighbours share K and V in L2;
          merge (batch · heads · ⌈seq_len_q / its rows⌉,); splits_of() and merged_at_once() say how many
Tiles     split: q [BLOCK_M, HEAD_DIM] stays; k, v [BLOCK_N, HEAD_DIM] stream through shared memory; s, p
          [BLOCK_M, BLOCK_N] live in registers for one step. merge: acc of SHARES shares at once
          [SHARES, ROWS, HEAD_DIM], in registers
State     m_i, l_i [BLOCK_M], acc [BLOCK_M, HEAD_DIM], float32; each share begins anew with −inf, 0, 0 and leaves
          its state in HBM
HBM       requested read: Q for each share + Σ over programs of the visited K and V rows; acc, m and l of all shares;
          written: acc, m and l of all shares; O + LSE (equals schedule(); a test checks it)
L2↔SM     no bound is claimed
Numerics  as flash; a share that sees nothing leaves −inf, 0, 0, which weighs 0; m is kept before sm_scale
Paper     Dao et al. 2023, Flash-Decoding for long-context inference; GQA packing is pack_gqa in FlashAttention-3's code
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl
from triton.language.extra.cuda import gdc_launch_dependents

from kernels.launching import (
    TritonLaunch,
    has_partial_tiles,
    may_overlap,
    meta_tensors,
    outputs,
    problem_arguments,
    require_rows,
    strides,
    tile_constants,
    timeline_arguments,
    trace_arguments,
)
from kernels.online_tile import load_rows, store_state, visible_tiles
from kernels.packed_gqa import packed
from kernels.problem import AttentionProblem, TileConfig
from kernels.program import batch_and_heads, note_end, note_start
from kernels.run import LaunchHook, Output, StateTrace, Timeline
from kernels.split_kv.merge import merge_arguments, merge_forward
from kernels.split_kv.schedule import merged_at_once, splits_of
from kernels.tile_stream import stream_tiles


@triton.jit
def split_forward(
    q_ptr, k_ptr, v_ptr, m_ptr, l_ptr, acc_ptr,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale, splits, share_tiles,
    traced_m, traced_l, traced_alpha, traced_norm, traced_acc, traced_scores, trace_bh, row_start, row_stop,
    acc_tile, acc_start, acc_stride, score_start, score_stop,
    sm_ptr, start_ptr, end_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, PARTIAL: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    TRACE: tl.constexpr, TIMELINE: tl.constexpr, OVERLAP: tl.constexpr,
):  # fmt: skip
    """The state of one Q tile over one share of K and V; see the head of this file."""
    if OVERLAP:
        gdc_launch_dependents()
    program = tl.program_id(0)
    note_start(start_ptr, program, TIMELINE)
    q_tiles = tl.cdiv(seq_len_q, BLOCK_M)
    start_m = program % q_tiles
    share = program // q_tiles % splits
    bh = program // q_tiles // splits
    batch, head, kv_head = batch_and_heads(bh, heads, group)

    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_d = offs_d < head_dim
    q_rows = q_ptr + batch * stride_qb + head * stride_qh + offs_d[None, :]
    k_rows = k_ptr + batch * stride_kb + kv_head * stride_kh + offs_d[None, :]
    v_rows = v_ptr + batch * stride_vb + kv_head * stride_vh + offs_d[None, :]
    q = load_rows(q_rows, offs_m, stride_qs, seq_len_q, mask_d, UPCAST)  # [BLOCK_M, HEAD_DIM]
    first, full_first, full_last, last = visible_tiles(
        start_m, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW
    )
    share_first = share * share_tiles
    share_last = share_first + share_tiles
    first = tl.minimum(tl.maximum(first, share_first), share_last)
    full_first = tl.minimum(tl.maximum(full_first, share_first), share_last)
    full_last = tl.minimum(tl.maximum(full_last, share_first), share_last)
    last = tl.minimum(tl.maximum(last, share_first), share_last)

    bounds = (first, full_first, full_last, last)
    record = (
        traced_m, traced_l, traced_alpha, traced_norm, traced_acc, traced_scores, row_start, row_stop,
        acc_tile, acc_start, acc_stride, score_start, score_stop,
    )  # fmt: skip
    m_i, l_i, acc = stream_tiles(
        q, k_rows, v_rows, stride_ks, stride_vs, start_m, offs_m, offs_d, mask_d, bounds, False,
        seq_len_q, seq_len_kv, window, sm_scale, head_dim, bh == trace_bh, record,
        BLOCK_M, BLOCK_N, HEAD_DIM, False, PARTIAL, CAUSAL, WINDOW, GUARD_V, UPCAST, TRACE,
    )  # fmt: skip

    row = (bh.to(tl.int64) * splits + share) * seq_len_q + offs_m
    store_state(m_ptr, l_ptr, acc_ptr, row, offs_m < seq_len_q, offs_d, mask_d, head_dim, m_i, l_i, acc)
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
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> Output:
    """O and LSE of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem, head_dim contiguous."""
    whole_o, whole_lse = outputs(q)
    rows, (q, o, lse) = as_rows(problem, q, whole_o, whole_lse)
    state, (split_grid, merge_grid) = states(rows, tile, q.device), grids(rows, tile)
    arguments, constants = split_arguments((q, k, v), state, rows, tile, finite, trace, timeline)
    with launch("split"):
        split_forward[split_grid](*arguments, **constants)
    arguments, constants = merge_arguments((o, lse), state, rows, tile)
    with launch("merge"):
        merge_forward[merge_grid](*arguments, **constants)
    return Output(whole_o, whole_lse)


def as_rows(problem: AttentionProblem, *tensors: torch.Tensor) -> tuple[AttentionProblem, tuple[torch.Tensor, ...]]:
    """packed(problem), and if that packs heads, views [batch, kv_heads, group, …] of tensors [batch, heads, 1, …].

    Any strides will do: dropping a dimension and cutting one in two copy nothing.
    """
    rows = packed(problem)
    if rows is problem:
        return problem, tensors
    return rows, tuple(tensor[:, :, 0].unflatten(1, (rows.heads, rows.seq_len_q)) for tensor in tensors)


def states(problem: AttentionProblem, tile: TileConfig, device: torch.device | str) -> tuple[torch.Tensor, ...]:
    """m and l [batch, heads, splits, seq_len_q], acc [batch, heads, splits, seq_len_q, head_dim], float32, empty."""
    splits, _ = splits_of(problem, tile)
    shape = (problem.batch, problem.heads, splits, problem.seq_len_q)
    m, l = (torch.empty(shape, dtype=torch.float32, device=device) for _ in range(2))  # noqa: E741
    return m, l, torch.empty((*shape, problem.head_dim), dtype=torch.float32, device=device)


def grids(problem: AttentionProblem, tile: TileConfig) -> tuple[tuple[int], tuple[int]]:
    """split: one program for each share of each Q tile of each (batch, head); merge: one for each few rows."""
    (splits, _), (merged, _) = splits_of(problem, tile), merged_at_once(problem, tile)
    copies, rows = problem.batch * problem.heads, problem.seq_len_q
    return (copies * -(-rows // tile.BLOCK_M) * splits,), (copies * -(-rows // merged),)


def launches(problem: AttentionProblem, tile: TileConfig) -> tuple[TritonLaunch, ...]:
    """What forward launches, with tensors that have no memory."""
    q, k, v, o, lse = meta_tensors(problem)
    rows, (q, o, lse) = as_rows(problem, q, o, lse)
    state, (split_grid, merge_grid) = states(rows, tile, "meta"), grids(rows, tile)
    split = split_arguments((q, k, v), state, rows, tile, finite=True)
    merge = merge_arguments((o, lse), state, rows, tile)
    return (
        TritonLaunch("split", split_forward, *split, split_grid),
        TritonLaunch("merge", merge_forward, *merge, merge_grid),
    )


def split_arguments(
    tensors: tuple[torch.Tensor, ...],
    state: tuple[torch.Tensor, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    finite: bool = False,
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What split_forward is launched or compiled with, for q, k, v and states(): arguments and constexprs."""
    require_rows(*tensors)
    q, k, v = tensors
    unused = state[0]
    arguments = (
        *tensors, *state, *strides(q, k, v),
        *problem_arguments(problem), *splits_of(problem, tile), *trace_arguments(problem, unused, trace),
        *timeline_arguments(unused, timeline),
    )  # fmt: skip
    constants: dict[str, object] = {
        **tile_constants(problem, tile, finite),
        "PARTIAL": has_partial_tiles(problem, tile),
        "TRACE": trace is not None,
        "TIMELINE": timeline is not None,
        "OVERLAP": may_overlap(),
    }
    return arguments, constants
