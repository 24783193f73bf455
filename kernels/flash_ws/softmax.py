"""The online softmax of one tile of scores that a warp group holds in registers, in Gluon."""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl

# From here on the rounding of m · scale, half of its last place, makes the weight of the largest score other than 1 by
# more than 2^-14: more than rounding to 16 bits would hide.
LARGE_FROM = gl.constexpr(1024.0)
SCORES = 32  # that one piece of assembly takes: 16 of each of the two rows that a thread has


def _lowering() -> str:
    """PTX that takes from each of SCORES scores its row's shift, in a branch that a warp without any shift leaves out.

    Of four scores that follow each other two are of one row and two of the other.
    """
    scores = [f"mov.f32 ${i}, ${SCORES + i};" for i in range(SCORES)]
    lower = [f"sub.f32 ${i}, ${i}, ${2 * SCORES + i};" for i in range(SCORES)]
    one, other = f"${2 * SCORES}", f"${2 * SCORES + 2}"
    return f"""{{
        .reg .pred some;
        {" ".join(scores)}
        setp.ne.f32 some, {one}, 0f00000000;
        setp.ne.or.f32 some, {other}, 0f00000000, some;
        vote.sync.any.pred some, some, 0xffffffff;
        @!some bra.uni none;
        {" ".join(lower)}
        none:
        }}"""


LOWERING = gl.constexpr(_lowering())
LOWERING_TAKES = gl.constexpr(",".join(["=f"] * SCORES + ["f"] * (2 * SCORES)))
PACK = gl.constexpr(SCORES)


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
def weighed(s, m_i, scale, MASKED: gl.constexpr):
    """The new m_i, alpha, and P = 2^((s − m) · scale), which is one multiplication and subtraction in one instruction.

    That rounds m · scale, not the difference: an error of its last place, which P and l share and the division takes
    out, but for the rounding of P to 16 bits. In rows where it counts, from LARGE_FROM on, m is subtracted first, which
    is exact.
    """
    m_new = gl.maximum(m_i, gl.max(s, 1))
    m_used = m_new
    if MASKED:
        # A row that has seen nothing yet has m = −inf; −inf − (−inf) would be NaN.
        m_used = gl.where(m_new == float("-inf"), 0.0, m_new)
    alpha = exp2((m_i - m_used) * scale)
    large = gl.abs(m_used) * scale >= LARGE_FROM
    s = gl.inline_asm_elementwise(
        LOWERING, LOWERING_TAKES, [s, gl.where(large, m_used, 0.0)[:, None]], dtype=gl.float32, is_pure=True, pack=PACK
    )
    p = exp2(s * scale - gl.where(large, 0.0, m_used * scale)[:, None])
    return m_new, alpha, p
