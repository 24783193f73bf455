"""Problems that broke attention kernels elsewhere, and how close to float64 every kernel must come on them."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache

import pytest
import torch

from kernels.base import AttentionKernel, GpuLimits, all_kernels
from kernels.problem import ELEMENT_BYTES, AttentionProblem, Refused, TileConfig
from kernels.reference import reference
from kernels.run import Output
from profiler.bench import draw_inputs
from profiler.device import detect, limits

MOST_STEPS = 120  # of an interpreted problem, at about 5 ms each where a program owns one query

Case = tuple[AttentionProblem, TileConfig]
Forward = Callable[..., Output]

# Of Σ p·|v|: six roundings, twice what S, P and O rounded once each came to; in float32 three times the worst dot.
ALLOWED = {"float16": 6 * 2**-11, "bfloat16": 6 * 2**-8, "float32": 64 * 2**-24}

# Two stages, so that float32 fits into the shared memory of any GPU.
T16, T32, T64 = (TileConfig(size, size, num_stages=2) for size in (16, 32, 64))
WIDE, TALL = TileConfig(16, 64), TileConfig(64, 16)

# batch, heads, kv_heads, seq_len_q, seq_len_kv, head_dim, dtype, causal, window
CASES: dict[str, Case] = {
    "one_query_one_key": (AttentionProblem(1, 1, 1, 1, 1, 64), T16),
    "shorter_than_a_block": (AttentionProblem(1, 40, 40, 8, 8, 128), T16),
    "decode": (AttentionProblem(1, 32, 32, 1, 20, 128), T32),
    "decode_17_over_1": (AttentionProblem(1, 17, 1, 1, 40, 32, causal=True), T16),
    "decode_windowed": (AttentionProblem(1, 4, 2, 1, 50, 16, window=20), T16),
    "seq_63": (AttentionProblem(1, 1, 1, 63, 63, 32), T16),
    "seq_100": (AttentionProblem(2, 2, 2, 100, 100, 16), T32),
    "seq_1025_causal": (AttentionProblem(1, 1, 1, 1025, 1025, 64, causal=True), T64),
    "head_dim_63": (AttentionProblem(1, 1, 1, 63, 100, 63), T32),
    "head_dim_80": (AttentionProblem(1, 2, 2, 33, 33, 80), T16),
    "head_dim_96": (AttentionProblem(1, 2, 2, 33, 33, 96), T32),
    "head_dim_128": (AttentionProblem(1, 1, 1, 65, 65, 128), T64),
    "head_dim_256": (AttentionProblem(1, 1, 1, 40, 50, 256), T16),
    "head_dim_4": (AttentionProblem(1, 1, 1, 16, 16, 4), T16),
    "head_dim_1": (AttentionProblem(1, 1, 1, 5, 5, 1), T16),
    "causal_2_over_5": (AttentionProblem(1, 1, 1, 2, 5, 16, causal=True), T16),
    "causal_5_over_2": (AttentionProblem(1, 1, 1, 5, 2, 16, causal=True), T16),
    "causal_tail_of_64_over_200": (AttentionProblem(1, 2, 2, 64, 200, 32, causal=True), WIDE),
    "causal_200_over_64": (AttentionProblem(1, 2, 2, 200, 64, 32, causal=True), TALL),
    "window_1": (AttentionProblem(1, 1, 1, 40, 40, 16, window=1), T16),
    "window_9": (AttentionProblem(1, 2, 2, 100, 100, 16, window=9), T16),
    "window_9_causal": (AttentionProblem(1, 2, 2, 100, 100, 16, causal=True, window=9), TALL),
    "window_causal_30_over_70": (AttentionProblem(2, 1, 1, 30, 70, 32, causal=True, window=20), WIDE),
    "window_70_over_30": (AttentionProblem(1, 1, 1, 70, 30, 16, window=7), T16),
    "window_wider_than_everything": (AttentionProblem(1, 1, 1, 40, 40, 16, window=1000), T32),
    "gqa_6_over_2": (AttentionProblem(2, 6, 2, 37, 50, 32, causal=True), T32),
    "mqa_5_over_1": (AttentionProblem(1, 5, 1, 20, 33, 64), T16),
}


@cache
def here() -> GpuLimits | None:
    """The GPU that this process runs kernels on; None where it interprets them."""
    return None if os.environ.get("TRITON_INTERPRET") else next((limits(gpu) for gpu in detect()), None)


def takes(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig = T16) -> bool:
    """Whether the kernel runs the problem here. What it refuses is no test of it; tests/test_library.py says what."""
    try:
        kernel.refuse_backward(problem)
        kernel.refuse(problem, kernel.cut(problem, tile), here())
    except Refused:
        return False
    return True


def is_slow(kernel: AttentionKernel, problem: AttentionProblem | None = None, tile: TileConfig = T16) -> bool:
    """Whether it takes seconds: on a GPU torch compiles FlexAttention for each problem; interpreted, many steps do."""
    if here() is not None:
        return kernel.name == "flex"
    walk = None if problem is None else kernel.schedule(problem, kernel.cut(problem, tile)).walk
    return walk is not None and walk.total_steps > MOST_STEPS


def in_time(
    kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig = T16, most: int = MOST_STEPS
) -> AttentionProblem:
    """The problem, or its last queries where each is a program and interpreting them all would take seconds.

    Masks are aligned bottom-right, so the last queries see what they see in the whole problem.
    """
    walk = kernel.schedule(problem, tile).walk
    if here() is not None or walk is None or walk.grid.BLOCK_M > 1 or walk.total_steps <= most:
        return problem
    return replace(problem, seq_len_q=max(1, problem.seq_len_q * most // walk.total_steps))


def takers(*problems: AttentionProblem, tile: TileConfig = T16) -> pytest.MarkDecorator:
    """Parametrize `kernel` with those that take all of the problems."""
    found = [kernel for kernel in all_kernels().values() if all(takes(kernel, problem, tile) for problem in problems)]
    return pytest.mark.parametrize("kernel", found, ids=[kernel.name for kernel in found])


def in_every_dtype(cases: Mapping[str, Case]) -> pytest.MarkDecorator:
    """Parametrize `kernel`, `problem` and `tile`: each case in each dtype for every kernel that takes it.

    A slow kernel has each case once, one after the other in another dtype.
    """
    found = []
    for row, (name, (shape, tile)) in enumerate(cases.items()):
        for column, dtype in enumerate(ELEMENT_BYTES):
            problem = replace(shape, dtype=dtype)
            found += [
                pytest.param(kernel, in_time(kernel, problem, tile), tile, id=f"{name}-{dtype}-{kernel.name}")
                for kernel in all_kernels().values()
                if takes(kernel, problem, tile)
                and (row % len(ELEMENT_BYTES) == column or not is_slow(kernel, problem, tile))
            ]
    return pytest.mark.parametrize(("kernel", "problem", "tile"), found)


def draw(problem: AttentionProblem, device: str = "cpu") -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q, k, v of the problem, safe to change."""
    q, k, v = draw_inputs(problem, 0, device)
    return q.clone(), k.clone(), v.clone()


def check(
    forward: Forward,
    problem: AttentionProblem,
    tile: TileConfig,
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    finite: bool = False,
    slack: float = 1,
    rows: torch.Tensor | None = None,
) -> Output:
    """Run `forward` and compare O and LSE with the float64 reference, all rows or the given ones; returns the Output.

    An element of O may be off by ALLOWED · slack. NaN must be where the reference has it, and nowhere else.
    """
    q, k, v = inputs
    output = forward(q, k, v, problem, tile, finite=finite)
    rows = torch.arange(problem.seq_len_q) if rows is None else rows
    o, lse = reference(q, k, v, problem, rows)
    assert output.o.dtype == q.dtype and output.o.shape == q.shape
    magnitude, _ = reference(q, k, v.abs(), problem, rows)
    found = output.o[:, :, rows].double()
    allowed = slack * ALLOWED[problem.dtype] * magnitude
    wrong = ~(((found - o).abs() <= allowed) | (found == o) | (found.isnan() & o.isnan()))
    assert not wrong.any(), f"{int(wrong.sum())} of {wrong.numel()} wrong, first at {wrong.nonzero()[0].tolist()}"
    if output.lse is not None:
        assert output.lse.dtype == torch.float32
        torch.testing.assert_close(output.lse[:, :, rows].double(), lse, rtol=2e-6, atol=2e-6, equal_nan=True)
    return output
