"""GQA packing: the query heads that share a K/V head as rows of one Q tile, so that K and V are read once for all."""

from dataclasses import replace

from kernels.problem import AttentionProblem


def packed(problem: AttentionProblem) -> AttentionProblem:
    """The same attention with the query heads of a K/V head as its queries: Q and O [batch, kv_heads, group, head_dim].

    Only where a head has one query and no window: that query stands at the last key, so causal hides nothing from it,
    and all rows see all keys. Otherwise it is the problem itself, as it is where heads share nothing.
    """
    if problem.seq_len_q > 1 or problem.window is not None or problem.group == 1:
        return problem
    return replace(problem, heads=problem.kv_heads, seq_len_q=problem.group, causal=False)
