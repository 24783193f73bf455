"""What an SM of each compute capability has; plain numbers, free of torch and of any GPU."""

from dataclasses import dataclass

from kernels.gpu_limits import REGISTER_FILE_BYTES

KiB = 2**10
REGISTER_BYTES = 4
# The same on every GPU from Volta on.
REGISTERS_PER_SM = REGISTER_FILE_BYTES // REGISTER_BYTES
SUB_CORES = 4  # of an SM; each has a quarter of its registers and runs its warps from them
REGISTER_UNIT = 256  # registers are given to a warp in such steps
WARPS_PER_CTA = 32


@dataclass(frozen=True)
class Architecture:
    """What one SM has, and how it is given to CTAs; bytes unless named otherwise.

    reserved_shared_memory is what the system keeps of each CTA's; shared_memory_unit is the step in which a CTA gets
    it. tensor_memory_columns are given in powers of two from SMALLEST_TENSOR_MEMORY up.
    """

    shared_memory_per_sm: int
    shared_memory_per_block: int
    warps_per_sm: int
    ctas_per_sm: int
    fp32_cores: int
    reserved_shared_memory: int = 1 * KiB
    shared_memory_unit: int = 128
    tensor_memory_columns: int = 0


SMALLEST_TENSOR_MEMORY = 32  # columns

_AMPERE = Architecture(164 * KiB, 163 * KiB, warps_per_sm=64, ctas_per_sm=32, fp32_cores=64)
_AMPERE_SMALL = Architecture(100 * KiB, 99 * KiB, warps_per_sm=48, ctas_per_sm=16, fp32_cores=128)
_ADA = Architecture(100 * KiB, 99 * KiB, warps_per_sm=48, ctas_per_sm=24, fp32_cores=128)
_HOPPER = Architecture(228 * KiB, 227 * KiB, warps_per_sm=64, ctas_per_sm=32, fp32_cores=128)
_BLACKWELL = Architecture(
    228 * KiB, 227 * KiB, warps_per_sm=64, ctas_per_sm=32, fp32_cores=128, tensor_memory_columns=512
)

# CUDA C++ Programming Guide, technical specifications and arithmetic throughput; PTX ISA, tcgen05.
ARCHITECTURES = {
    (7, 0): Architecture(96 * KiB, 96 * KiB, 64, 32, 64, reserved_shared_memory=0, shared_memory_unit=256),
    (7, 5): Architecture(64 * KiB, 64 * KiB, 32, 16, 64, reserved_shared_memory=0, shared_memory_unit=256),
    (8, 0): _AMPERE,
    (8, 6): _AMPERE_SMALL,
    (8, 7): Architecture(164 * KiB, 163 * KiB, warps_per_sm=48, ctas_per_sm=16, fp32_cores=128),
    (8, 9): _ADA,
    (9, 0): _HOPPER,
    (10, 0): _BLACKWELL,
    (10, 3): _BLACKWELL,
    (12, 0): _ADA,
    (12, 1): _ADA,
}
