"""A program of its own, without a GPU and without the interpreter: is what is compiled ahead what is launched?

It runs each kernel's passes on CPU tensors, with a Triton that notes a launch instead of making it, and prints for
each whether the JIT would look for the same compiled kernel as for the launch that `launches` gives. One line of JSON.
"""

import json
from dataclasses import replace
from itertools import product
from typing import Any

import torch
import triton
from triton.runtime import driver
from triton.runtime.jit import MockTensor

from kernels.base import all_kernels
from kernels.problem import LONGEST_FIRST, PERSISTENT, SAWTOOTH, AttentionProblem, Refused, TileConfig
from profiler.compiling import AbsentGpu
from profiler.device import GPUS

LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
TILE = TileConfig(64, 32)
PROBLEMS = (
    AttentionProblem(1, 16, 16, 1024, 1024, 128, "bfloat16"),
    AttentionProblem(2, 6, 3, 100, 257, 80, "float16", causal=True, window=33),
    AttentionProblem(3, 1, 1, 1, 1, 16, "float32"),
)
BACKWARD = tuple(replace(problem, backward=True) for problem in PROBLEMS)


def specialized(function: Any, arguments: Any, constants: Any) -> tuple[object, ...]:
    """All that Triton's JIT compiles by: types, constants, attributes, options."""
    _, _, _, backend, bind = function.device_caches[driver.active.get_current_device()]
    options = {**constants, "debug": False, "instrumentation_mode": ""}
    bound, specialization, options = bind(*arguments, **options)
    parsed, *others = function._pack_args(backend, options, bound, specialization, options)
    return parsed.hash(), *map(str, others)


def launched(kernel: Any, problem: AttentionProblem, tile: TileConfig) -> list[tuple[Any, Any, Any, Any]]:
    """Function, arguments, constants and grid of each launch that forward and backward make."""
    noted: list[tuple[Any, Any, Any, Any]] = []

    def note(self: Any, *arguments: Any, grid: Any, warmup: bool, **constants: Any) -> None:
        noted.append((self, arguments, constants, grid))

    run, triton.JITFunction.run = triton.JITFunction.run, note
    try:
        dtype = getattr(torch, problem.dtype)
        q = torch.zeros(problem.batch, problem.heads, problem.seq_len_q, problem.head_dim, dtype=dtype)
        k = torch.zeros(problem.batch, problem.kv_heads, problem.seq_len_kv, problem.head_dim, dtype=dtype)
        v = k.clone()
        output = kernel.forward(q, k, v, problem, tile, finite=True)
        if problem.backward:
            kernel.backward(q, k, v, output, q.clone(), problem, tile, finite=True)
    finally:
        triton.JITFunction.run = run
    return noted


def ahead(function: Any, arguments: Any, constants: Any) -> tuple[object, ...]:
    """The same of a launch whose tensors have no memory, as kernels.launching compiles it."""
    mock = [MockTensor.wrap_dtype(one.dtype) if isinstance(one, torch.Tensor) else one for one in arguments]
    return specialized(function, mock, constants)


def is_same(kernel: Any, problem: AttentionProblem, tile: TileConfig) -> list[bool]:
    """Whether there are as many launches, and of each whether function, grid and what the JIT compiles by are equal."""
    told, real = kernel.launches(problem, tile), launched(kernel, problem, tile)
    same = [len(told) == len(real)]
    for launch, (function, arguments, constants, grid) in zip(told, real, strict=True):
        # A persistent grid is of one program where there is no GPU.
        whole = launch.grid if tile.order != PERSISTENT or launch is not told[0] else (1,)
        same += [launch.function is function, whole == grid]
        same.append(ahead(function, launch.arguments, launch.constants) == specialized(function, arguments, constants))
    return same


def can_be_made(kernel: Any, problem: AttentionProblem) -> bool:
    """Whether there are arguments for the problem: a kernel for one GPU alone has none for what it refuses there."""
    if problem.backward and not kernel.has_backward:
        return False
    try:
        kernel.refuse(problem, kernel.cut(problem, TILE), GPUS["h200"].limits)
    except Refused:
        return not kernel.why_not_on(None)
    return True


def waves() -> int:
    """Of how many kinds the code of sawtooth is, for waves of one program, of 264, of 528."""
    from kernels.flash.kernel import flash_forward, launch_arguments
    from kernels.launching import meta_tensors

    tensors, tile = meta_tensors(LONG), TileConfig(64, 64, order=SAWTOOTH)
    return len({ahead(flash_forward, *launch_arguments(tensors, LONG, tile, True, wave)) for wave in (1, 264, 528)})


def kinds() -> int:
    """Of how many kinds four launches are that differ in order, in an option, and in whether 16 divides a length."""
    cuts = (
        (LONG, TileConfig(64, 32)),
        (LONG, TileConfig(64, 32, order=SAWTOOTH)),
        (LONG, TileConfig(64, 32, num_stages=2)),
        (replace(LONG, seq_len_q=8191), TileConfig(64, 32)),
    )
    launches = [all_kernels()["flash"].launches(*cut)[0] for cut in cuts]
    return len({ahead(launch.function, launch.arguments, launch.constants) for launch in launches})


def main() -> None:
    """Print it."""
    driver.set_active(AbsentGpu((9, 0)))
    same = {}
    for kernel in (kernel for kernel in all_kernels().values() if kernel.is_triton):
        for problem, order in (*product(PROBLEMS, kernel.orders), *product(BACKWARD, kernel.orders[:1])):
            if (problem.causal or order != LONGEST_FIRST) and can_be_made(kernel, problem):
                cut = kernel.cut(problem, replace(TILE, order=order))
                same[f"{kernel.name} {problem.label} {order}"] = is_same(kernel, problem, cut)
    print(json.dumps({"same": same, "waves": waves(), "kinds": kinds()}))


if __name__ == "__main__":
    main()
