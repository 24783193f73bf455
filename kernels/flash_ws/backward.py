"""The host's side of the warp-specialised backward pass, and where another is launched in its place."""

import math
from contextlib import nullcontext

import torch
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

from kernels import backward_pass
from kernels.described import require_describable
from kernels.flash_ws.gradient_ends import flash_ws_delta, flash_ws_dq
from kernels.flash_ws.gradient_schedule import (
    BLOCK_N,
    ROWS,
    STAGES,
    backward_temporaries,
    block_m_of,
    is_specialised,
    programs,
    q_tiles_of,
    section_of,
    width_of,
)
from kernels.flash_ws.gradients import flash_ws_gradients
from kernels.flash_ws.schedule import backward_tile
from kernels.flash_ws.swizzled import described
from kernels.flash_ws.warps import REGISTERS
from kernels.launching import TritonLaunch, meta_tensors, require_rows, strides
from kernels.problem import FLOAT32_BYTES, AttentionProblem, TileConfig
from kernels.run import Gradients, LaunchHook, Output


def backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    output: Output,
    do: torch.Tensor,
    problem: AttentionProblem,
    tile: TileConfig,
    launch: LaunchHook = nullcontext,
    finite: bool = False,
) -> Gradients:
    """See kernels.run.Backward. For head_dim up to 128 it is the kernel of gradients.py, else that of flash_tma.

    That one runs too where a mask hides something and q, k or v holds what is not finite, which without `finite` is
    looked for: 0 · NaN is NaN, and it takes care of that in every product. Raises ValueError for an output without LSE,
    and for tensors that no descriptor can hold, see kernels.described.
    """
    is_safe = finite or not problem.is_masked
    if not is_specialised(problem) or not (is_safe or all(bool(tensor.isfinite().all()) for tensor in (q, k, v))):
        tile = backward_tile(problem, tile)
        return backward_pass.by_descriptor(q, k, v, output, do, problem, tile, launch, finite)
    if output.lse is None:
        raise ValueError("The forward pass left no LSE, from which this backward pass would make P.")
    require_rows(q, k, v, do)
    require_describable(q, k, v, do)
    rows, sums = _temporaries(problem, q.device)
    dq, dk, dv = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (q, k, v))
    for one in _launches((q, k, v, output.o, output.lse, do, rows, sums, dq, dk, dv), problem):
        with launch(one.name):
            one.function[one.grid](*one.arguments, **one.constants)
    return Gradients(dq, dk, dv)


def launches(problem: AttentionProblem, tile: TileConfig) -> tuple[TritonLaunch, ...]:
    """What `backward` launches for finite values, with tensors that have no memory; nothing without a backward pass."""
    if not is_specialised(problem):
        return backward_pass.launches(problem, backward_tile(problem, tile), is_described=True)
    if not problem.backward:
        return ()
    q, k, v, o, lse = meta_tensors(problem)
    return _launches((q, k, v, o, lse, q, *_temporaries(problem, "meta"), q, k, v), problem)


def _temporaries(problem: AttentionProblem, device: torch.device | str) -> tuple[torch.Tensor, torch.Tensor]:
    """LSE and delta by Q tiles, [2 · tiles, block_m], and the sums of dQ, both unwritten."""
    size = backward_temporaries(problem)
    rows, sums = (
        torch.empty(size[name] // FLOAT32_BYTES, dtype=torch.float32, device=device) for name in ("lse_delta", "dq_sum")
    )
    return rows.view(-1, block_m_of(problem)), sums


def _launches(tensors: tuple[torch.Tensor, ...], problem: AttentionProblem) -> tuple[TritonLaunch, ...]:
    """The three launches for q, k, v, o, lse, do, rows, sums, dq, dk, dv."""
    q, k, v, o, lse, do, rows, sums, dq, dk, dv = tensors
    q_tiles, section = q_tiles_of(problem), section_of(problem)
    copies, width, block_m = problem.batch * problem.heads, width_of(problem), block_m_of(problem)
    loaded = described(q, block_m, width), *(described(t, ROWS, width) for t in (k, v)), described(do, block_m, width)
    written = *(described(t, ROWS, width) for t in (dk, dv)), sums
    unswizzled = gl.NVMMASharedLayout(swizzle_byte_width=0, element_bitwidth=32, rank=2)
    sizes = (
        problem.heads, problem.kv_heads, problem.group, section, -(-problem.seq_len_kv // BLOCK_N), q_tiles,
        problem.seq_len_q, problem.seq_len_kv,
    )  # fmt: skip
    ends = {"BLOCK_M": block_m, "WIDTH": width, "num_warps": 4}
    constants = {
        "ROWS": ROWS,
        "BLOCK_M": block_m,
        "WIDTH": width,
        "STAGES": STAGES,
        "CAUSAL": problem.causal,
        "PARTIAL": problem.causal or problem.seq_len_kv % BLOCK_N != 0,
        "SECTIONS": section > 1,
        "num_warps": 4,  # of the first group; the compiler adds the other warps
        "maxnreg": REGISTERS,
    }
    return (
        TritonLaunch(
            "delta",
            flash_ws_delta,
            (o, do, lse, rows, sums, *strides(o, do), problem.heads, problem.seq_len_q, problem.head_dim),
            ends,
            (copies * q_tiles,),
        ),
        TritonLaunch(
            "gradients",
            flash_ws_gradients,
            (
                *loaded, TensorDescriptor.from_tensor(rows, [2, block_m], unswizzled), *written,
                *sizes, problem.sm_scale, problem.sm_scale * math.log2(math.e),
            ),
            constants,
            (programs(problem),),
        ),
        TritonLaunch(
            "dq",
            flash_ws_dq,
            (sums, dq, problem.seq_len_q, problem.head_dim, problem.sm_scale),
            ends,
            (copies * q_tiles,),
        ),
    )  # fmt: skip
