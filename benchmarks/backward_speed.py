"""How fast the rungs' backward passes are against those that torch's autograd runs, for benchmarks.attention_speed.

The forward pass, and what it keeps, stands outside of what is timed.
"""

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook
from profiler.bench import Bench, Load
from profiler.run import DeviceInfo
from profiler.workload import Workload

REFERENCE = "cudnn"
LIBRARIES = {REFERENCE: SDPBackend.CUDNN_ATTENTION, "flash_attention_2": SDPBackend.FLASH_ATTENTION}
RUNGS = ("flash", "flash_tma", "flash_ws")
TILE = TileConfig(128, 64, 8, 3)  # a backward pass keeps 128 keys then, and streams 64 queries
PROBLEMS = tuple(
    AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16", causal, backward=True) for causal in (False, True)
)
FORWARD_PRODUCTS, BACKWARD_PRODUCTS = 2, 5


class BackwardLoad(Load):
    """One backward pass that `run` launches."""

    def __init__(self, device: DeviceInfo, run: Callable[[], Any]) -> None:
        super().__init__(device)
        self._run = run

    def launch(self, hook: LaunchHook = nullcontext) -> Any:
        """One pass, asynchronous; its launches are not told apart."""
        return self._run()


def of_a_library(bench: Bench, name: str) -> BackwardLoad:
    """torch's autograd through one backend, whose forward pass runs once, here. Raises RuntimeError where it cannot."""
    problem, do = bench.workload.problem, bench.do
    q, k, v = (tensor.detach().clone().requires_grad_() for tensor in bench.inputs)
    with sdpa_kernel(LIBRARIES[name]):
        o = scaled_dot_product_attention(q, k, v, is_causal=problem.causal, enable_gqa=problem.group > 1)
    return BackwardLoad(bench.device, lambda: torch.autograd.grad(o, (q, k, v), do, retain_graph=True))


def of_a_rung(bench: Bench) -> BackwardLoad:
    """The kernel's own backward pass, on what its forward pass leaves here."""
    work, tile = bench.workload, bench.workload.tile
    forward = Bench(replace(work, problem=replace(work.problem, backward=False)), bench.device)
    output = forward.launch()
    backward = work.attention_kernel.backward
    return BackwardLoad(
        bench.device, lambda: backward(*bench.inputs, output, bench.do, work.problem, tile, finite=True)
    )


def loads(works: list[Workload], device: DeviceInfo) -> dict[str, Load]:
    """Every backward pass of one problem, the libraries' first, by name."""
    bench = Bench(works[0], device)
    found: dict[str, Load] = {}
    for name in LIBRARIES:
        try:
            found[name] = of_a_library(bench, name)
        except RuntimeError as reason:
            print(f"{bench.workload.problem.label}: {name} is left out. {reason}")
    return found | {work.kernel: of_a_rung(Bench(work, device)) for work in works}


def rows(problem: AttentionProblem, times: Mapping[str, float]) -> list[tuple[str, ...]]:
    """Problem, kernel, ms, TFLOP/s of the five products, and cuDNN's time over the kernel's."""
    flops = problem.flops * BACKWARD_PRODUCTS / (FORWARD_PRODUCTS + BACKWARD_PRODUCTS)
    return [
        (
            problem.label,
            f"{name}, backward alone",
            f"{seconds * 1e3:.3f}",
            f"{flops / seconds / 1e12:.0f}",
            f"{times[REFERENCE] / seconds:.3f}" if REFERENCE in times else "–",
        )
        for name, seconds in times.items()
    ]
