"""Which tiles a program has, in Gluon; plain arithmetic, so that tests run it as Python beside the schedule.

An item is a Q tile of a (batch, head), counted in the order in which they are begun. A program has the item of its own
number, one of a persistent grid every so many-th.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def nth_item(n, program, programs, LONGEST_FIRST: gl.constexpr):
    """The n-th item of a program of a persistent grid: one of each wave of them.

    Where items fall in length, every second wave is dealt out the other way round: who had the longest of one has the
    shortest of the next.
    """
    at = program
    if LONGEST_FIRST:
        at += n % 2 * (programs - 1 - 2 * program)
    return n * programs + at


@gluon.jit
def items_of(program, programs, items, LONGEST_FIRST: gl.constexpr):
    """How many items a program of a persistent grid has: one of each full wave, and maybe one of the last."""
    full = items // programs
    return full + (nth_item(full, program, programs, LONGEST_FIRST) < items)


@gluon.jit
def place(item, heads, group, q_tiles, section, LONGEST_FIRST: gl.constexpr):
    """(batch, head, KV head, Q tile) of an item, and its number in the Walk; see RowWalk.launch_order."""
    if LONGEST_FIRST:
        inside = item % (q_tiles * section)
        bh = item // (q_tiles * section) * section + inside % section
        turn = inside // section
        tile = q_tiles - 1 - turn
    else:
        bh = item // q_tiles
        turn = item % q_tiles
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
