"""The online softmax of one tile of scores that a warp group holds in registers, in Gluon."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# From |m| · scale = 2^28 on, neighbouring float32 exponents are 16 or more apart.
COARSE_FROM = gl.constexpr(268435456.0)


@gluon.jit
def exp2(x):
    """2^x by the special function unit, what is subnormal as 0."""
    return gl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1)


@gluon.jit
def masked(s, j, row, seq_len_q, seq_len_kv, ROWS: gl.constexpr, BLOCK_N: gl.constexpr, CAUSAL: gl.constexpr):
    """Scores of KV tile j and the queries from `row` on, −inf where the mask hides a key or where there is none."""
    cols = j * BLOCK_N + gl.arange(0, BLOCK_N, layout=gl.SliceLayout(0, s.type.layout))
    if CAUSAL:
        rows = row + gl.arange(0, ROWS, layout=gl.SliceLayout(1, s.type.layout))
        end = gl.minimum(rows + (seq_len_kv - seq_len_q + 1), seq_len_kv)
        return gl.where(cols[None, :] < end[:, None], s, float("-inf"))
    return gl.where((cols < seq_len_kv)[None, :], s, float("-inf"))


@gluon.jit
def sum_of_lanes(p, ROWS: gl.constexpr, BLOCK_N: gl.constexpr):
    """What each of the four lanes that share a row of P has of its sum, [ROWS, 4]: adding them up waits for the end."""
    return gl.sum(gl.sum(p.reshape([ROWS, BLOCK_N // 8, 4, 2]), 3), 1)


@gluon.jit
def weighed(s, m_i, scale, coarse, MASKED: gl.constexpr):
    """The new m_i, alpha, and P = 2^((s − m) · scale), whose exponent is one instruction.

    That rounds m · scale, not the difference: an error of its last place, which P and l share and the division takes
    out, and which overflows P only from COARSE_FROM on. There scores are equal or so far apart that a weight is 1 or
    nothing; `coarse`, the power of two below scale, makes m · scale exact and leaves it so.
    """
    m_new = gl.maximum(m_i, gl.max(s, 1))
    m_used = m_new
    if MASKED:
        # A row that has seen nothing yet has m = −inf; −inf − (−inf) would be NaN.
        m_used = gl.where(m_new == float("-inf"), 0.0, m_new)
    row_scale = gl.where(gl.abs(m_used) * scale < COARSE_FROM, scale, coarse)
    alpha = exp2((m_i - m_used) * row_scale)
    p = exp2(s * row_scale[:, None] - (m_used * row_scale)[:, None])
    return m_new, alpha, p
