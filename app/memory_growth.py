"""How memory grows with the sequence length: the closed form of a kernel, and where a GPU is full; pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from app.unpredicted import why_unpredicted
from kernels.problem import MAX_SEQ_LEN, AttentionProblem, Refused, TileConfig
from profiler.memory_model import peak_tensors
from profiler.workload import Workload

SHORTEST = 64
POINTS = 49


@dataclass(frozen=True)
class Measured:
    """What a Run allocated at its peak; `where` tells the GPU."""

    kernel: str
    seq_len: int
    allocated: float
    where: str


def is_square(problem: AttentionProblem) -> bool:
    """Whether queries and keys grow together; where they differ, keys and values grow alone."""
    return problem.seq_len_q == problem.seq_len_kv


def at(problem: AttentionProblem, seq_len: int) -> AttentionProblem:
    """The problem with another sequence length. Raises Refused."""
    return replace(problem, seq_len_q=seq_len if is_square(problem) else problem.seq_len_q, seq_len_kv=seq_len)


def length_of(problem: AttentionProblem, other: AttentionProblem) -> int | None:
    """The sequence length of another problem that is this one but for that; None where it is not."""
    same = is_square(other) if is_square(problem) else other.seq_len_q == problem.seq_len_q
    return other.seq_len_kv if same and at(problem, other.seq_len_kv) == other else None


def need(workload: Workload, seq_len: int) -> int | None:
    """Bytes of the tensors that are alive at the peak; None where the kernel has no tile for that length.

    And None of a kernel whose memory is not predicted.
    """
    kernel = workload.attention_kernel
    if why_unpredicted(kernel.name):
        return None
    try:
        problem = at(workload.problem, seq_len)
        tile = None if workload.tile is None else kernel.cut(problem, workload.tile)
    except Refused:
        return None
    return sum(peak_tensors(kernel, problem, tile or TileConfig()).values())


def full_at(workload: Workload, capacity_bytes: float) -> int | None:
    """The longest sequence whose tensors fit into so many bytes; None where none does, or all of MAX_SEQ_LEN do."""
    low, high = 0, MAX_SEQ_LEN
    if (need(workload, high) or 0) <= capacity_bytes:
        return None
    while high - low > 1:
        middle = (low + high) // 2
        size = need(workload, middle)
        if size is not None and size <= capacity_bytes:
            low = middle
        else:
            high = middle
    return low or None


def lengths(seen: Sequence[int], ends: Sequence[int | None]) -> list[int]:
    """Sequence lengths to draw, evenly spread on a logarithmic axis, around what was seen and where a GPU is full."""
    known = [*seen, *(end for end in ends if end is not None)]
    low, high = max(SHORTEST, min(seen) // 8), min(MAX_SEQ_LEN, 2 * max(known))
    return sorted({int(length) for length in np.geomspace(low, max(high, 2 * low), POINTS)})
