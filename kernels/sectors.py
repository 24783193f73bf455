"""Bytes in the sectors in which L2 hands them over."""

from kernels.problem import AttentionProblem
from kernels.schedule import Schedule

SECTOR_BYTES = 32


def whole_sectors(problem: AttentionProblem, plan: Schedule) -> int:
    """The requested bytes of a schedule in whole sectors, at most.

    Rows that do not fill sectors may begin and end within one.
    """
    row = problem.head_dim * problem.element_bytes
    touched = row if row % SECTOR_BYTES == 0 else (row // SECTOR_BYTES + 2) * SECTOR_BYTES
    requested = plan.requested_read_bytes + plan.requested_write_bytes
    return -(-requested * touched // row)
