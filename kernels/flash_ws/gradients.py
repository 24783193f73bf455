"""Flash, warp-specialised, backward: gradients of attention, with P made anew from LSE, for head_dim up to 128.

One program owns 128 keys of one (batch, kv head) and loops over the query heads that share them, and over the Q tiles
that see them. One warp copies tiles by TMA, two groups of four have 64 keys each and compute, so that the tensor cores
work for one group while the other has its exponentials. In Gluon; launches before and after it are in gradient_ends.py.

Grid      (batch · kv_heads · ⌈seq_len_kv / 128⌉,), KV tiles fastest, so neighbours share Q and dO in L2; with a causal
          mask the first tile of a head is the longest, and up to four (batch, kv head) stand side by side; without one
          each program begins at another Q tile, 128 queries on
Tiles     k, v [128, WIDTH] stay in shared memory; q, do [BLOCK_M, WIDTH] with lse, delta [2, BLOCK_M] stream through
          rings of STAGES there; s, p, dp, ds [128, 64] in registers for 64 queries, ds in shared memory too, in two
          buffers in turn; dq [BLOCK_M, WIDTH] in registers, of each group one half; WIDTH is head_dim padded to 64 or
          128, BLOCK_M 128 or 64
State     dk, dv [128, WIDTH], float32, in registers, over all query heads of the group
Barriers  for each stage: q_full and do_full, which open when the bytes are there; empty, when both groups have arrived;
          the n-th use of a stage waits for parity n & 1 of full, and for the other one of empty. A hardware barrier of
          both groups a step stands between dS and its readers, see gradient_step.py
HBM       requested: see gradient_schedule.backward_launches (equals schedule(); counters test it on a GPU, and the
          order of the work is tested without one: Gluon has no interpreter)
L2↔SM     as flash_ws, see kernel.py
Numerics  P = 2^(S · sm_scale · log2 e − LSE · log2 e), hidden scores 0; products accumulate in float32, with P and dS
          rounded to the inputs' dtype; dQ is summed in float32 in whatever order programs come, so its last bits differ
          from run to run; rows and columns beyond a tensor are zeros, and queries there have an LSE of +inf; rows that
          attend to nothing have no part in a gradient; of NaN and infinity see backward.py
Paper     Shah et al. 2024, FlashAttention-3, Appendix B.1; Dao 2023, FlashAttention-2, Algorithm 2
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared

from kernels.flash_ws.gradient_producer import produce_gradients
from kernels.flash_ws.gradient_step import consume_queries
from kernels.flash_ws.gradient_work import place_keys, tiles_seeing
from kernels.flash_ws.warps import CONSUMER_REGISTERS, FIRST, PRODUCER_REGISTERS, SECOND, barriers, full_and_empty


@gluon.jit(
    do_not_specialize=["heads", "kv_heads", "group", "section", "kv_tiles", "q_tiles", "seq_len_q", "seq_len_kv"]
)
def flash_ws_gradients(
    q_described, k_described, v_described, do_described, rows_described, dk_described, dv_described, sums,
    heads, kv_heads, group, section, kv_tiles, q_tiles, seq_len_q, seq_len_kv, sm_scale, scale,
    ROWS: gl.constexpr, BLOCK_M: gl.constexpr, WIDTH: gl.constexpr, STAGES: gl.constexpr, CAUSAL: gl.constexpr,
    PARTIAL: gl.constexpr, SECTIONS: gl.constexpr,
):  # fmt: skip
    """dK and dV of 2 · ROWS keys, and their share of dQ; see the head of this file."""
    batch, kv_head, tile = place_keys(gl.program_id(0), kv_tiles, kv_heads, section, SECTIONS)
    first, clear, last = tiles_seeing(tile, seq_len_q, seq_len_kv, BLOCK_M, 2 * ROWS, CAUSAL)
    turn = tile * (2 * ROWS // BLOCK_M) % q_tiles
    q_shared = gl.allocate_shared_memory(q_described.dtype, [STAGES, 1, 1, BLOCK_M, WIDTH], q_described.layout)
    do_shared = gl.allocate_shared_memory(do_described.dtype, [STAGES, 1, 1, BLOCK_M, WIDTH], do_described.layout)
    k_shared = gl.allocate_shared_memory(k_described.dtype, [2, 1, 1, ROWS, WIDTH], k_described.layout)
    v_shared = gl.allocate_shared_memory(v_described.dtype, [2, 1, 1, ROWS, WIDTH], v_described.layout)
    rows_shared = gl.allocate_shared_memory(gl.float32, [STAGES, 2, BLOCK_M], rows_described.layout)
    ds_layout: gl.constexpr = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    ds_shared = gl.allocate_shared_memory(q_described.dtype, [4 * BLOCK_M // 64, ROWS, 64], ds_layout)
    kv_full = barriers(2, 1)
    q_full, empty = full_and_empty(STAGES, 2)
    do_full = barriers(STAGES, 1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (consume_queries, (
                dk_described, dv_described, sums,
                q_shared, k_shared, v_shared, do_shared, rows_shared, ds_shared, kv_full, q_full, do_full, empty,
                batch, kv_head, heads, group, tile, first, clear, last, q_tiles, turn,
                seq_len_q, seq_len_kv, sm_scale, scale,
                FIRST, ROWS, BLOCK_M, WIDTH, STAGES, CAUSAL, PARTIAL,
            )),
            (consume_queries, (
                dk_described, dv_described, sums,
                q_shared, k_shared, v_shared, do_shared, rows_shared, ds_shared, kv_full, q_full, do_full, empty,
                batch, kv_head, heads, group, tile, first, clear, last, q_tiles, turn,
                seq_len_q, seq_len_kv, sm_scale, scale,
                SECOND, ROWS, BLOCK_M, WIDTH, STAGES, CAUSAL, PARTIAL,
            )),
            (produce_gradients, (
                q_described, k_described, v_described, do_described, rows_described,
                q_shared, k_shared, v_shared, do_shared, rows_shared, kv_full, q_full, do_full, empty,
                batch, kv_head, heads, group, tile, first, last, q_tiles, turn,
                ROWS, BLOCK_M, STAGES, CAUSAL,
            )),
        ],
        [4, 1], [CONSUMER_REGISTERS, PRODUCER_REGISTERS],
    )  # fmt: skip
