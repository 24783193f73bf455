"""The warp-specialised backward pass: its three launches in bytes, and what a program of it holds on chip."""

from kernels.flash_ws.sections import side_by_side
from kernels.on_chip import REGISTERS, SHARED, Held
from kernels.problem import FLOAT32_BYTES, AttentionProblem
from kernels.schedule import Launch
from kernels.streamed_q import seen_by_tiles

BLOCK_M = {64: 128, 128: 64}  # queries of a step, by width
PART = 64  # of them in one product
BLOCK_N = 128  # keys that stay, half of them in each warp group
ROWS = BLOCK_N // 2
STAGES = 2  # tiles of Q and of dO at once


def is_specialised(problem: AttentionProblem) -> bool:
    """Whether the backward pass is written for this head_dim, up to 128; others have that of flash_tma."""
    return width_of(problem) in BLOCK_M


def width_of(problem: AttentionProblem) -> int:
    """head_dim as tiles hold it: at least the 128 bytes of one row of shared memory."""
    return max(64, problem.padded_head_dim)


def block_m_of(problem: AttentionProblem) -> int:
    """Queries of a step."""
    return BLOCK_M[width_of(problem)]


def q_tiles_of(problem: AttentionProblem) -> int:
    """Tiles of block_m_of queries, of one (batch, head)."""
    return -(-problem.seq_len_q // block_m_of(problem))


def backward_launches(problem: AttentionProblem) -> tuple[Launch, ...]:
    """delta, gradients and dq; none without a backward pass.

    `delta` reads LSE, O and dO once; it writes LSE · log2 e and delta of each Q tile side by side, and clears the sums
    of dQ. A program of `gradients` reads K and V of its tile once; of each head that shares them Q, dO, LSE and delta
    of the Q tiles that see it; and adds to the sums of these in float32, whole tiles as wide as width_of. An element
    that is added counts as a write of 4 bytes and as no read: it is L2 that adds. `dq` reads those sums that are of dQ,
    scales and rounds them.
    """
    if not problem.backward:
        return ()
    size, more = problem.tensor_bytes, backward_temporaries(problem)
    copies, seen = problem.batch * problem.heads, seen_by_tiles(problem, block_m_of(problem), BLOCK_N)
    rows, elements = copies * problem.seq_len_q, size["q"] // problem.element_bytes

    def streamed(tensor: str) -> int:
        return size[tensor] // problem.seq_len_q * seen.rows

    def by_tiles(tensor: str) -> int:
        return more[tensor] // q_tiles_of(problem) * seen.tiles

    return (
        Launch("delta", {name: size[name] for name in ("o", "do", "lse")}, more, flops=2 * elements + rows),
        Launch(
            "gradients",
            {"k": size["k"], "v": size["v"], "q": streamed("q"), "do": streamed("do")}
            | {"lse_delta": by_tiles("lse_delta")},
            {"dq_sum": by_tiles("dq_sum"), "dk": size["dk"], "dv": size["dv"]},
            on_chip=held(problem),
            flops=10 * copies * seen.scores * problem.head_dim,
            visits=copies * seen.tiles,
        ),
        Launch("dq", {"dq_sum": elements * FLOAT32_BYTES}, {"dq": size["dq"]}, flops=elements),
    )


def backward_temporaries(problem: AttentionProblem) -> dict[str, int]:
    """Bytes of LSE and delta side by side, and of the sums of dQ, both float32 and in whole Q tiles."""
    if not problem.backward:
        return {}
    rows = problem.batch * problem.heads * q_tiles_of(problem) * block_m_of(problem)
    return {"lse_delta": 2 * rows * FLOAT32_BYTES, "dq_sum": rows * width_of(problem) * FLOAT32_BYTES}


def section_of(problem: AttentionProblem) -> int:
    """How many (batch, kv head) are launched side by side: with a causal mask, as many as share what stays in L2.

    The longest programs of several heads start together, and the shortest of them fill the gaps. What programs of one
    (batch, kv head) share are Q, dO and the sums of dQ of its query heads.
    """
    if not problem.causal:
        return 1
    size, copies = problem.tensor_bytes, problem.batch * problem.kv_heads
    return side_by_side(copies, (size["q"] + size["do"] + backward_temporaries(problem)["dq_sum"]) // copies)


def programs(problem: AttentionProblem) -> int:
    """One for each tile of keys of each (batch, kv head)."""
    return problem.batch * problem.kv_heads * -(-problem.seq_len_kv // BLOCK_N)


def held(problem: AttentionProblem) -> tuple[Held, ...]:
    """What a program of `gradients` holds, half of the keys in each group."""
    block_m, width, dtype = block_m_of(problem), width_of(problem), problem.dtype
    q, kv, s = (block_m, width), (BLOCK_N, width), (BLOCK_N, PART)
    streams = f"one step, {STAGES} in flight"
    return (
        Held("K", "k", kv, dtype, SHARED, "all steps"),
        Held("V", "v", kv, dtype, SHARED, "all steps"),
        Held("Q", "q", q, dtype, SHARED, streams),
        Held("dO", "do", q, dtype, SHARED, streams),
        Held("LSE, delta", "lse_delta", (2, block_m), "float32", SHARED, streams),
        Held("dS", "ds", (BLOCK_N, block_m), dtype, SHARED, "until the next step's, in another buffer, is there"),
        Held("S", "s", s, "float32", REGISTERS, f"{PART} queries of a step"),
        Held("dP", "dp", s, "float32", REGISTERS, f"{PART} queries of a step"),
        Held("dQ", "dq", q, "float32", REGISTERS, "one step"),
        Held("dK", "dk", kv, "float32", REGISTERS, "all steps"),
        Held("dV", "dv", kv, "float32", REGISTERS, "all steps"),
    )
