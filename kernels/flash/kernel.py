"""Flash: exact attention with an online softmax, one launch, forward pass.

One program owns a tile of BLOCK_M queries of one (batch, head) and loops over the KV tiles its mask lets it see.

Grid      (batch · heads · ⌈seq_len_q / BLOCK_M⌉,), Q tiles fastest, so neighbours share K and V in L2; the last Q tile
          first if ORDER is longest_first
Tiles     q [BLOCK_M, HEAD_DIM] stays; k, v [BLOCK_N, HEAD_DIM] stream through shared memory; s, p [BLOCK_M, BLOCK_N]
          live in registers for one step; with sawtooth every second wave of programs goes from the last KV tile to the
          first, which the wave before has left in L2; Q and O are then loaded and stored to leave L2 first
State     m_i, l_i [BLOCK_M], acc [BLOCK_M, HEAD_DIM], float32
HBM       requested read: Q + Σ over programs of the visited K and V rows; written: O + LSE
          (equals schedule(); a test checks it)
L2↔SM     at most what is requested, in whole sectors: what is asked for crosses once, unless L1 has it or another SM
          asks for it at the same time; at least the compulsory bytes; spills would come on top (l2_sm_bounds())
Numerics  base-2 exponentials of (s − m) · sm_scale · log2 e, so the largest is exactly 1 at any magnitude; products
          accumulate in float32, float32 inputs use ieee dots; masks are −inf; ragged edges and head_dim are padded
          with masked zeros; rows that attend to nothing give O = 0 and LSE = −inf
Paper     Dao 2023, FlashAttention-2, Algorithm 1; Milakov and Gimelshein 2018
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

from kernels.backward_pass import by_pointer
from kernels.backward_pass import launches as backward_launches
from kernels.launching import (
    TritonLaunch,
    has_partial_tiles,
    meta_tensors,
    outputs,
    problem_arguments,
    require_rows,
    resident_programs,
    strides,
    tile_constants,
    timeline_arguments,
    trace_arguments,
)
from kernels.online_tile import divided, visible_tiles
from kernels.problem import LONGEST_FIRST as LONGEST
from kernels.problem import SAWTOOTH as SAW
from kernels.problem import AttentionProblem, TileConfig
from kernels.program import batch_and_heads, note_end, note_start
from kernels.run import LaunchHook, Output, StateTrace, Timeline
from kernels.tile_stream import stream_tiles

SAWTOOTH: tl.constexpr = tl.constexpr(SAW)
LONGEST_FIRST: tl.constexpr = tl.constexpr(LONGEST)


# The code is the same for every wave, so that what a wave is can be asked of the compiled kernel.
@triton.jit(do_not_specialize=["wave"])
def flash_forward(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale, wave,
    m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, scores_ptr, trace_bh, row_start, row_stop,
    acc_tile, acc_start, acc_stride, score_start, score_stop,
    sm_ptr, start_ptr, end_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, ORDER: tl.constexpr,
    ONCE: tl.constexpr, PARTIAL: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    TRACE: tl.constexpr, TIMELINE: tl.constexpr,
):  # fmt: skip
    """Flash attention forward for one Q tile; see the head of this file."""
    program = tl.program_id(0)
    note_start(start_ptr, program, TIMELINE)
    q_tiles = tl.cdiv(seq_len_q, BLOCK_M)
    bh = program // q_tiles
    start_m = program % q_tiles
    if ORDER == LONGEST_FIRST:
        start_m = q_tiles - 1 - start_m
    batch, head, kv_head = batch_and_heads(bh, heads, group)

    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_m = offs_m < seq_len_q
    mask_d = offs_d < head_dim
    rows = offs_m.to(tl.int64)[:, None]
    q_rows = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qs + offs_d[None, :]
    k_rows = k_ptr + batch * stride_kb + kv_head * stride_kh + offs_d[None, :]
    v_rows = v_ptr + batch * stride_vb + kv_head * stride_vh + offs_d[None, :]
    q = tl.load(q_rows, mask=mask_m[:, None] & mask_d[None, :], other=0.0, eviction_policy=ONCE)  # [BLOCK_M, HEAD_DIM]
    if UPCAST:
        q = q.to(tl.float32)
    bounds = visible_tiles(start_m, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW)
    backward = False
    if ORDER == SAWTOOTH:
        backward = (program // wave) % 2 == 1
    record = (
        m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, scores_ptr, row_start, row_stop,
        acc_tile, acc_start, acc_stride, score_start, score_stop,
    )  # fmt: skip
    m_i, l_i, acc = stream_tiles(
        q, k_rows, v_rows, stride_ks, stride_vs, start_m, offs_m, offs_d, mask_d, bounds, backward,
        seq_len_q, seq_len_kv, window, sm_scale, head_dim, bh == trace_bh, record,
        BLOCK_M, BLOCK_N, HEAD_DIM, ORDER == SAWTOOTH, PARTIAL, CAUSAL, WINDOW, GUARD_V, UPCAST, TRACE,
    )  # fmt: skip

    o, lse = divided(acc, m_i, l_i, sm_scale, UPCAST)
    o_rows = o_ptr + batch * stride_ob + head * stride_oh + rows * stride_os + offs_d[None, :]
    tl.store(o_rows, o.to(o_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_d[None, :], eviction_policy=ONCE)
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
    prepared: int | None = None,
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> Output:
    """O and LSE of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem, head_dim contiguous."""
    o, lse = outputs(q)
    wave = prepare(problem, tile, q.device) if prepared is None else prepared
    arguments, constants = launch_arguments((q, k, v, o, lse), problem, tile, finite, wave, trace, timeline)
    with launch("flash"):
        flash_forward[grid(problem, tile)](*arguments, **constants)
    return Output(o, lse)


backward = by_pointer


def grid(problem: AttentionProblem, tile: TileConfig) -> tuple[int]:
    """One program for each Q tile of each (batch, head)."""
    return (problem.batch * problem.heads * -(-problem.seq_len_q // tile.BLOCK_M),)


def prepare(problem: AttentionProblem, tile: TileConfig, device: torch.device | str) -> int:
    """Programs of a wave, which sawtooth turns on: as many as the GPU holds at once, one where they are interpreted."""
    if tile.order != SAW or torch.device(device).type == "cpu":
        return 1
    return resident_programs(launches(problem, tile)[0].compile())


def launches(problem: AttentionProblem, tile: TileConfig) -> tuple[TritonLaunch, ...]:
    """What forward and backward launch, with tensors that have no memory."""
    arguments, constants = launch_arguments(meta_tensors(problem), problem, tile, finite=True)
    main = TritonLaunch("flash", flash_forward, arguments, constants, grid(problem, tile))
    return (main, *backward_launches(problem, tile, is_described=False))


def launch_arguments(
    tensors: tuple[torch.Tensor, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    finite: bool = False,
    wave: int = 1,
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What flash_forward is launched or compiled with, for the tensors q, k, v, o, lse: arguments and constexprs."""
    require_rows(*tensors[:3])
    q, k, v, o, lse = tensors
    arguments = (
        *tensors, *strides(q, k, v, o),
        *problem_arguments(problem), wave, *trace_arguments(problem, lse, trace),
        *timeline_arguments(lse, timeline),
    )  # fmt: skip
    constants: dict[str, object] = {
        **tile_constants(problem, tile, finite),
        "ORDER": tile.order,
        # What a wave leaves of K and V in L2 is all that sawtooth gains: Q and O, which pass once, leave first.
        "ONCE": "evict_first" if tile.order == SAW else "",
        "PARTIAL": has_partial_tiles(problem, tile),
        "TRACE": trace is not None,
        "TIMELINE": timeline is not None,
    }
    return arguments, constants
