"""What a kernel offers to the profiler, and the folder scan that finds every kernel."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType
from typing import Any

import kernels
from kernels.problem import LINEAR, AttentionProblem, Refused, TileConfig, require_a_tile
from kernels.schedule import Schedule


@dataclass(frozen=True)
class GpuLimits:
    """What one CTA may use on a GPU, for checks before a launch."""

    name: str
    compute_capability: tuple[int, int]
    shared_memory_per_block: int  # bytes


@dataclass(frozen=True)
class RowBlockNeeds:
    """What one program needs on chip where it keeps whole rows of scores, in bytes, and how long a row may be.

    shared_memory and registers give the bytes that a program needs at least. longest and longest_in_registers give the
    largest power-of-two seq_len_kv that launches on a GPU, and that needs no more registers than a program has.
    """

    shared_memory: Callable[[AttentionProblem, TileConfig], int]
    registers: Callable[[AttentionProblem, TileConfig], int]
    longest: Callable[[AttentionProblem, TileConfig, GpuLimits], int]
    longest_in_registers: Callable[[AttentionProblem, TileConfig], int]


def in_linear_order(problem: AttentionProblem, tile: TileConfig) -> TileConfig:
    """The tile, in the only order that most kernels have. Raises Refused for a BLOCK_N that is no tile."""
    require_a_tile(tile)
    return replace(tile, order=LINEAR)


def takes_all(problem: AttentionProblem) -> None:
    """No problem is refused on every device."""


def runs_somewhere(gpu: GpuLimits | None) -> str:
    """No reason against any device: what cannot run there depends on the problem."""
    return ""


@dataclass(frozen=True)
class AttentionKernel:
    """The light half of a kernel, free of torch and Triton; its forward loads the other half when it is first run.

    schedule(problem, tile) is pure. temporaries(problem, tile) gives bytes of the intermediate tensors alive at peak,
    inputs and O not included. cut(problem, tile) is the tile as the kernel uses it: what it leaves no choice about is
    set. refuse(problem, tile, gpu) raises Refused for what this kernel cannot run; `gpu` is None on the CPU, where
    Triton kernels are interpreted. why_not_on(gpu) is the sentence with which it refuses everything there, and it is
    not offered; empty where something may run. refuse_problem(problem) raises Refused for what no device runs, and
    refuse_shared_memory for the bytes of shared memory that `shared_memory` gives; None for kernels that do not tell. A
    Triton kernel's other half offers launches(problem, tile), the kernels.launching.TritonLaunch of each launch, the
    main one first.

    A folder offers one kernel or several: the forward is kernels.<folder>.kernel.<entry>.
    """

    name: str
    title: str
    rung: int  # its place in lists: from the materialised score matrix up, then libraries
    schedule: Callable[[AttentionProblem, TileConfig], Schedule]
    temporaries: Callable[[AttentionProblem, TileConfig], Mapping[str, int]]
    refuse: Callable[[AttentionProblem, TileConfig, GpuLimits | None], None]
    why_not_on: Callable[[GpuLimits | None], str] = runs_somewhere
    refuse_problem: Callable[[AttentionProblem], None] = takes_all
    refuse_shared_memory: Callable[[AttentionProblem, TileConfig, GpuLimits, int], None] | None = None
    cut: Callable[[AttentionProblem, TileConfig], TileConfig] = in_linear_order
    orders: tuple[str, ...] = (LINEAR,)
    is_tiled: bool = True  # cut by TileConfig
    is_triton: bool = True  # interpreted where there is no GPU
    tells_requests: bool = True  # its schedule says what it asks for; a library's counts operands once
    has_trace: bool = False  # its forward can record m, l, alpha, acc
    has_timeline: bool = False  # its forward can record each program's SM, start and end
    has_backward: bool = False  # its other half offers backward, see kernels.run.Backward
    # The fewest and the most bytes that its docstring claims to cross L2↔SM; None where it claims nothing.
    l2_sm_bounds: Callable[[AttentionProblem, TileConfig], tuple[int, int]] | None = None
    row_block: RowBlockNeeds | None = None  # where whole rows of scores stay on chip
    folder: str = ""
    entry: str = "forward"

    @property
    def records(self) -> bool:
        """Whether there is anything that a trace can ask of it."""
        return self.has_trace or self.has_timeline

    @property
    def forward(self) -> Callable[..., Any]:
        """See kernels.run.Forward for its contract."""
        forward: Callable[..., Any] = getattr(self._heavy_half, self.entry)
        return forward

    @property
    def backward(self) -> Callable[..., Any]:
        """See kernels.run.Backward for its contract; of kernels with has_backward."""
        backward: Callable[..., Any] = self._heavy_half.backward
        return backward

    def refuse_backward(self, problem: AttentionProblem) -> None:
        """Raise Refused for a backward pass that it does not have."""
        if problem.backward and not self.has_backward:
            having = ", ".join(name for name, kernel in all_kernels().items() if kernel.has_backward)
            raise Refused(f"{self.title} has no backward pass; choose {having}, or leave backward out.")

    @property
    def prepare(self) -> Callable[[AttentionProblem, TileConfig, str], Any] | None:
        """What is built once, before the measured passes; None where nothing is."""
        return getattr(self._heavy_half, "prepare" if self.entry == "forward" else f"prepare_{self.entry}", None)

    def launches(self, problem: AttentionProblem, tile: TileConfig) -> tuple[Any, ...]:
        """The kernels.launching.TritonLaunch of each launch, with tensors that have no memory; the main one first."""
        launches: tuple[Any, ...] = self._heavy_half.launches(problem, tile)
        return launches

    def shared_memory(self, problem: AttentionProblem, tile: TileConfig) -> int:
        """Bytes of shared memory one CTA takes, of the largest launch, compiled for the current GPU."""
        return max(int(launch.compile().metadata.shared) for launch in self.launches(problem, tile))

    def programs_at_once(self, problem: AttentionProblem, tile: TileConfig) -> int | None:
        """How many programs of the main launch the current GPU holds at once; None where it is not Triton's."""
        if not self.is_triton:
            return None
        resident: int = importlib.import_module("kernels.launching").resident_programs(
            self.launches(problem, tile)[0].compile()
        )
        return resident

    @property
    def _heavy_half(self) -> ModuleType:
        return importlib.import_module(f"kernels.{self.folder or self.name}.kernel")


@cache
def all_kernels() -> dict[str, AttentionKernel]:
    """Every kernel that a folder below kernels/ offers, rung by rung."""
    found: dict[str, AttentionKernel] = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        if module.ispkg:
            offered: tuple[AttentionKernel, ...] = importlib.import_module(f"kernels.{module.name}").KERNELS
            found |= {kernel.name: kernel for kernel in offered}
    return dict(sorted(found.items(), key=lambda item: item[1].rung))
