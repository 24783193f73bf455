"""Flash, warp-specialised: exact attention with an online softmax by warps with different tasks, one launch, forward.

One program owns 128 queries of one (batch, head) and loops over the KV tiles its mask lets it see. Its warps have tasks
of their own: one copies tiles by TMA, two groups of four have 64 queries each and compute, so that the tensor cores
work for one group while the other has its exponentials. Written in Gluon, the language below Triton, for Hopper.

Grid      (batch · heads · ⌈seq_len_q / 128⌉,), Q tiles fastest; with longest_first the last Q tile first, of up to four
          (batch, head) side by side; with persistent no more programs than the GPU holds at once, each with one Q tile
          of each wave: behind a causal mask the last Q tiles of all heads first, every second wave the other way round
Tiles     q [128, WIDTH] stays in shared memory; k, v [BLOCK_N, WIDTH] stream through rings of STAGES tiles there, from
          the last tile to the first, with sawtooth the other way in every second wave; s, p [128, BLOCK_N] in
          registers, s of a step beside p of the step before, which stands in shared memory instead where WIDTH is 64
          and a tile has 256 keys; WIDTH is head_dim padded to 64, 128 or 256
State     m_i [128], l_i [128, 4 lanes], acc [128, WIDTH], float32, in registers
Barriers  for each stage of K and of V: full, which opens when the bytes are there; empty, when both groups have
          arrived; the n-th use of a stage waits for parity n & 1 of full, and for the other one of empty; with
          persistent the rows of Q of each group have both, and empty opens when their last product has read them, or,
          where O leaves through their memory, when it has left
HBM       requested read: Q + Σ over programs of the visited K and V rows; written: O + LSE (equals schedule(); counters
          test it on a GPU, and the order of the work is tested without one: Gluon has no interpreter)
L2↔SM     at most what is requested, in whole sectors; at least the compulsory bytes (l2_sm_bounds())
Numerics  base-2 exponentials of s · scale − m · scale, which is one instruction, see softmax.py; products accumulate in
          float32; masks are −inf; rows and columns beyond a tensor are zeros; rows that attend to nothing give O = 0
          and LSE = −inf
Paper     Shah et al. 2024, FlashAttention-3, Algorithms 1 and 2
"""

import math
from contextlib import nullcontext
from typing import Any

import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from kernels.described import require_describable
from kernels.finite_values import kept_out
from kernels.flash_ws.backward import backward
from kernels.flash_ws.backward import launches as backward_launches
from kernels.flash_ws.clock import note_sm, note_time
from kernels.flash_ws.consumer import consume
from kernels.flash_ws.gradient_schedule import width_of
from kernels.flash_ws.persistent import flash_ws_persistent
from kernels.flash_ws.producer import produce
from kernels.flash_ws.schedule import (
    BLOCK_M,
    CONSUMERS,
    ROWS,
    begins_with_the_longest,
    cut,
    has_room_for_o,
    section_of,
    shares_p,
)
from kernels.flash_ws.swizzled import described
from kernels.flash_ws.warps import (
    CONSUMER_REGISTERS,
    FIRST,
    PRODUCER_REGISTERS,
    REGISTERS,
    SECOND,
    barriers,
    full_and_empty,
)
from kernels.flash_ws.work import place, tiles_seen
from kernels.launching import (
    TritonLaunch,
    has_partial_tiles,
    meta_tensors,
    outputs,
    require_rows,
    resident_programs,
    timeline_arguments,
)
from kernels.problem import PERSISTENT, SAWTOOTH, AttentionProblem, TileConfig
from kernels.run import LaunchHook, Output, Timeline

__all__ = ["backward", "forward", "launches", "prepare"]

SOFTMAX_TURNS_TO = 64  # WIDTH up to which a group is longer at a tile's softmax than at its products


@gluon.jit(do_not_specialize=["heads", "group", "section", "q_tiles", "seq_len_q", "seq_len_kv", "wave"])
def flash_ws_forward(
    q_described, k_described, v_described, o_described, lse_ptr,
    heads, group, section, q_tiles, seq_len_q, seq_len_kv, sm_scale, scale, coarse, wave,
    sm_ptr, start_ptr, end_ptr,
    ROWS: gl.constexpr, CONSUMERS: gl.constexpr, BLOCK_N: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr,
    CAUSAL: gl.constexpr, PARTIAL: gl.constexpr, LONGEST_FIRST: gl.constexpr, TURNS: gl.constexpr,
    SOFTMAX_TURNS: gl.constexpr, SHARE_P: gl.constexpr, TIMELINE: gl.constexpr,
):  # fmt: skip
    """Flash attention forward for one Q tile; see the head of this file."""
    program = gl.program_id(0)
    batch, head, kv_head, tile, number = place(program, heads, group, q_tiles, section, LONGEST_FIRST)
    if TIMELINE:
        note_time(start_ptr, number)
    n_tiles = tiles_seen(tile, seq_len_q, seq_len_kv, ROWS * CONSUMERS, BLOCK_N, CAUSAL)
    backward = (program // wave) % 2 == 0

    q_shared = gl.allocate_shared_memory(q_described.dtype, [CONSUMERS, 1, 1, ROWS, WIDTH], q_described.layout)
    k_shared = gl.allocate_shared_memory(k_described.dtype, [STAGES, 1, 1, BLOCK_N, WIDTH], k_described.layout)
    v_shared = gl.allocate_shared_memory(v_described.dtype, [STAGES, 1, 1, BLOCK_N, WIDTH], v_described.layout)
    p_shared = q_shared
    if SHARE_P:
        p_layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
        p_shared = gl.allocate_shared_memory(q_described.dtype, [CONSUMERS, ROWS, BLOCK_N], p_layout)
    q_full = barriers(CONSUMERS, 1)
    k_full, k_empty = full_and_empty(STAGES, CONSUMERS)
    v_full, v_empty = full_and_empty(STAGES, CONSUMERS)
    fence_async_shared()

    gl.warp_specialize(
        [
            (consume, (
                o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, q_full, k_full, k_empty, v_full, v_empty,
                batch, head, heads, tile, n_tiles, backward, seq_len_q, seq_len_kv, sm_scale, scale, coarse,
                FIRST, ROWS, CONSUMERS, BLOCK_N, WIDTH, STAGES, CAUSAL, PARTIAL, TURNS, SOFTMAX_TURNS, SHARE_P,
            )),
            (consume, (
                o_described, lse_ptr, q_shared, k_shared, v_shared, p_shared, q_full, k_full, k_empty, v_full, v_empty,
                batch, head, heads, tile, n_tiles, backward, seq_len_q, seq_len_kv, sm_scale, scale, coarse,
                SECOND, ROWS, CONSUMERS, BLOCK_N, WIDTH, STAGES, CAUSAL, PARTIAL, TURNS, SOFTMAX_TURNS, SHARE_P,
            )),
            (produce, (
                q_described, k_described, v_described, q_shared, k_shared, v_shared,
                q_full, k_full, k_empty, v_full, v_empty, batch, head, kv_head, tile, n_tiles, backward,
                ROWS, CONSUMERS, BLOCK_N, STAGES, TURNS,
            )),
        ],
        [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip
    if TIMELINE:
        note_sm(sm_ptr, number)
        note_time(end_ptr, number)


def forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    launch: LaunchHook = nullcontext,
    finite: bool = False,
    prepared: int | None = None,
    timeline: Timeline | None = None,
) -> Output:
    """O and LSE of softmax(Q Kᵀ / √head_dim + mask) V; q, k, v as in AttentionProblem, head_dim contiguous.

    Without `finite` and with a mask, values that are not finite are looked for, and kept out by two more passes. Raises
    ValueError for tensors that no descriptor can hold, see kernels.described.
    """
    require_rows(q, k, v)
    require_describable(q, k, v)
    wave = prepare(problem, tile, q.device) if prepared is None else prepared

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Output:
        o, lse = outputs(q)
        arguments, constants = launch_arguments((q, k, v, o, lse), problem, tile, wave, timeline)
        kernel_of(tile)[grid(problem, tile, wave)](*arguments, **constants)
        return Output(o, lse)

    with launch("flash_ws"):
        found = attend(q, k, v)
    if finite or not problem.is_masked:
        return found
    return Output(kept_out(found.o, lambda *inputs: attend(*inputs).o, q, k, v), found.lse)


def kernel_of(tile: TileConfig) -> Any:
    """What is launched in the tile's order."""
    return flash_ws_persistent if tile.order == PERSISTENT else flash_ws_forward


def items_in(problem: AttentionProblem) -> int:
    """Q tiles of all (batch, head)."""
    return problem.batch * problem.heads * -(-problem.seq_len_q // BLOCK_M)


def grid(problem: AttentionProblem, tile: TileConfig, wave: int) -> tuple[int]:
    """One program for each Q tile of each (batch, head); with persistent no more than a wave."""
    items = items_in(problem)
    return (min(items, wave) if tile.order == PERSISTENT else items,)


def prepare(problem: AttentionProblem, tile: TileConfig, device: torch.device | str) -> int:
    """Programs of a wave, which sawtooth turns on and persistent launches: as many as the GPU holds at once.

    One where there is no GPU, and in other orders, which do not ask.
    """
    if tile.order not in (SAWTOOTH, PERSISTENT) or torch.device(device).type == "cpu":
        return 1
    return resident_programs(launches(problem, tile)[0].compile())


def launches(problem: AttentionProblem, tile: TileConfig) -> tuple[TritonLaunch, ...]:
    """What forward and backward launch, with tensors that have no memory, on a GPU that holds all programs at once."""
    arguments, constants = launch_arguments(meta_tensors(problem), problem, tile)
    whole = grid(problem, tile, items_in(problem))
    main = TritonLaunch("flash_ws", kernel_of(tile), arguments, constants, whole)
    return (main, *backward_launches(problem, tile))


def launch_arguments(
    tensors: tuple[torch.Tensor, ...],
    problem: AttentionProblem,
    tile: TileConfig,
    wave: int = 1,
    timeline: Timeline | None = None,
) -> tuple[tuple[object, ...], dict[str, object]]:
    """What kernel_of the tile is launched or compiled with, for q, k, v, o, lse: arguments and constexprs."""
    q, k, v, o, lse = tensors
    tile, width = cut(problem, tile), width_of(problem)
    scale = problem.sm_scale * math.log2(math.e)
    arguments = (
        described(q, ROWS, width), described(k, tile.BLOCK_N, width), described(v, tile.BLOCK_N, width),
        described(o, ROWS, width), lse, problem.heads, problem.group, section_of(problem, tile),
        -(-problem.seq_len_q // BLOCK_M), problem.seq_len_q, problem.seq_len_kv,
        problem.sm_scale, scale, 2.0 ** math.floor(math.log2(scale)),
        items_in(problem) if tile.order == PERSISTENT else wave,
        *timeline_arguments(lse, timeline),
    )  # fmt: skip
    constants: dict[str, object] = {
        "ROWS": ROWS,
        "CONSUMERS": CONSUMERS,
        "BLOCK_N": tile.BLOCK_N,
        "WIDTH": width,
        "STAGES": tile.num_stages,
        "CAUSAL": problem.causal,
        "PARTIAL": has_partial_tiles(problem, tile),
        "LONGEST_FIRST": begins_with_the_longest(problem, tile),
        "SOFTMAX_TURNS": width <= SOFTMAX_TURNS_TO,
        "SHARE_P": shares_p(tile),
        "TIMELINE": timeline is not None,
        "num_warps": 4,  # of the first consumer; the compiler adds the other warps
        "maxnreg": REGISTERS,
    }
    if tile.order == PERSISTENT:
        constants["OWN_O"] = has_room_for_o(problem)
    else:
        constants["TURNS"] = tile.order == SAWTOOTH
    return arguments, constants
