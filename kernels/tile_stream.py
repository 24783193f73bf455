"""One Q tile and the KV tiles that stream past it, in Triton: the loop of flash attention."""

import triton
import triton.language as tl

from kernels.online_tile import attend_tile, load_rows, record_state


@triton.jit
def walk_tiles(
    q, k_rows, v_rows, stride_ks, stride_vs, offs_m, offs_d, mask_d, bounds, backward,
    seq_len_q, seq_len_kv, window, sm_scale, head_dim, record,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, TURNS: tl.constexpr,
    PARTIAL: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    RECORD: tl.constexpr,
):  # fmt: skip
    """See stream_tiles; with RECORD the state after each tile is stored."""
    first, full_first, full_last, last = bounds
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
                k = load_rows(k_rows, offs_n, stride_ks, seq_len_kv, mask_d, UPCAST)  # [BLOCK_N, HEAD_DIM]
                m_i, l_i, acc, alpha, s = attend_tile(
                    q, k, v_rows, stride_vs, offs_m, offs_n, m_i, l_i, acc, mask_d,
                    seq_len_q, seq_len_kv, window, sm_scale, stage != 1, CAUSAL, WINDOW, GUARD_V, UPCAST,
                )  # fmt: skip
                if RECORD:
                    record_state(
                        record, offs_m, offs_n, offs_d, mask_d, j, m_i, l_i, alpha, acc, s,
                        seq_len_kv, head_dim, sm_scale, BLOCK_M, BLOCK_N,
                    )  # fmt: skip
    return m_i, l_i, acc


@triton.jit
def stream_tiles(
    q, k_rows, v_rows, stride_ks, stride_vs, start_m, offs_m, offs_d, mask_d, bounds, backward,
    seq_len_q, seq_len_kv, window, sm_scale, head_dim, traced, record,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, HEAD_DIM: tl.constexpr, TURNS: tl.constexpr,
    PARTIAL: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr, GUARD_V: tl.constexpr, UPCAST: tl.constexpr,
    TRACE: tl.constexpr,
):  # fmt: skip
    """m_i, l_i and acc of the queries offs_m of Q tile start_m over the KV tiles of `bounds`, from visible_tiles.

    With TURNS, `backward` makes them go from the last tile to the first. PARTIAL says that some tile may need a mask.
    With TRACE, where `traced`, the state after each tile is stored as record_state does.
    """
    records = False
    if TRACE:
        # row_stop and row_start, as record_state takes them out of `record`.
        records = traced & (start_m * BLOCK_M < record[7]) & ((start_m + 1) * BLOCK_M > record[6])
    # Recording takes the state out of the matrix units' pipeline at each step: only programs of recorded rows pay that.
    if records:
        m_i, l_i, acc = walk_tiles(
            q, k_rows, v_rows, stride_ks, stride_vs, offs_m, offs_d, mask_d, bounds, backward,
            seq_len_q, seq_len_kv, window, sm_scale, head_dim, record,
            BLOCK_M, BLOCK_N, HEAD_DIM, TURNS, PARTIAL, CAUSAL, WINDOW, GUARD_V, UPCAST, True,
        )  # fmt: skip
    else:
        m_i, l_i, acc = walk_tiles(
            q, k_rows, v_rows, stride_ks, stride_vs, offs_m, offs_d, mask_d, bounds, backward,
            seq_len_q, seq_len_kv, window, sm_scale, head_dim, record,
            BLOCK_M, BLOCK_N, HEAD_DIM, TURNS, PARTIAL, CAUSAL, WINDOW, GUARD_V, UPCAST, False,
        )  # fmt: skip
    return m_i, l_i, acc
