"""Measures a function on its caller's tensors, in the caller's own process, as `from profiler import profile` does."""

import inspect
import re
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from kernels.own import is_own
from kernels.own_import import TILE_NAMES, OwnCallable, offered
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler import child, gpu_lock
from profiler.bench import Bench, Inputs
from profiler.measure import measured
from profiler.own_kernel import completed, unseen
from profiler.run import Run
from profiler.workload import CPU, Workload

ELSEWHERE = (
    "profile() runs on the GPU alone; `python -m profiler run --kernel module:function` also interprets Triton kernels"
)
GIVEN = {"inputs": "the tensors that profile() was given"}


def measure_here(
    call: Callable[..., Any],
    inputs: Inputs,
    causal: bool,
    tile: TileConfig | None,
    how: dict[str, Any],
) -> Run:
    """See profiler.profile. `how` are fields of Workload. Raises Refused and KernelFault."""
    _require_kinds(tile, how | {"causal": causal})
    problem = problem_of(*inputs, causal)
    device = CPU if inputs[0].device.type == "cpu" else f"cuda:{inputs[0].device.index}"
    own = offered(_name(call), call)
    if tile is not None and not own.takes:
        raise Refused(f"{own.name} takes neither BLOCK_M nor BLOCK_N; leave tile out.")
    asked = Workload(own.name, problem, tile or _own_tile(own), device, **how)
    workload = completed(asked, own)
    with ExitStack() as held:
        if device != CPU:
            # Which GPU is current stays as it was, and nobody else measures on this one meanwhile.
            held.enter_context(torch.cuda.device(device))
            held.enter_context(gpu_lock.lock_of(device))
            held.callback(torch.cuda.empty_cache)
            held.callback(torch._C._cuda_clearCublasWorkspaces)  # of the float64 reference
        info = child.describe(device)
        make = partial(Bench, workload, info, own, inputs)
        beside = () if device == CPU else unseen(ELSEWHERE)
        run = measured(make, workload, info, uuid.uuid4().hex[:12], beside=beside)
    return replace(run, environment=run.environment | GIVEN)


def problem_of(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> AttentionProblem:
    """The problem that three tensors are. Raises Refused with what does not fit."""
    for name, tensor in (("q", q), ("k", k), ("v", v)):
        if not isinstance(tensor, torch.Tensor):
            raise Refused(f"{name} is a {type(tensor).__name__}; give a tensor [batch, heads, seq_len, head_dim].")
        if tensor.layout != torch.strided or tensor.is_nested:
            raise Refused(f"{name} is sparse or nested; give a dense tensor [batch, heads, seq_len, head_dim].")
        if tensor.dim() != 4:
            raise Refused(f"{name} has the shape {[*tensor.shape]}; it should be [batch, heads, seq_len, head_dim].")
        if (tensor.dtype, tensor.device) != (q.dtype, q.device):
            raise Refused(
                f"{name} is {tensor.dtype} on {tensor.device}, and q {q.dtype} on {q.device}; make them alike."
            )
    if q.device.type not in ("cpu", "cuda"):
        raise Refused(f"q is on {q.device}; move q, k and v to the CPU or to an NVIDIA GPU.")
    if k.shape != v.shape:
        raise Refused(f"k has the shape {[*k.shape]} and v {[*v.shape]}; they should be the same.")
    if (q.shape[0], q.shape[3]) != (k.shape[0], k.shape[3]):
        raise Refused(f"q has the shape {[*q.shape]} and k {[*k.shape]}; batch and head_dim should be the same.")
    (batch, heads, seq_len_q, head_dim), (_, kv_heads, seq_len_kv, _) = q.shape, k.shape
    dtype = str(q.dtype).removeprefix("torch.")
    return AttentionProblem(batch, heads, kv_heads, seq_len_q, seq_len_kv, head_dim, dtype, causal)


def _require_kinds(tile: object, given: dict[str, Any]) -> None:
    """Nobody has parsed what profile() is given. Raises Refused for a value of another kind than a Run holds."""
    if tile is not None and not isinstance(tile, TileConfig):
        raise Refused(f"tile is {_shown(tile)}; give a TileConfig, such as kernels.problem.TileConfig(64, 64).")
    for name in ("causal", "drain", "detail"):
        if not isinstance(given[name], bool):
            raise Refused(f"{name} is {_shown(given[name])}; give True or False.")
    for name in ("l2", "counters"):
        if not isinstance(given[name], str):
            raise Refused(f"{name} is {_shown(given[name])}; give a text, or leave it out.")
    if type(given["repeats"]) is not int:
        raise Refused(f"passes is {_shown(given['repeats'])}; give a whole number, such as 20.")


def _shown(value: object) -> str:
    """A value of whatever kind, in few words."""
    return f"{value!r:.40}" if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"


def _name(call: Any) -> str:
    """module:function, as far as a callable tells them."""
    plain = f"python:{type(call).__name__}"
    try:
        function, module = getattr(call, "__name__", type(call).__name__), getattr(call, "__module__", None) or "python"
        told = f"{module}:{re.sub('[<>]', '', function)}"
    except Exception:  # an object of the user's may raise whatever it is asked
        told = plain
    return next((name for name in (told, plain) if is_own(name)), "python:callable")


def _own_tile(own: OwnCallable) -> TileConfig | None:
    """The tile that the function has by default; None where it takes none."""
    if not own.takes:
        return None
    found = inspect.signature(own.call).parameters
    defaults = {name: found[name].default for name in TILE_NAMES if name in own.takes}
    given: dict[str, Any] = {name: value for name, value in defaults.items() if isinstance(value, int)}
    return replace(TileConfig(), **given)
