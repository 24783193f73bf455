"""What every Triton kernel must fit: the grid, the matrix units' smallest block, the dtypes, the registers."""

from kernels.base import GpuLimits
from kernels.problem import MAX_PROGRAMS, AttentionProblem, Refused, TileConfig

SMALLEST_GPU_BLOCK = 16  # tl.dot's smallest tile
MAX_TENSOR_ELEMENTS = 2**20  # of one tensor in a program: Triton's limit, interpreted too

# Of one SM, and the most one thread can name, on every GPU from Volta on (CUDA C++ Programming Guide).
REGISTER_FILE_BYTES = 256 * 1024
REGISTERS_PER_THREAD = 255


def refuse_grid(programs: int, advice: str) -> None:
    """Raise Refused for more programs than a grid has; `advice` says how to have fewer."""
    if programs > MAX_PROGRAMS:
        raise Refused(f"The grid has {programs:,} programs, above {MAX_PROGRAMS:,}; {advice}.")


def refuse_small_blocks(tile: TileConfig, *names: str) -> None:
    """Raise Refused for a block that is too small for a GPU's matrix units."""
    for name in names:
        if getattr(tile, name) < SMALLEST_GPU_BLOCK:
            raise Refused(
                f"{name} is {getattr(tile, name)}, but a GPU's matrix units want at least {SMALLEST_GPU_BLOCK}; "
                f"choose {SMALLEST_GPU_BLOCK} or more, or device cpu, where the kernel is interpreted."
            )


def refuse_bfloat16(problem: AttentionProblem, gpu: GpuLimits) -> None:
    """Raise Refused for bfloat16 on a GPU that has none."""
    if problem.dtype == "bfloat16" and gpu.compute_capability < (8, 0):
        raise Refused(f"{gpu.name} has no bfloat16 (it came with compute capability 8.0); choose float16.")


def register_bytes(num_warps: int) -> int:
    """Bytes of registers that one program of so many warps can have, alone on its SM."""
    return min(num_warps * 32 * REGISTERS_PER_THREAD * 4, REGISTER_FILE_BYTES)
