"""Runs the user's own kernel as one launch, and says what is wrong with what it raised or gave back."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch

from kernels.own import launch_name
from kernels.own_fault import KernelFault, is_ctrl_c, trace_of, words_of
from kernels.own_import import OwnCallable, imported
from kernels.problem import AttentionProblem, TileConfig
from kernels.run import Forward, LaunchHook, Output

_AS_INTEGERS = {2: torch.int16, 4: torch.int32}
_CHUNK = 2**20  # elements that are weighed at once, in int64: 8 MiB
_SCATTER = (0x1E3779B97F4A7C15, 0x3F58476D1CE4E5B9)  # odd, so that no bit of a place is lost


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
        asked = q.detach()  # the kernel may resize q itself
        with launch(function):
            o = called(own.name, own.call, (q, k, v, problem.causal), options)
        return Output(checked(own.name, o, asked))

    return run


def called(name: str, call: Callable[..., Any], arguments: Sequence[object], options: dict[str, Any]) -> Any:
    """What a function of the user's gives back. Raises KernelFault with its traceback."""
    try:
        return call(*arguments, **options)
    except torch.OutOfMemoryError:
        raise
    except BaseException as error:
        if is_ctrl_c(error):
            raise
        raise KernelFault(f"{name} raised {words_of(error)}.", trace_of(error)) from error


def checked(name: str, o: object, q: torch.Tensor) -> torch.Tensor:
    """O, as a plain tensor, where it is one like q. Raises KernelFault."""
    try:
        return _checked(name, o, q)
    except KernelFault:
        raise
    except Exception as error:  # a tensor of a class of the user's may raise whatever it is asked
        raise KernelFault(
            f"{name} returned a {type(o).__name__} that cannot be read ({words_of(error)}); return a plain tensor.",
            trace_of(error),
        ) from error


def _checked(name: str, o: object, q: torch.Tensor) -> torch.Tensor:
    if not isinstance(o, torch.Tensor):
        more = "; return O alone" if isinstance(o, tuple | list) else ""
        raise KernelFault(f"{name} returned a {type(o).__name__}, and not a tensor{more}.")
    if type(o) is not torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            o = o.as_subclass(torch.Tensor)
    if o.layout != torch.strided:
        layout = str(o.layout).removeprefix("torch.")
        raise KernelFault(f"{name} returned a tensor of layout {layout}; return a dense one, as by to_dense().")
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
    before = [(_kind(tensor), _bits(tensor)) for tensor in inputs]
    yield
    for letter, tensor, (kind, bits) in zip("qkv", inputs, before, strict=True):
        if _kind(tensor) != kind or _bits(tensor) != bits:
            raise KernelFault(
                f"{name} wrote into {letter}, which it was given to read; let it write a tensor of its own."
            )


def _kind(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.dtype, tensor.device


def _bits(tensor: torch.Tensor) -> int:
    """The sum of all elements' bits, each weighed by its place, modulo 2⁶⁴: also what is only rearranged shows."""
    flat = tensor.detach().contiguous().view(_AS_INTEGERS[tensor.element_size()]).flatten()
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    for start in range(0, flat.numel(), _CHUNK):
        bits = flat[start : start + _CHUNK].long()
        weight = torch.arange(start, start + bits.numel(), dtype=torch.int64, device=tensor.device)
        for factor in _SCATTER:
            weight.mul_(factor).bitwise_xor_(weight >> 29)
        # Of an odd weight no single change is lost.
        total += weight.bitwise_or_(1).mul_(bits).sum()
    return int(total)


def _spelled(shape: Sequence[int]) -> str:
    return f"[{', '.join(map(str, shape))}]"
