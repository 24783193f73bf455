"""What a compiled kernel takes of a GPU: registers, spills, shared memory; and how many programs a GPU then holds."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernels.base import AttentionKernel, all_kernels
from kernels.problem import PERSISTENT, AttentionProblem, Refused, TileConfig
from profiler.architecture import ARCHITECTURES
from profiler.occupancy import CtaNeeds, Occupancy, Waves, occupancy_of, waves_of
from profiler.target import GpuTarget, spell


@dataclass(frozen=True)
class Configuration:
    """One thing to compile. Raises Refused for a kernel that is not ours to compile, or a tile it does not use."""

    kernel: str
    problem: AttentionProblem
    tile: TileConfig
    compute_capability: tuple[int, int]

    def __post_init__(self) -> None:
        found = all_kernels().get(self.kernel)
        compiled = [name for name, kernel in all_kernels().items() if kernel.is_triton]
        if found is None:
            raise Refused(f"Kernel {self.kernel[:40]!r} is not known; choose {', '.join(compiled)}.")
        if not found.is_triton:
            raise Refused(
                f"{found.title} is no Triton kernel of Bytescope's: its code comes compiled with torch, which does not "
                f"tell what it takes; choose {', '.join(compiled)}."
            )
        found.refuse_backward(self.problem)
        if self.compute_capability not in ARCHITECTURES:
            known = ", ".join(map(spell, ARCHITECTURES))
            raise Refused(f"Compute capability {spell(self.compute_capability)} is not known; choose {known}.")
        if (used := found.cut(self.problem, self.tile)) != self.tile:
            raise Refused(f"Kernel {self.kernel} does not use {self.tile}; for this problem it uses {used}.")

    @property
    def attention_kernel(self) -> AttentionKernel:
        """The kernel's light half."""
        return all_kernels()[self.kernel]


@dataclass(frozen=True)
class Code:
    """Where the cache keeps a launch's code: the SHA-256 of each text and of the cubin."""

    ptx: str
    ttgir: str
    cubin: str


@dataclass(frozen=True)
class LaunchResources:
    """What one launch takes: registers and spill_bytes of a thread, the rest of a CTA; and the programs of its grid.

    A persistent grid has as many programs as a GPU holds, and no more than `programs`.

    registers is ptxas's count, REG, what the driver calls NUM_REGS; spill_bytes is a thread's local memory, STACK +
    LOCAL, what the driver calls LOCAL_SIZE_BYTES and Triton, in words of 4 bytes, n_spills. shared_memory is in bytes,
    what is reserved not included; num_warps are those that run, with those that Triton adds.
    """

    launch: str
    registers: int
    spill_bytes: int
    shared_memory: int
    tensor_memory_columns: int
    num_warps: int
    programs: int
    code: Code

    def __post_init__(self) -> None:
        limits = {
            "registers": (0, 2**16), "spill_bytes": (0, 2**30), "shared_memory": (0, 2**30),
            "tensor_memory_columns": (0, 2**16), "num_warps": (1, 64), "programs": (1, 2**31),
        }  # fmt: skip
        for name, (low, high) in limits.items():
            if not low <= getattr(self, name) <= high:
                raise ValueError(f"{name} is {getattr(self, name)}, which no launch has.")

    @property
    def needs(self) -> CtaNeeds:
        """What one of its CTAs takes."""
        return CtaNeeds(self.registers, self.num_warps, self.shared_memory, self.tensor_memory_columns)


@dataclass(frozen=True)
class Resources:
    """What a configuration takes, compiled by that version of Triton: each launch, the main one first.

    Without launches, `reason` is a sentence on why there are none: it `is_refused`, before anything was compiled, or
    compiling it failed.
    """

    configuration: Configuration
    triton: str
    launches: tuple[LaunchResources, ...] = ()
    reason: str = ""
    is_refused: bool = False

    @property
    def main(self) -> LaunchResources | None:
        """The launch that does most of the work; None where there is none."""
        return self.launches[0] if self.launches else None


@dataclass(frozen=True)
class LaunchOnGpu:
    """One launch on one GPU; `waves` is None where not even one CTA fits."""

    resources: LaunchResources
    occupancy: Occupancy
    waves: Waves | None


def configurations(
    kernel: str, problem: AttentionProblem, tiles: Sequence[TileConfig], capabilities: Sequence[tuple[int, int]]
) -> tuple[Configuration, ...]:
    """One for each tile, as the kernel uses it, and compute capability, each once.

    Raises Refused, also for an order that the kernel does not have.
    """
    found = all_kernels().get(kernel)
    for tile in tiles:
        if found is not None and tile.order not in found.orders:
            raise Refused(f"{found.title} does not have the order {tile.order}; choose {', '.join(found.orders)}.")
    cut = (lambda tile: tile) if found is None else (lambda tile: found.cut(problem, tile))
    return tuple(dict.fromkeys(Configuration(kernel, problem, cut(tile), c) for tile in tiles for c in capabilities))


def on_gpu(found: Resources, gpu: GpuTarget) -> tuple[LaunchOnGpu, ...]:
    """How the GPU holds each launch. Raises Refused where the code is for another compute capability."""
    compiled_for = found.configuration.compute_capability
    if gpu.compute_capability != compiled_for:
        has = spell(gpu.compute_capability)
        raise Refused(
            f"This code is for compute capability {spell(compiled_for)}; {gpu.title} has {has}: compile again."
        )
    stays = found.configuration.tile.order == PERSISTENT
    return tuple(_held(launch, gpu, stays and launch is found.main) for launch in found.launches)


def _held(launch: LaunchResources, gpu: GpuTarget, stays: bool) -> LaunchOnGpu:
    """A launch on a GPU; one that stays has no more programs than the GPU holds at once."""
    occupancy = occupancy_of(launch.needs, gpu)
    waves = waves_of(launch.programs, occupancy, gpu)
    if stays and waves is not None and launch.programs > waves.programs_at_once:
        return _held(replace(launch, programs=waves.programs_at_once), gpu, False)
    return LaunchOnGpu(launch, occupancy, waves)


def why_not(found: Resources, gpu: GpuTarget) -> str:
    """Why the GPU cannot run it, as a sentence; empty where it can."""
    excesses = (launch.occupancy.too_much for launch in on_gpu(found, gpu))
    return found.reason or next((excess.sentence for excess in excesses if excess), "")
