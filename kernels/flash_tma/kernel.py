"""Flash, TMA: exact attention with an online softmax whose tiles are copied by hardware, one launch, forward pass.

One program owns a tile of BLOCK_M queries of one (batch, head) and loops over the KV tiles its mask lets it see. A tile
is named by its place in a tensor descriptor, which the host makes: the Tensor Memory Accelerator of Hopper copies it
into shared memory, so that no thread works out addresses or holds elements on their way.

Grid      (batch · heads · ⌈seq_len_q / BLOCK_M⌉,), Q tiles fastest, so neighbours share K and V in L2; the last Q tile
          first if ORDER is longest_first
Tiles     q [BLOCK_M, HEAD_DIM] stays; k, v [BLOCK_N, HEAD_DIM] stream into shared memory; s, p [BLOCK_M, BLOCK_N]
          live in registers for one step; with sawtooth every second wave of programs goes from the last KV tile to the
          first
State     m_i, l_i [BLOCK_M], acc [BLOCK_M, HEAD_DIM], float32
HBM       requested read: Q + Σ over programs of the visited K and V rows; written: O + LSE
          (equals schedule(); a test checks it); rows and columns beyond a tensor are zeros that nobody reads
L2↔SM     at most what is requested, in whole sectors; at least the compulsory bytes (l2_sm_bounds())
Numerics  as flash
Paper     Dao 2023, FlashAttention-2, Algorithm 1; Shah et al. 2024, FlashAttention-3, on TMA
"""

from contextlib import nullcontext

import torch
import triton
import triton.language as tl

from kernels.backward_pass import by_descriptor
from kernels.backward_pass import launches as backward_launches
from kernels.described import described, require_describable
from kernels.launching import (
    TritonLaunch,
    has_partial_tiles,
    meta_tensors,
    outputs,
    problem_arguments,
    require_rows,
    resident_programs,
    tile_constants,
    timeline_arguments,
    trace_arguments,
)
from kernels.online_tile import add_values, divided, record_state, visible_tiles, weigh_tile
from kernels.problem import LONGEST_FIRST as LONGEST
from kernels.problem import SAWTOOTH as SAW
from kernels.problem import AttentionProblem, TileConfig
from kernels.program import note_end, note_start
from kernels.run import LaunchHook, Output, StateTrace, Timeline

SAWTOOTH: tl.constexpr = tl.constexpr(SAW)
LONGEST_FIRST: tl.constexpr = tl.constexpr(LONGEST)


@triton.jit
def load_tile(described, batch, head, start, BLOCK: tl.constexpr, HEAD_DIM: tl.constexpr, UPCAST: tl.constexpr):
    """Rows [start, start + BLOCK) of one head."""
    tile = described.load([batch, head, start, 0]).reshape(BLOCK, HEAD_DIM)
    return tile.to(tl.float32) if UPCAST else tile


@triton.jit
def walk_described_tiles(
    q, k_described, v_described, batch, kv_head, offs_m, bounds, backward,
    seq_len_q, seq_len_kv, window, sm_scale, head_dim, record,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, TURNS: tl.constexpr,
    PARTIAL: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    RECORD: tl.constexpr,
):  # fmt: skip
    """As kernels.tile_stream.walk_tiles, with K and V by descriptor."""
    first, full_first, full_last, last = bounds
    offs_d = tl.arange(0, HEAD_DIM)
    m_i = tl.full([BLOCK_M], float("-inf"), tl.float32)
    l_i = tl.zeros([BLOCK_M], tl.float32)
    acc = tl.zeros([BLOCK_M, HEAD_DIM], tl.float32)
    for stage in tl.static_range(3):  # before, inside and after the tiles that need no mask, or the other way round
        # Where no tile needs a mask, two thirds of the code would never run.
        if stage == 1 or (PARTIAL and (WINDOW or TURNS or stage == 2)):
            begin = first if stage == 0 else (full_first if stage == 1 else full_last)
            end = full_first if stage == 0 else (full_last if stage == 1 else last)
            if TURNS and stage != 1:
                begin = tl.where(backward, full_last if stage == 0 else first, begin)
                end = tl.where(backward, last if stage == 0 else full_first, end)
            # Stores of the state take shared memory; without stages in flight they fit where the plain loop does.
            for at in tl.range(begin, end, num_stages=1 if RECORD else None):
                j = at
                if TURNS:
                    j = tl.where(backward, begin + end - 1 - at, at)
                offs_n = j * BLOCK_N + tl.arange(0, BLOCK_N)
                k = load_tile(k_described, batch, kv_head, j * BLOCK_N, BLOCK_N, HEAD_DIM, UPCAST)
                m_i, l_i, p, alpha, s, seen = weigh_tile(
                    q, k, offs_m, offs_n, m_i, l_i, seq_len_q, seq_len_kv, window, sm_scale, stage != 1, CAUSAL, WINDOW
                )
                v = load_tile(v_described, batch, kv_head, j * BLOCK_N, BLOCK_N, HEAD_DIM, UPCAST)
                acc = add_values(p, v, acc * alpha[:, None], seen, stage != 1 and GUARD_V, UPCAST)
                if RECORD:
                    record_state(
                        record, offs_m, offs_n, offs_d, offs_d < head_dim, j, m_i, l_i, alpha, acc, s,
                        seq_len_kv, head_dim, sm_scale, BLOCK_M, BLOCK_N,
                    )  # fmt: skip
    return m_i, l_i, acc


# The code is the same for every wave, so that what a wave is can be asked of the compiled kernel.
@triton.jit(do_not_specialize=["wave"])
def flash_tma_forward(
    q_described, k_described, v_described, o_described, lse_ptr,
    heads, group, seq_len_q, seq_len_kv, head_dim, window, sm_scale, wave,
    m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, scores_ptr, trace_bh, row_start, row_stop,
    acc_tile, acc_start, acc_stride, score_start, score_stop,
    sm_ptr, start_ptr, end_ptr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, ORDER: tl.constexpr, PARTIAL: tl.constexpr,
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
    # A descriptor takes places of 32 bits, and has the strides itself.
    batch = bh // heads
    head = bh % heads
    kv_head = head // group

    offs_m = start_m * BLOCK_M + tl.arange(0, BLOCK_M)
    q = load_tile(q_described, batch, head, start_m * BLOCK_M, BLOCK_M, HEAD_DIM, UPCAST)
    bounds = visible_tiles(start_m, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW)
    backward = False
    if ORDER == SAWTOOTH:
        backward = (program // wave) % 2 == 1
    record = (
        m_ptr, l_ptr, alpha_ptr, norm_ptr, acc_ptr, scores_ptr, row_start, row_stop,
        acc_tile, acc_start, acc_stride, score_start, score_stop,
    )  # fmt: skip
    records = False
    if TRACE:
        records = (bh == trace_bh) & (start_m * BLOCK_M < row_stop) & ((start_m + 1) * BLOCK_M > row_start)
    # Recording takes the state out of the matrix units' pipeline at each step: only programs of recorded rows pay that.
    if records:
        m_i, l_i, acc = walk_described_tiles(
            q, k_described, v_described, batch, kv_head, offs_m, bounds, backward,
            seq_len_q, seq_len_kv, window, sm_scale, head_dim, record,
            BLOCK_M, BLOCK_N, HEAD_DIM, ORDER == SAWTOOTH, PARTIAL, CAUSAL, WINDOW, GUARD_V, UPCAST, True,
        )  # fmt: skip
    else:
        m_i, l_i, acc = walk_described_tiles(
            q, k_described, v_described, batch, kv_head, offs_m, bounds, backward,
            seq_len_q, seq_len_kv, window, sm_scale, head_dim, record,
            BLOCK_M, BLOCK_N, HEAD_DIM, ORDER == SAWTOOTH, PARTIAL, CAUSAL, WINDOW, GUARD_V, UPCAST, False,
        )  # fmt: skip

    o, lse = divided(acc, m_i, l_i, sm_scale, UPCAST)
    o_tile = o.to(o_described.dtype).reshape(1, 1, BLOCK_M, HEAD_DIM)
    o_described.store([batch, head, start_m * BLOCK_M, 0], o_tile)
    tl.store(lse_ptr + bh.to(tl.int64) * seq_len_q + offs_m, lse, mask=offs_m < seq_len_q)
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
    """O and LSE of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem, head_dim contiguous.

    Raises ValueError for tensors that no descriptor can hold, see kernels.described.
    """
    require_rows(q, k, v)
    require_describable(q, k, v)
    o, lse = outputs(q)
    wave = prepare(problem, tile, q.device) if prepared is None else prepared
    arguments, constants = launch_arguments((q, k, v, o, lse), problem, tile, finite, wave, trace, timeline)
    with launch("flash_tma"):
        flash_tma_forward[grid(problem, tile)](*arguments, **constants)
    return Output(o, lse)


backward = by_descriptor


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
    main = TritonLaunch("flash_tma", flash_tma_forward, arguments, constants, grid(problem, tile))
    return (main, *backward_launches(problem, tile, is_described=True))


def launch_arguments(
    tensors: tuple[torch.Tensor, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    finite: bool = False,
    wave: int = 1,
    trace: StateTrace | None = None,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What flash_tma_forward is launched or compiled with, for q, k, v, o, lse: arguments and constexprs."""
    q, k, v, o, lse = tensors
    width = problem.padded_head_dim
    arguments = (
        described(q, tile.BLOCK_M, width), described(k, tile.BLOCK_N, width), described(v, tile.BLOCK_N, width),
        described(o, tile.BLOCK_M, width), lse,
        *problem_arguments(problem), wave, *trace_arguments(problem, lse, trace), *timeline_arguments(lse, timeline),
    )  # fmt: skip
    constants: dict[str, object] = {
        **tile_constants(problem, tile, finite),
        "ORDER": tile.order,
        "PARTIAL": has_partial_tiles(problem, tile),
        "TRACE": trace is not None,
        "TIMELINE": timeline is not None,
    }
    return arguments, constants
