"""What the warp-specialised kernel cannot run: it is written for one architecture, in a language still on its way."""

import re
from importlib.metadata import PackageNotFoundError, version

from kernels.base import GpuLimits
from kernels.described_limits import refuse_undescribed_rows
from kernels.flash_ws import gradient_schedule
from kernels.flash_ws.schedule import BLOCK_M, cut
from kernels.gpu_limits import refuse_grid
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.streamed_q_limits import refuse_backward_grid

TITLE = "Flash, warp-specialised"
HOPPER = (9, 0)
FIRST_TRITON, BEYOND_TRITON = (3, 6), (3, 8)


def why_not_on(gpu: GpuLimits | None) -> str:
    """Why nothing of it runs on a GPU, or on the CPU for None, as a sentence; empty where something may."""
    if gpu is None:
        return (
            f"{TITLE} is written in Gluon, for which Triton has no interpreter, so it runs only on a GPU of compute "
            "capability 9.0: choose flash_tma or flash, which are interpreted."
        )
    if gpu.compute_capability != HOPPER:
        major, minor = gpu.compute_capability
        return (
            f"{TITLE} is written for the warp groups of compute capability 9.0 (H100, H200), not for {major}.{minor} "
            f"({gpu.name}): choose flash_tma or flash."
        )
    return _why_not_this_triton()


def refuse(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    """Raise Refused for a device, dtype, mask or head_dim that the kernel does not take."""
    if reason := why_not_on(gpu):
        raise Refused(reason)
    refuse_problem(problem)
    refuse_grid(problem.batch * problem.heads * -(-problem.seq_len_q // BLOCK_M), "choose fewer heads")
    if not gradient_schedule.is_specialised(problem):
        refuse_backward_grid(problem, cut(problem, tile))
    elif problem.backward:
        ends = problem.batch * problem.heads * gradient_schedule.q_tiles_of(problem)
        refuse_grid(max(ends, gradient_schedule.programs(problem)), "choose fewer heads")


def refuse_problem(problem: AttentionProblem) -> None:
    """Raise Refused for a dtype, mask or head_dim that the kernel takes on no device."""
    if problem.dtype == "float32":
        raise Refused(f"{TITLE} multiplies 16-bit operands; choose float16 or bfloat16, or flash.")
    if problem.window is not None:
        raise Refused(f"{TITLE} has no window; choose none, or flash_tma or flash.")
    refuse_undescribed_rows(TITLE, problem)
    if problem.blind_queries >= BLOCK_M:
        raise Refused(
            f"{TITLE} reads at least one tile of keys for each {BLOCK_M} queries, and here the first "
            f"{problem.blind_queries:,} queries see none; choose flash_tma or flash."
        )


def _why_not_this_triton() -> str:
    try:
        installed = version("triton")
    except PackageNotFoundError:
        return f"{TITLE} needs Triton, which is not installed; install the versions of requirements.txt."
    found = re.match(r"(\d+)\.(\d+)", installed)
    if found is None or not FIRST_TRITON <= (int(found[1]), int(found[2])) < BEYOND_TRITON:
        return (
            f"{TITLE} is written in Gluon as Triton 3.6 and 3.7 have it, and Triton {installed} is installed; "
            "install the versions of requirements.txt, or choose flash_tma or flash."
        )
    return ""
