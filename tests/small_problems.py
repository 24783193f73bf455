"""Problems and tiles so small that the interpreter goes through thirty of them in seconds."""

from hypothesis import strategies as st

from kernels.problem import ELEMENT_BYTES, AttentionProblem, TileConfig

BLOCKS = st.sampled_from([4, 8])


@st.composite
def small_works(draw_: st.DrawFn) -> tuple[AttentionProblem, TileConfig]:
    """Every mask, more queries than keys and fewer, ragged edges, grouped heads."""
    batch, heads, kv_heads = draw_(st.sampled_from([(1, 1, 1), (1, 2, 1), (2, 1, 1)]))
    problem = AttentionProblem(
        batch=batch,
        heads=heads,
        kv_heads=kv_heads,
        seq_len_q=draw_(st.integers(1, 20)),
        seq_len_kv=draw_(st.integers(1, 20)),
        head_dim=draw_(st.sampled_from([1, 5, 16])),
        dtype=draw_(st.sampled_from(list(ELEMENT_BYTES))),
        causal=draw_(st.booleans()),
        window=draw_(st.none() | st.integers(1, 12)),
    )
    return problem, TileConfig(draw_(BLOCKS), draw_(BLOCKS))
