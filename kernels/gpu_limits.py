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


def refuse_wrong_product(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits) -> None:
    """Raise Refused for a product that Triton gets wrong on Hopper.

    Seen with Triton 3.6 on an H200: warpgroup products of 64 or more queries with more than 256 keys wider than 64, in
    16 bits, were off by 0.9 of the result; with fewer of any of these, or in float32, all were right.
    """
    is_warpgroup = gpu.compute_capability[0] == 9 and tile.BLOCK_M >= 64 and problem.element_bytes == 2
    if is_warpgroup and tile.BLOCK_N > 256 and problem.padded_head_dim > 64:
        raise Refused(
            f"On Hopper, Triton multiplies {tile.BLOCK_M} queries by {tile.BLOCK_N} keys of head_dim "
            f"{problem.head_dim} at once wrongly (seen with Triton 3.6 on an H200); "
            "choose BLOCK_M 32 or less, or at most 256 keys at once."
        )


def register_bytes(num_warps: int) -> int:
    """Bytes of registers that one program of so many warps can have, alone on its SM."""
    return min(num_warps * 32 * REGISTERS_PER_THREAD * 4, REGISTER_FILE_BYTES)
