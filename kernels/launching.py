"""What launching a Triton kernel takes on the host: checks of tensors, constants of masks, compiled facts."""

import ctypes
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import triton
from triton.runtime import driver
from triton.runtime.jit import MockTensor

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import StateTrace, Timeline

NAMES = ("q", "k", "v", "do")  # of what a kernel is given
OVERLAPS_FROM = 90
IS_INTERPRETED: bool = triton.knobs.runtime.interpret


@dataclass(frozen=True)
class TritonLaunch:
    """One launch of a Triton kernel: the function, what it is given, its constexprs and options, and its grid."""

    name: str
    function: Any
    arguments: Sequence[object]
    constants: Mapping[str, object]
    grid: tuple[int, ...]

    @property
    def programs(self) -> int:
        """Programs of the grid."""
        return math.prod(self.grid)

    def compile(self) -> Any:
        """The kernel that this launch would run on the current GPU, compiled; nothing is launched."""
        return compiled(self.function, self.arguments, self.constants)


def may_overlap() -> bool:
    """Whether of two launches the second can take its place while the first still runs, on the current GPU.

    It is NVIDIA's programmatic dependent launch, from compute capability 9.0 on: the first launch says when, the second
    waits for its end before it reads what the first wrote.
    """
    return not IS_INTERPRETED and bool(driver.active.get_current_target().arch >= OVERLAPS_FROM)


def require_rows(*tensors: torch.Tensor) -> None:
    """Raise ValueError for one of q, k, v, and do if given, whose rows are not contiguous."""
    for name, tensor in zip(NAMES, tensors, strict=False):
        if tensor.stride(-1) != 1:
            raise ValueError(f"{name} has stride {tensor.stride(-1)} along head_dim; make that dimension contiguous.")


def outputs(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """O like q, and LSE float32 [batch, heads, seq_len_q], both unwritten."""
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)
    return torch.empty_like(q, memory_format=torch.contiguous_format), lse


def tile_constants(problem: AttentionProblem, tile: TileConfig, finite: bool) -> dict[str, object]:
    """The constexprs of a kernel that multiplies Q tiles with KV tiles, mask_constants among them, and its options."""
    return {
        "BLOCK_M": tile.BLOCK_M,
        "BLOCK_N": tile.BLOCK_N,
        "HEAD_DIM": problem.padded_head_dim,
        **mask_constants(problem, finite),
        "num_warps": tile.num_warps,
        "num_stages": tile.num_stages,
    }


def mask_constants(problem: AttentionProblem, finite: bool) -> dict[str, bool]:
    """The constexprs that follow from the mask and the dtype; `finite` promises that v holds no NaN and no infinity."""
    return {
        "CAUSAL": problem.causal,
        "WINDOW": problem.window is not None,
        "GUARD_V": not finite and problem.is_masked,
        # Triton's interpreter holds bfloat16 as raw 16-bit integers and multiplies those in tl.dot.
        "UPCAST": IS_INTERPRETED and problem.dtype == "bfloat16",
    }


def has_partial_tiles(problem: AttentionProblem, tile: TileConfig) -> bool:
    """Whether some KV tile needs a mask: the problem has one, or the last tile reaches beyond the keys."""
    return problem.is_masked or problem.seq_len_kv % tile.BLOCK_N != 0


def trace_arguments(problem: AttentionProblem, unused: torch.Tensor, trace: StateTrace | None) -> tuple[object, ...]:
    """What record_state is given: m_ptr to scores_ptr, then trace_bh to score_stop; `unused` without a trace."""
    if trace is None:
        return (unused,) * 6 + (0,) * 8
    return (
        *(trace.m, trace.l, trace.alpha, trace.acc_norm, trace.acc, trace.scores),
        *(trace.batch * problem.heads + trace.head, trace.row_start, trace.row_stop),
        *(trace.acc_tile, trace.acc_start, trace.acc_stride),
        *(trace.score_start, trace.score_start + len(trace.scores)),
    )


def strides(*tensors: torch.Tensor) -> tuple[int, ...]:
    """Of each tensor the elements from one batch, head and row to the next."""
    return tuple(stride for tensor in tensors for stride in tensor.stride()[:3])


def problem_arguments(problem: AttentionProblem) -> tuple[int | float, ...]:
    """heads, group, seq_len_q, seq_len_kv, head_dim, window (0 without one) and sm_scale."""
    sizes = problem.heads, problem.group, problem.seq_len_q, problem.seq_len_kv, problem.head_dim
    return (*sizes, problem.window or 0, problem.sm_scale)


def timeline_arguments(unused: torch.Tensor, timeline: Timeline | None) -> tuple[torch.Tensor, ...]:
    """sm_ptr, start_ptr and end_ptr; `unused` without a timeline."""
    return (unused,) * 3 if timeline is None else (timeline.sm, timeline.start, timeline.end)


def meta_tensors(problem: AttentionProblem) -> tuple[torch.Tensor, ...]:
    """q, k, v, o, lse without memory, to compile for."""
    shape_q = (problem.batch, problem.heads, problem.seq_len_q, problem.head_dim)
    shape_kv = (problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim)
    dtype = getattr(torch, problem.dtype)
    q, k = (torch.empty(shape, dtype=dtype, device="meta") for shape in (shape_q, shape_kv))
    return q, k, k, q, torch.empty(shape_q[:3], dtype=torch.float32, device="meta")


def compiled(function: Any, arguments: Sequence[object], constants: Mapping[str, object]) -> Any:
    """The kernel that a launch with these arguments would run on the current GPU, compiled; nothing is launched."""
    abstract = [MockTensor.wrap_dtype(a.dtype) if isinstance(a, torch.Tensor) else a for a in arguments]
    return function.warmup(*abstract, grid=(1,), **constants)


def fitting_stages(function: Any, arguments: Sequence[object], constants: Mapping[str, object]) -> int:
    """num_stages, or as many fewer as let a traced kernel fit: stores of acc take shared memory of their own."""
    stages = int(str(constants["num_stages"]))
    if IS_INTERPRETED:
        return stages
    facts: Any = torch.cuda.get_device_properties(torch.cuda.current_device())
    limit = facts.shared_memory_per_block_optin
    for fewer in range(stages, 1, -1):
        if compiled(function, arguments, {**constants, "num_stages": fewer}).metadata.shared <= limit:
            return fewer
    return 1


def resident_programs(kernel: Any) -> int:
    """How many programs of a compiled kernel the current GPU holds at once, by CUDA's occupancy calculator."""
    kernel._init_handles()
    driver, count = ctypes.CDLL("libcuda.so.1"), ctypes.c_int()
    threads = kernel.metadata.num_warps * 32
    code = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        ctypes.byref(count), ctypes.c_void_p(kernel.function), threads, ctypes.c_size_t(kernel.metadata.shared)
    )
    if code != 0:
        raise RuntimeError(f"cuOccupancyMaxActiveBlocksPerMultiprocessor answered {code}.")
    return count.value * torch.cuda.get_device_properties(torch.cuda.current_device()).multi_processor_count
