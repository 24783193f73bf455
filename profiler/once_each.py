"""What the compulsory bytes of a problem are, in words."""

from kernels.problem import AttentionProblem


def once_each(problem: AttentionProblem) -> str:
    """Which tensors are read once, and which are written once."""
    return (
        "inputs and dO read once; O, dQ, dK, dV written once"
        if problem.backward
        else "inputs read once, O written once"
    )
