"""Runs the user's own kernel as one launch, and says what is wrong with what it raised or gave back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from kernels.own import launch_name
from kernels.own_fault import KernelFault, trace_of, words_of
from kernels.own_import import OwnCallable, imported
from kernels.problem import AttentionProblem, TileConfig
from kernels.run import Forward, LaunchHook, Output

_AS_INTEGERS = {2: torch.int16, 4: torch.int32}


def forward(name: str) -> Forward:
    """The Forward of an own kernel. Raises Refused where it cannot be imported."""
    return forward_of(imported(name))


def forward_of(own: OwnCallable) -> Forward:
    """The Forward of a callable; calling it raises KernelFault, and torch.OutOfMemoryError as it is."""
    function = launch_name(own.name)

    def run(
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        problem: AttentionProblem,
        tile: TileConfig,
        launch: LaunchHook = nullcontext,
        finite: bool = False,
        prepared: object = None,
    ) -> Output:
        options = {name: getattr(tile, name) for name in own.takes}
        with launch(function):
            o = called(own.name, own.call, (q, k, v, problem.causal), options)
        return Output(checked(own.name, o, q))

    return run


def called(name: str, call: Callable[..., Any], arguments: Sequence[object], options: dict[str, Any]) -> Any:
    """What a function of the user's gives back. Raises KernelFault with its traceback."""
    try:
        return call(*arguments, **options)
    except (torch.OutOfMemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise KernelFault(f"{name} raised {words_of(error)}.", trace_of(error)) from error


def checked(name: str, o: object, q: torch.Tensor) -> torch.Tensor:
    """O where it is a tensor like q. Raises KernelFault."""
    if not isinstance(o, torch.Tensor):
        more = "; return O alone" if isinstance(o, tuple | list) else ""
        raise KernelFault(f"{name} returned a {type(o).__name__}, and not a tensor{more}.")
    if o.shape != q.shape:
        raise KernelFault(f"{name} returned the shape {_spelled(o.shape)}; O has q's, {_spelled(q.shape)}.")
    if o.dtype != q.dtype:
        found, wanted = (str(dtype).removeprefix("torch.") for dtype in (o.dtype, q.dtype))
        raise KernelFault(f"{name} returned {found}; O has q's dtype, {wanted}.")
    if o.device != q.device:
        raise KernelFault(f"{name} returned a tensor on {o.device}; O is where q is, on {q.device}.")
    return o


@contextmanager
def untouched(name: str, inputs: Sequence[torch.Tensor]) -> Iterator[None]:
    """Raise KernelFault where q, k or v hold other bits after the block than before: others are measured on them."""
    before = [_bits(tensor) for tensor in inputs]
    yield
    for letter, tensor, bits in zip("qkv", inputs, before, strict=True):
        if _bits(tensor) != bits:
            raise KernelFault(
                f"{name} wrote into {letter}, which it was given to read; let it write a tensor of its own."
            )


def _bits(tensor: torch.Tensor) -> int:
    whole = tensor.contiguous().view(_AS_INTEGERS[tensor.element_size()])
    return int(whole.sum(dtype=torch.int64))


def _spelled(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
