"""Flash: exact attention with an online softmax, one launch, forward pass.

One program owns a tile of BLOCK_M queries of one (batch, head) and loops over the KV tiles its mask lets it see.

Grid      (batch · heads · ⌈seq_len_q / BLOCK_M⌉,), Q tiles fastest, so neighbours share K and V in L2
Tiles     q [BLOCK_M, HEAD_DIM] stays; k, v [BLOCK_N, HEAD_DIM] stream through shared memory; s, p [BLOCK_M, BLOCK_N]
          live in registers for one step
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
from triton.language.extra import cuda as cuda_extra
from triton.runtime.jit import MockTensor

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook, Output, StateTrace, Timeline

LOG2_E: tl.constexpr = tl.constexpr(1.4426950408889634)
IS_INTERPRETED: bool = triton.knobs.runtime.interpret


@triton.jit
def round_to_bfloat16(x):
    """float32 rounded to the nearest bfloat16, ties to even; the interpreter's own cast cuts the low bits off."""
    bits = x.to(tl.uint32, bitcast=True)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return tl.where(x == x, bits.to(tl.float32, bitcast=True), x)


@triton.jit
def attend_tile(
    q, k_rows, v_rows, stride_ks, stride_vs, offs_m, j, m_i, l_i, acc, mask_d,
    seq_len_q, seq_len_kv, window, sm_scale,
    BLOCK_N: tl.constexpr, MASKED: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
    GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
):  # fmt: skip
    """One KV tile: scores, mask, online softmax, accumulate. Returns the new m_i, l_i, acc and alpha."""
    offs_n = j * BLOCK_N + tl.arange(0, BLOCK_N)
    mask_n = offs_n < seq_len_kv
    offset = offs_n.to(tl.int64)[:, None]
    k = tl.load(k_rows + offset * stride_ks, mask=mask_n[:, None] & mask_d[None, :], other=0.0)  # [BLOCK_N, HEAD_DIM]
    if UPCAST:
        k = k.to(tl.float32)
    s = tl.dot(q, tl.trans(k), input_precision="ieee")  # [BLOCK_M, BLOCK_N]
    if MASKED:
        position = offs_m[:, None] + (seq_len_kv - seq_len_q)
        seen = mask_n[None, :]
        if CAUSAL:
            seen = seen & (offs_n[None, :] <= position)
        if WINDOW:
            seen = seen & (offs_n[None, :] > position - window) & (offs_n[None, :] < position + window)
        s = tl.where(seen, s, float("-inf"))

    m_new = tl.maximum(m_i, tl.max(s, 1))
    # A row that has seen nothing yet has m = −inf; −inf − (−inf) would be NaN.
    m_safe = tl.where(m_new == float("-inf"), 0.0, m_new)
    scale = sm_scale * LOG2_E
    # Scaling after the subtraction keeps exp2's argument at or below 0 for scores of any magnitude.
    p = tl.exp2((s - m_safe[:, None]) * scale)
    alpha = tl.exp2((m_i - m_safe) * scale)
    l_new = l_i * alpha + tl.sum(p, 1)
    acc = acc * alpha[:, None]

    v = tl.load(v_rows + offset * stride_vs, mask=mask_n[:, None] & mask_d[None, :], other=0.0)  # [BLOCK_N, HEAD_DIM]
    if UPCAST:
        p = round_to_bfloat16(p)
        v = v.to(tl.float32)
    p = p.to(v.dtype)
    if MASKED and GUARD_V:
        # 0 · NaN is NaN: only rows that see a non-finite value may take it.
        finite = tl.abs(v) < float("inf")
        sees_bad = tl.dot(seen.to(v.dtype), (1 - finite.to(tl.int32)).to(v.dtype), input_precision="ieee") > 0.5
        clean = tl.dot(p, tl.where(finite, v, 0.0).to(v.dtype), input_precision="ieee")
        acc += tl.where(sees_bad, tl.dot(p, v, input_precision="ieee"), clean)
    else:
        acc = tl.dot(p, v, acc, input_precision="ieee")
    return m_new, l_new, acc, alpha


@triton.jit
def record_state(
    m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, offs_m, offs_d, mask_d, j, m_i, l_i, alpha, acc,
    traced, row_start, row_stop, kv_tiles, acc_tile, acc_start, acc_stride, head_dim, sm_scale,
    BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Store m, l, alpha and |acc| after KV tile j for the traced rows, and acc for the traced Q tile."""
    mask = traced & (offs_m >= row_start) & (offs_m < row_stop)
    offset = (offs_m - row_start).to(tl.int64) * kv_tiles + j
    tl.store(m_ptr + offset, m_i * sm_scale, mask=mask)
    tl.store(l_ptr + offset, l_i, mask=mask)
    tl.store(alpha_ptr + offset, alpha, mask=mask)
    tl.store(norm_ptr + offset, tl.sqrt(tl.sum(acc * acc, 1)), mask=mask)
    rows = offs_m - acc_tile * BLOCK_M
    chosen = traced & (rows >= 0) & (rows < BLOCK_M) & (j % acc_stride == acc_start)
    slot = ((j // acc_stride) * BLOCK_M + rows).to(tl.int64) * head_dim
    tl.store(acc_ptr + slot[:, None] + offs_d[None, :], acc, mask=chosen[:, None] & mask_d[None, :])


@triton.jit
def flash_forward(
    q_ptr, k_ptr, v_ptr, o_ptr, lse_ptr,
    stride_qb, stride_qh, stride_qs, stride_kb, stride_kh, stride_ks, stride_vb, stride_vh, stride_vs,
    stride_ob, stride_oh, stride_os,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale,
    m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, trace_bh, row_start, row_stop, acc_tile, acc_start, acc_stride,
    sm_ptr, start_ptr, end_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr,
    CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    TRACE: tl.constexpr, TIMELINE: tl.constexpr,
):  # fmt: skip
    """Flash attention forward for one Q tile; see the head of this file."""
    program = tl.program_id(0)
    if TIMELINE:
        tl.store(start_ptr + program, cuda_extra.globaltimer())
    q_tiles = tl.cdiv(seq_len_q, BLOCK_M)
    bh = program // q_tiles
    start_m = program % q_tiles
    batch = (bh // heads).to(tl.int64)
    head = (bh % heads).to(tl.int64)
    kv_head = head // group

    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    offs_d = tl.arange(0, HEAD_DIM)
    mask_m = offs_m < seq_len_q
    mask_d = offs_d < head_dim
    rows = offs_m.to(tl.int64)[:, None]
    q_rows = q_ptr + batch * stride_qb + head * stride_qh + rows * stride_qs + offs_d[None, :]
    k_rows = k_ptr + batch * stride_kb + kv_head * stride_kh + offs_d[None, :]
    v_rows = v_ptr + batch * stride_vb + kv_head * stride_vh + offs_d[None, :]
    q = tl.load(q_rows, mask=mask_m[:, None] & mask_d[None, :], other=0.0)  # [BLOCK_M, HEAD_DIM]
    if UPCAST:
        q = q.to(tl.float32)

    # Keys seen by the tile's first and last query bound what the tile sees; TileGrid says the same in numpy.
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

    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    kv_tiles = tl.cdiv(seq_len_kv, BLOCK_N)
    for stage in tl.static_range(3):  # before, inside and after the tiles that need no mask
        if WINDOW or stage != 0:
            begin = first if stage == 0 else (full_first if stage == 1 else full_last)
            end = full_first if stage == 0 else (full_last if stage == 1 else last)
            for j in tl.range(begin, end):
                m_i, l_i, acc, alpha = attend_tile(
                    q, k_rows, v_rows, stride_ks, stride_vs, offs_m, j, m_i, l_i, acc, mask_d,
                    seq_len_q, seq_len_kv, window, sm_scale,
                    BLOCK_N, stage != 1, CAUSAL, WINDOW, GUARD_V, UPCAST,
                )  # fmt: skip
                if TRACE:
                    record_state(
                        m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, offs_m, offs_d, mask_d, j, m_i, l_i, alpha, acc,
                        bh == trace_bh, row_start, row_stop, kv_tiles, acc_tile, acc_start, acc_stride, head_dim,
                        sm_scale, BLOCK_M,
                    )  # fmt: skip

    blind = l_i == 0.0
    o = tl.where(blind[:, None], 0.0, acc / tl.where(blind, 1.0, l_i)[:, None])
    lse = tl.where(blind, float("-inf"), m_i * sm_scale + tl.log(tl.where(blind, 1.0, l_i)))
    o_rows = o_ptr + batch * stride_ob + head * stride_oh + rows * stride_os + offs_d[None, :]
    if UPCAST:
        o = round_to_bfloat16(o)
    tl.store(o_rows, o.to(o_ptr.dtype.element_ty), mask=mask_m[:, None] & mask_d[None, :])
    tl.store(lse_ptr + bh.to(tl.int64) * seq_len_q + offs_m, lse, mask=mask_m)
    if TIMELINE:
        tl.store(sm_ptr + program, cuda_extra.smid())
        tl.store(end_ptr + program, cuda_extra.globaltimer())


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
    o = torch.empty_like(q, memory_format=torch.contiguous_format)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    arguments, constants = launch_arguments(q, k, v, o, lse, problem, tile, finite, trace, timeline)
    with launch("flash"):
        flash_forward[grid(problem, tile)](*arguments, **constants)
    return Output(o, lse)


def grid(problem: AttentionProblem, tile: TileConfig) -> tuple[int]:
    """One program for each Q tile of each (batch, head)."""
    return (problem.batch * problem.heads * -(-problem.seq_len_q // tile.BLOCK_M),)


def shared_memory(problem: AttentionProblem, tile: TileConfig) -> int:
    """Bytes of shared memory one CTA takes on the current GPU; compiles the kernel, launches and allocates nothing."""
    shape_q = (problem.batch, problem.heads, problem.seq_len_q, problem.head_dim)
    shape_kv = (problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim)
    dtype = getattr(torch, problem.dtype)
    q, k = (torch.empty(shape, dtype=dtype, device="meta") for shape in (shape_q, shape_kv))
    lse = torch.empty(shape_q[:3], dtype=torch.float32, device="meta")
    arguments, constants = launch_arguments(q, k, k, q, lse, problem, tile, finite=True)
    abstract = [MockTensor.wrap_dtype(a.dtype) if isinstance(a, torch.Tensor) else a for a in arguments]
    compiled = flash_forward.warmup(*abstract, grid=grid(problem, tile), **constants)
    return int(compiled.metadata.shared)


def launch_arguments(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    finite: bool = False,
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What flash_forward is launched or compiled with: positional arguments and constexprs."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if tensor.stride(-1) != 1:
            raise ValueError(f"{name} has stride {tensor.stride(-1)} along head_dim; make that dimension contiguous.")
    strides = (*q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *o.stride()[:3])
    t = trace
    arguments = (
        q, k, v, o, lse, *strides,
        problem.heads, problem.group, problem.seq_len_q, problem.seq_len_kv, problem.head_dim,
        problem.window or 0, problem.sm_scale,
        *((t.m, t.l, t.alpha, t.acc_norm, t.acc) if t else (lse,) * 5),
        *((t.batch * problem.heads + t.head, t.row_start, t.row_stop) if t else (0,) * 3),
        *((t.acc_tile, t.acc_start, t.acc_stride) if t else (0,) * 3),
        *((timeline.sm, timeline.start, timeline.end) if timeline else (lse,) * 3),
    )  # fmt: skip
    constants: dict[str, object] = {
        "BLOCK_M": tile.BLOCK_M,
        "BLOCK_N": tile.BLOCK_N,
        "HEAD_DIM": problem.padded_head_dim,
        "CAUSAL": problem.causal,
        "WINDOW": problem.window is not None,
        "GUARD_V": not finite and problem.is_masked,
        # Triton's interpreter holds bfloat16 as raw 16-bit integers and multiplies those in tl.dot.
        "UPCAST": IS_INTERPRETED and problem.dtype == "bfloat16",
        "TRACE": trace is not None,
        "TIMELINE": timeline is not None,
        "num_warps": tile.num_warps,
        # Stores of acc take shared memory of their own; without a pipeline they fit wherever the plain kernel does.
        "num_stages": 1 if trace else tile.num_stages,
    }
    return arguments, constants
