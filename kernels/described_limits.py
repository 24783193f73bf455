"""What kernels cannot run that read tiles by tensor descriptors, told before anything is compiled or launched."""

from kernels.base import GpuLimits
from kernels.problem import AttentionProblem, Refused

DESCRIBED_BYTES = 16  # what the address and every stride of a described tensor must be a multiple of
FIRST_TMA = (9, 0)


def refuse_undescribed_rows(title: str, problem: AttentionProblem) -> None:
    """Raise Refused for rows whose length no descriptor can hold, interpreted too."""
    multiple = DESCRIBED_BYTES // problem.element_bytes
    if problem.head_dim % multiple:
        near = -(-problem.head_dim // multiple) * multiple
        raise Refused(
            f"{title} reads tiles by tensor descriptors, whose rows are multiples of {DESCRIBED_BYTES} bytes, so "
            f"head_dim in {problem.dtype} is a multiple of {multiple}; it is {problem.head_dim}: "
            f"choose {near}, or flash."
        )


def refuse_without_tma(title: str, gpu: GpuLimits) -> None:
    """Raise Refused for a GPU that has no Tensor Memory Accelerator."""
    if gpu.compute_capability < FIRST_TMA:
        major, minor = gpu.compute_capability
        raise Refused(
            f"{title} wants the Tensor Memory Accelerator of compute capability 9.0, and {gpu.name} has "
            f"{major}.{minor}: choose flash."
        )
