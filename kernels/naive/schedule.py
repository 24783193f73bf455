"""Naive attention: launches over the whole score matrix, each reading its operands and writing its result."""

from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Launch, Schedule

SMALLEST_GEMM_TILE = 64
SOFTMAX_FLOPS = 4  # of a score: less the row's maximum, exp, plus the row's sum, over that sum
SOFTMAX_BACKWARD_FLOPS = 4  # of a score: dP times P, plus the row's sum, dP less that sum, times P


def schedule(problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """The launches with their operands' bytes, each operand counted once.

    What a library's GEMM or softmax re-reads inside one launch is not known from outside; compare L2↔SM bytes.
    Every launch works on the whole score matrix, whatever the mask hides, and its FLOP say so. `tile` does not matter:
    nothing is tiled here.
    """
    size, scores = problem.tensor_bytes, problem.score_bytes
    count = scores // problem.element_bytes
    product = 2 * count * problem.head_dim
    launches = [
        Launch("qk", {"q": size["q"], "k": size["k"]}, {"s": scores}, flops=product),
        Launch("scale", {"s": scores}, {"s": scores}, flops=count),
    ]
    if problem.is_masked:
        hidden = problem.seq_len_q * problem.seq_len_kv
        launches.append(Launch("mask", {"s": scores, "mask": hidden}, {"s": scores}, flops=0))
    launches.append(Launch("softmax", {"s": scores}, {"p": scores}, flops=SOFTMAX_FLOPS * count))
    # Queries that attend to nothing: their softmax is 0/0, and their P is set to 0.
    if blind := problem.blind_queries:
        launches.append(Launch("blind_rows", {}, {"p": scores // problem.seq_len_q * blind}, flops=0))
    launches.append(Launch("pv", {"p": scores, "v": size["v"]}, {"o": size["o"]}, flops=product))
    return Schedule("naive", problem, (*launches, *_backward(problem)))


def _backward(problem: AttentionProblem) -> tuple[Launch, ...]:
    """What autograd derives from the launches above: two products for each of theirs, softmax and scale once."""
    if not problem.backward:
        return ()
    size, scores = problem.tensor_bytes, problem.score_bytes
    count = scores // problem.element_bytes
    product = 2 * count * problem.head_dim
    return (
        Launch("dv", {"p": scores, "do": size["do"]}, {"dv": size["dv"]}, flops=product),
        Launch("dp", {"do": size["do"], "v": size["v"]}, {"dp": scores}, flops=product),
        # torch has two kernels for it: the first writes dP ∘ P, the second reads it, and P again for the sums' share.
        Launch(
            "ds",
            {"dp": scores, "p": 2 * scores, "dp_p": scores},
            {"dp_p": scores, "ds": scores},
            flops=SOFTMAX_BACKWARD_FLOPS * count,
        ),
        Launch("scale_ds", {"ds": scores}, {"ds": scores}, flops=count),
        Launch("dq", {"ds": scores, "k": size["k"]}, {"dq": size["dq"]}, flops=product),
        Launch("dk", {"ds": scores, "q": size["q"]}, {"dk": size["dk"]}, flops=product),
    )


def l2_sm_bounds(problem: AttentionProblem, tile: TileConfig) -> tuple[int, int]:
    """Fewest and most bytes that cross between L2 and the SMs, reads and writes together.

    Every operand crosses at least once. The library's products re-read theirs for every tile of the result, of which
    SMALLEST_GEMM_TILE × SMALLEST_GEMM_TILE is taken to be the smallest; each head reads the mask for itself.
    """
    size, scores = problem.tensor_bytes, problem.score_bytes
    rows = -(-problem.group * problem.seq_len_q // SMALLEST_GEMM_TILE)
    keys, columns = (-(-count // SMALLEST_GEMM_TILE) for count in (problem.seq_len_kv, problem.head_dim))
    found = schedule(problem, tile)
    fewest = found.requested_read_bytes + found.requested_write_bytes
    again = (keys - 1) * size["q"] + (rows - 1) * (size["k"] + size["v"]) + (columns - 1) * scores
    if problem.backward:  # dO twice, Q; V, K; P, dS twice
        again += (keys - 1) * 3 * size["q"] + (rows - 1) * (size["k"] + size["v"]) + (columns - 1) * 3 * scores
    masks = problem.batch * problem.heads - 1 if problem.is_masked else 0
    return fewest, fewest + again + masks * problem.seq_len_q * problem.seq_len_kv


def temporaries(problem: AttentionProblem, tile: TileConfig) -> dict[str, int]:
    """S and P are alive together while softmax runs; the boolean mask is there all along.

    Backward keeps P. dP, dP ∘ P and dS are alive beside it while softmax's gradient is made, before dQ and dK are;
    where these two take more than dP and dP ∘ P, the end is the peak.
    """
    size, scores = problem.tensor_bytes, problem.score_bytes
    mask = {"mask": problem.seq_len_q * problem.seq_len_kv} if problem.is_masked else {}
    if not problem.backward:
        return {"s": scores, "p": scores} | mask
    is_late = size["dq"] + size["dk"] > 2 * scores
    early = {"dp": scores, "dp_p": scores, "dq": 0, "dk": 0}
    return {"p": scores, "ds": scores} | ({} if is_late else early) | mask
