"""What a kernel offers to the profiler, and the folder scan that finds every kernel."""

import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import kernels
from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import Schedule


@dataclass(frozen=True)
class GpuLimits:
    """What one CTA may use on a GPU, for checks before a launch."""

    name: str
    compute_capability: tuple[int, int]
    shared_memory_per_block: int  # bytes


@dataclass(frozen=True)
class AttentionKernel:
    """The light half of a kernel, free of torch and Triton; `forward` loads the other half when it is first run.

    schedule(problem, tile) is pure. temporaries(problem) gives bytes of the intermediate tensors alive at peak,
    inputs and O not included. refuse(problem, tile, gpu) raises Refused for what this kernel cannot run; `gpu` is
    None on the CPU, where Triton kernels are interpreted. refuse_shared_memory does the same for the bytes of shared
    memory that `shared_memory` gives; None for kernels that do not tell.
    """

    name: str
    title: str
    schedule: Callable[[AttentionProblem, TileConfig], Schedule]
    temporaries: Callable[[AttentionProblem], Mapping[str, int]]
    refuse: Callable[[AttentionProblem, TileConfig, GpuLimits | None], None]
    refuse_shared_memory: Callable[[AttentionProblem, TileConfig, GpuLimits, int], None] | None
    is_tiled: bool  # cut by TileConfig
    has_trace: bool  # its forward can record m, l, alpha, acc and the timeline
    # The fewest and the most bytes that its docstring claims to cross L2↔SM; None where it claims nothing.
    l2_sm_bounds: Callable[[AttentionProblem, TileConfig], tuple[int, int]] | None = None

    @property
    def forward(self) -> Callable[..., Any]:
        """kernels.<name>.kernel.forward; see kernels.run.Forward for its contract."""
        forward: Callable[..., Any] = importlib.import_module(f"kernels.{self.name}.kernel").forward
        return forward

    @property
    def prepare(self) -> Callable[[AttentionProblem, str], Any] | None:
        """kernels.<name>.kernel.prepare: what is built once, before the measured passes; None where nothing is."""
        return getattr(importlib.import_module(f"kernels.{self.name}.kernel"), "prepare", None)

    @property
    def shared_memory(self) -> Callable[[AttentionProblem, TileConfig], int]:
        """Bytes of shared memory one CTA takes once compiled for the current GPU; nothing is launched."""
        shared_memory: Callable[..., int] = importlib.import_module(f"kernels.{self.name}.kernel").shared_memory
        return shared_memory


@cache
def all_kernels() -> dict[str, AttentionKernel]:
    """Every kernel, found by scanning the folders below kernels/, in alphabetical order of names."""
    found = {}
    for module in pkgutil.iter_modules(kernels.__path__):
        if module.ispkg:
            kernel: AttentionKernel = importlib.import_module(f"kernels.{module.name}").KERNEL
            found[kernel.name] = kernel
    return found
