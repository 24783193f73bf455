"""How many CTAs one SM holds at once, and what stops it from holding more; pure arithmetic.

The rules are those of NVIDIA's occupancy calculator (CUDA C++ Best Practices Guide, "Calculating Occupancy", and the
tuning guide of each architecture).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

from kernels.gpu_limits import REGISTERS_PER_THREAD
from profiler.architecture import (
    REGISTER_UNIT,
    REGISTERS_PER_SM,
    SMALLEST_TENSOR_MEMORY,
    SUB_CORES,
    WARPS_PER_CTA,
    Architecture,
)
from profiler.target import GpuTarget

WARP_THREADS = 32
REGISTERS, SHARED_MEMORY, WARPS = "registers", "shared memory", "warps"
CTA_SLOTS, TENSOR_MEMORY = "CTA slots", "tensor memory"


@dataclass(frozen=True)
class CtaNeeds:
    """What one CTA takes: registers of each thread, warps, bytes of shared memory, columns of tensor memory."""

    registers: int
    num_warps: int
    shared_memory: int
    tensor_memory_columns: int = 0


@dataclass(frozen=True)
class TooMuch:
    """What a CTA needs above what a GPU gives one, in the unit that the sentence names."""

    what: str
    needed: int
    limit: int
    sentence: str


@dataclass(frozen=True)
class Occupancy:
    """CTAs that one SM holds at once, their warps / the most it can hold, and what of it runs out first (all that tie).

    `too_much` is set, and ctas_per_sm 0, where not even one CTA fits.
    """

    ctas_per_sm: int
    occupancy: float
    limited_by: tuple[str, ...]
    too_much: TooMuch | None = None

    @property
    def fits(self) -> bool:
        """Whether the GPU can launch it."""
        return self.too_much is None


@dataclass(frozen=True)
class Waves:
    """Programs / programs at once, and the share of the last wave that is filled: 1 where they come out even."""

    programs_at_once: int
    count: float
    last_filled: float


def occupancy_of(needs: CtaNeeds, gpu: GpuTarget) -> Occupancy:
    """How many such CTAs an SM of the GPU holds."""
    if (too_much := next(_excesses(needs, gpu), None)) is not None:
        return Occupancy(0, 0.0, (too_much.what,), too_much)
    room = {
        REGISTERS: _warps_by_registers(needs.registers) // needs.num_warps,
        WARPS: gpu.sm.warps_per_sm // needs.num_warps,
        CTA_SLOTS: gpu.sm.ctas_per_sm,
    }
    if shared := _shared_memory_given(needs.shared_memory, gpu.sm):
        room[SHARED_MEMORY] = gpu.sm.shared_memory_per_sm // shared
    if needs.tensor_memory_columns:
        room[TENSOR_MEMORY] = gpu.sm.tensor_memory_columns // _columns_given(needs.tensor_memory_columns)
    ctas = min(room.values())
    limited_by = tuple(what for what, most in room.items() if most == ctas)
    return Occupancy(ctas, ctas * needs.num_warps / gpu.sm.warps_per_sm, limited_by)


def waves_of(programs: int, occupancy: Occupancy, gpu: GpuTarget) -> Waves | None:
    """How often the GPU fills up with these programs; None where it cannot hold one."""
    at_once = occupancy.ctas_per_sm * gpu.sm_count
    if at_once == 0:
        return None
    return Waves(at_once, programs / at_once, ((programs - 1) % at_once + 1) / at_once)


def _excesses(needs: CtaNeeds, gpu: GpuTarget) -> Iterator[TooMuch]:
    """What one CTA needs more of than one CTA gets."""
    sm = gpu.sm
    if needs.shared_memory > sm.shared_memory_per_block:
        shared = f"{needs.shared_memory / 1024:.4g} KB of shared memory", f"{sm.shared_memory_per_block / 1024:.4g} KB"
        yield _too_much(gpu, SHARED_MEMORY, needs.shared_memory, sm.shared_memory_per_block, *shared)
    if needs.tensor_memory_columns > sm.tensor_memory_columns:
        columns = f"{needs.tensor_memory_columns} columns of tensor memory", f"{sm.tensor_memory_columns}"
        yield _too_much(gpu, TENSOR_MEMORY, needs.tensor_memory_columns, sm.tensor_memory_columns, *columns)
    most_warps = min(WARPS_PER_CTA, sm.warps_per_sm)
    if needs.num_warps > most_warps:
        yield _too_much(gpu, WARPS, needs.num_warps, most_warps, f"{needs.num_warps} warps", f"{most_warps}")
    if needs.registers > REGISTERS_PER_THREAD or _warps_by_registers(needs.registers) < needs.num_warps:
        needed, limit = needs.registers * needs.num_warps * WARP_THREADS, REGISTERS_PER_SM
        registers = (
            f"{needs.registers} registers in each of {needs.num_warps * WARP_THREADS} threads",
            f"{limit} in all",
        )
        yield _too_much(gpu, REGISTERS, needed, limit, *registers)


def _too_much(gpu: GpuTarget, what: str, needed: int, limit: int, needs: str, gives: str) -> TooMuch:
    return TooMuch(what, needed, limit, f"A program needs {needs}; {gpu.title} gives it {gives}.")


def _warps_by_registers(registers: int) -> int:
    """Warps that the register file holds: each is dealt to a sub-core, and gets its registers there, in whole units."""
    of_a_warp = _up_to_multiple(max(registers, 1) * WARP_THREADS, REGISTER_UNIT)
    return REGISTERS_PER_SM // SUB_CORES // of_a_warp * SUB_CORES


def _shared_memory_given(shared_memory: int, sm: Architecture) -> int:
    """Bytes that a CTA takes of its SM's shared memory: what it uses and what is reserved, in whole units."""
    return _up_to_multiple(shared_memory + sm.reserved_shared_memory, sm.shared_memory_unit)


def _columns_given(columns: int) -> int:
    """Columns that a CTA takes of its SM's tensor memory."""
    return max(SMALLEST_TENSOR_MEMORY, 1 << (columns - 1).bit_length())


def _up_to_multiple(value: int, unit: int) -> int:
    return math.ceil(value / unit) * unit
