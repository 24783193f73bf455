"""Short names for Runs of one problem or of several: what differs between the problems stands behind the kernel's."""

from collections.abc import Callable, Sequence

from app.selection import names
from kernels.problem import AttentionProblem
from profiler.run import Run

# What can tell two problems apart, in the order in which a reader would ask.
_DIFFERENCES: tuple[Callable[[AttentionProblem], str], ...] = (
    lambda problem: problem.dtype,
    lambda problem: f"S {problem.seq_len_q:,}",
    lambda problem: f"{problem.seq_len_kv:,} keys",
    lambda problem: "causal" if problem.causal else "full",
    lambda problem: "no window" if problem.window is None else f"window {problem.window:,}",
    lambda problem: "forward + backward" if problem.backward else "forward",
    lambda problem: f"B {problem.batch}",
    lambda problem: f"H {problem.heads}",
    lambda problem: f"KV {problem.kv_heads}",
    lambda problem: f"D {problem.head_dim}",
)


def named(runs: Sequence[Run]) -> tuple[str, ...]:
    """As selection.names among the Runs of a problem, followed by what differs between the problems."""
    problems = list(dict.fromkeys(run.workload.problem for run in runs))
    telling: list[Callable[[AttentionProblem], str]] = []
    for difference in _DIFFERENCES:
        told = {tuple(each(problem) for each in telling) for problem in problems}
        if len({(*(each(problem) for each in telling), difference(problem)) for problem in problems}) > len(told):
            telling.append(difference)
    found = [""] * len(runs)
    for problem in problems:
        places = [place for place, run in enumerate(runs) if run.workload.problem == problem]
        words = [difference(problem) for difference in telling]
        for place, name in zip(places, names([runs[place] for place in places]), strict=True):
            found[place] = " ".join((name, *words))
    return tuple(found)
