"""The host's side of the backward pass that kernels share which leave O and LSE; see kernels.gradient_kernels."""

from contextlib import nullcontext
from functools import partial

import torch

from kernels.described import described, require_describable
from kernels.gradient_kernels import delta_kernel, dq_kernel, gradients_kernel
from kernels.launching import (
    IS_INTERPRETED,
    TritonLaunch,
    has_partial_tiles,
    meta_tensors,
    problem_arguments,
    require_rows,
    strides,
    tile_constants,
)
from kernels.problem import AttentionProblem, TileConfig
from kernels.run import Gradients, LaunchHook, Output
from kernels.streamed_q import turned

VALUES = 8192  # of a tensor that a program of delta or dq takes


def gradients(
    is_described: bool,
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
    """See kernels.run.Backward; `tile` is the forward's. `is_described` says that tiles come by tensor descriptor.

    Raises ValueError for an output without LSE, and for tensors whose tiles cannot be loaded so.
    """
    if output.lse is None:
        raise ValueError("The forward pass left no LSE, from which this backward pass would make P.")
    require_rows(q, k, v, do)
    if is_described:
        require_describable(q, k, v, do)
    delta = torch.empty_like(output.lse)
    dq_sum = torch.empty(q.shape, dtype=torch.float32, device=q.device)
    dq, dk, dv = (torch.empty_like(t, memory_format=torch.contiguous_format) for t in (q, k, v))
    tensors = (q, k, v, output.o, output.lse, do, delta, dq_sum, dq, dk, dv)
    for one in _launches(tensors, problem, tile, is_described, finite):
        with launch(one.name):
            one.function[one.grid](*one.arguments, **one.constants)
    return Gradients(dq, dk, dv)


by_pointer = partial(gradients, False)
by_descriptor = partial(gradients, True)


def launches(problem: AttentionProblem, tile: TileConfig, is_described: bool) -> tuple[TritonLaunch, ...]:
    """What `gradients` launches, with tensors that have no memory; nothing without a backward pass."""
    if not problem.backward:
        return ()
    q, k, v, o, lse = meta_tensors(problem)
    dq_sum = torch.empty(q.shape, dtype=torch.float32, device="meta")
    return _launches((q, k, v, o, lse, q, lse, dq_sum, q, k, v), problem, tile, is_described, True)


def _launches(
    tensors: tuple[torch.Tensor, ...], problem: AttentionProblem, tile: TileConfig, is_described: bool, finite: bool
) -> tuple[TritonLaunch, ...]:
    """The three launches for q, k, v, o, lse, do, delta, dq_sum, dq, dk, dv."""
    q, k, v, o, lse, do, delta, dq_sum, dq, dk, dv = tensors
    tile, width = turned(problem, tile), problem.padded_head_dim
    constants = tile_constants(problem, tile, finite)
    is_reduced = is_described and not IS_INTERPRETED

    def tiled(tensor: torch.Tensor, rows: int, is_tiled: bool = is_described) -> object:
        return described(tensor, rows, width) if is_tiled else tensor

    queries, keys = tile.BLOCK_M, tile.BLOCK_N
    loaded = tiled(q, queries), tiled(k, keys), tiled(v, keys), tiled(do, queries)
    written = tiled(dq_sum, queries, is_reduced), tiled(dk, keys), tiled(dv, keys)
    rows = VALUES // width
    return (
        TritonLaunch(
            "delta",
            delta_kernel,
            (o, do, delta, dq_sum, *strides(o, do), problem.heads, problem.seq_len_q, problem.head_dim),
            {"ROWS": rows, "HEAD_DIM": width, "num_warps": 4},
            (problem.batch * problem.heads * -(-problem.seq_len_q // rows),),
        ),
        TritonLaunch(
            "gradients",
            gradients_kernel,
            (*loaded, *written, lse, delta, *strides(q, k, v, do), *problem_arguments(problem)),
            {
                **constants,
                "PARTIAL": has_partial_tiles(problem, tile),
                "DESCRIBED": is_described,
                "REDUCED": is_reduced,
            },
            (problem.batch * problem.kv_heads * -(-problem.seq_len_kv // tile.BLOCK_N),),
        ),
        TritonLaunch(
            "dq",
            dq_kernel,
            (dq_sum, dq, dq.numel(), problem.sm_scale),
            {"BLOCK": VALUES, "UPCAST": constants["UPCAST"], "num_warps": 8},
            (-(-dq.numel() // VALUES),),
        ),
    )
