"""Which keys and queries a program of the backward pass has, and where its sums of dQ stand, in Gluon.

Plain arithmetic, so that tests run it as Python beside the schedule.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def place_keys(program, kv_tiles, kv_heads, section, SECTIONS: gl.constexpr):
    """(batch, KV head, KV tile) of a program; with SECTIONS so many (batch, KV head) stand side by side."""
    if SECTIONS:
        inside = program % (kv_tiles * section)
        bh = program // (kv_tiles * section) * section + inside % section
        tile = inside // section
    else:
        bh = program // kv_tiles
        tile = program % kv_tiles
    return bh // kv_heads, bh % kv_heads, tile


@gluon.jit
def tiles_seeing(tile, seq_len_q, seq_len_kv, BLOCK_M: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """(first, clear, last): Q tiles [first, last) see a KV tile, [clear, last) without a mask.

    There always is one, since the last query sees every key. A Q tile that reaches beyond the queries needs no mask:
    what does not exist has an LSE of +inf. Of a KV tile that reaches beyond the keys each one does.
    """
    last = (seq_len_q + BLOCK_M - 1) // BLOCK_M
    first = 0
    clear = 0
    if CAUSAL:
        # Queries that stand at the tile's first and last key.
        top = tile * BLOCK_N - (seq_len_kv - seq_len_q)
        bottom = min(tile * BLOCK_N + BLOCK_N, seq_len_kv) - 1 - (seq_len_kv - seq_len_q)
        first = max(top, 0) // BLOCK_M
        clear = min((max(bottom, 0) + BLOCK_M - 1) // BLOCK_M, last)
    if (tile + 1) * BLOCK_N > seq_len_kv:
        clear = last
    return first, clear, last


@gluon.jit
def q_tile_of(i, turn, last, CAUSAL: gl.constexpr):
    """The Q tile of round i; without a causal mask each program starts at another, so that their adds do not meet."""
    j = i
    if not CAUSAL:
        j = i + turn
        if j >= last:
            j -= last
    return j


@gluon.jit
def sum_place(row, col):
    """Where in a half of a tile's sums, [64, 64], a thread has the four of which the first is dQ[row, col]."""
    return row // 16 * 128 + row % 8 * 16 + (col // 8 * 512 + col % 8 // 2 * 4)
