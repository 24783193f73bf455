"""Whose memory is measured alone: what such a kernel allocates, and so how it grows, has no closed form here."""

from kernels.own import is_own
from profiler.ncu_import import is_imported
from profiler.own_kernel import OWN_ALLOCATES

ELSEWHERE = "profiled elsewhere: what it allocates is not known"


def why_unpredicted(kernel: str) -> str:
    """Why the memory of a kernel is not predicted; empty where it is."""
    if is_imported(kernel):
        return ELSEWHERE
    return OWN_ALLOCATES if is_own(kernel) else ""
