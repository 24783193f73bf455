"""Which tiles a program has, in Gluon; plain arithmetic, so that tests run it as Python beside the schedule."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def place(program, heads, group, q_tiles, section, LONGEST_FIRST: gl.constexpr):
    """(batch, head, KV head, Q tile) of a program, and its number in the Walk; see RowWalk.launch_order."""
    if LONGEST_FIRST:
        inside = program % (q_tiles * section)
        bh = program // (q_tiles * section) * section + inside % section
        turn = inside // section
        tile = q_tiles - 1 - turn
    else:
        bh = program // q_tiles
        turn = program % q_tiles
        tile = turn
    batch = bh // heads
    head = bh % heads
    return batch, head, head // group, tile, bh * q_tiles + turn


@gluon.jit
def tiles_seen(tile, seq_len_q, seq_len_kv, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """KV tiles that a Q tile reads: so many from tile 0 on, at least one."""
    end = seq_len_kv
    if CAUSAL:
        last = min(tile * BLOCK_M + BLOCK_M, seq_len_q)
        end = min(seq_len_kv, last + seq_len_kv - seq_len_q)
    return max((end + BLOCK_N - 1) // BLOCK_N, 1)


@gluon.jit
def tiles_clear(row, seq_len_q, seq_len_kv, n_tiles, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """How many of them, from tile 0 on, need no mask for the queries from `row` on."""
    clear = seq_len_kv
    if CAUSAL:
        clear = max(min(seq_len_kv, row + seq_len_kv - seq_len_q + 1), 0)
    return min(clear // BLOCK_N, n_tiles)
