"""The light half of a kernel of the user's own, spelled module:function; nothing of it is imported here.

What the function offers beyond (q, k, v, causal) -> o, its OwnCallable, is known only to the process that runs it.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any

from kernels.base import AttentionKernel, GpuLimits, all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.schedule import DRAIN, Launch, Schedule

MAX_NAME = 120  # characters
# ASCII without a flag: Python's re and DuckDB's both read it.
SPELLING = "[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
_RUNG = 90  # after the libraries
_PROBE = AttentionProblem(1, 1, 1, 16, 16, 16)


@dataclass(frozen=True)
class OwnKernel(AttentionKernel):
    """A function of the user's, which is imported when it first runs; `like` is the kernel whose schedule it has."""

    like: str = ""

    @property
    def forward(self) -> Callable[..., Any]:
        """See kernels.run.Forward. Raises Refused where this process may not import it."""
        forward: Callable[..., Any] = importlib.import_module("kernels.own_forward").forward(self.name)
        return forward

    @property
    def prepare(self) -> None:
        """Nothing is built before it runs."""
        return None


def launch_name(name: str) -> str:
    """What the one launch of an own kernel is called: as its function."""
    function = name.rpartition(":")[2]
    return f"{function}_" if function == DRAIN else function


def is_own(name: str) -> bool:
    """Whether a kernel's name is one of the user's own, module:function."""
    return len(name) <= MAX_NAME and re.fullmatch(SPELLING, name) is not None


def kernel_named(name: str, like: str = "") -> AttentionKernel:
    """The light half of one of Bytescope's kernels, or of an own one. Raises Refused for anything else."""
    found = all_kernels().get(name)
    if found is not None and not like:
        return found
    if found is None and is_own(name):
        return _own(name, like)
    if found is None and ":" in name:
        raise Refused(
            f"Kernel {name[:40]!r} is not spelled as one of your own is: module:function, such as "
            f"examples.own_triton:attention, of up to {MAX_NAME} letters, digits and _."
        )
    if found is None:
        raise Refused(f"Kernel {name[:40]!r} is not known; choose {', '.join(all_kernels())}.")
    raise Refused(f"Kernel {name} has a schedule of its own; leave like out.")


@cache
def likes() -> tuple[str, ...]:
    """Kernels whose schedule an own one may have: cut by BLOCK_M and BLOCK_N, in one launch."""
    found = []
    for name, kernel in all_kernels().items():
        if kernel.is_tiled and kernel.tells_requests:
            schedule = kernel.schedule(_PROBE, kernel.cut(_PROBE, TileConfig(16, 16)))
            found += [name] if len(schedule.launches) == 1 else []
    return tuple(found)


@cache
def _own(name: str, like: str) -> OwnKernel:
    if like and like not in likes():
        raise Refused(f"{name} has the schedule {like[:40]!r}, which is not known; choose {', '.join(likes())}.")
    launch = launch_name(name)
    own = partial(
        OwnKernel, name=name, title=name.rpartition(":")[2], rung=_RUNG, refuse=_refuse_window, is_triton=False
    )
    if not like:
        return own(
            schedule=partial(_operands_once, name, launch),
            temporaries=_unknown,
            is_tiled=False,
            tells_requests=False,
        )
    model = all_kernels()[like]
    return own(
        schedule=partial(_as, like, launch),
        temporaries=model.temporaries,
        cut=model.cut,
        like=like,
    )


def _operands_once(name: str, launch: str, problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """One launch with its operands' bytes, each counted once: what happens inside is not known from here."""
    size = problem.tensor_bytes
    one = Launch(launch, {tensor: size[tensor] for tensor in "qkv"}, {"o": size["o"]})
    return Schedule(name, problem, (one,))


def _as(like: str, launch: str, problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """The schedule of `like`, its launch under the function's name."""
    plan = all_kernels()[like].schedule(problem, tile)
    return replace(plan, launches=(replace(plan.launches[0], name=launch),))


def _unknown(problem: AttentionProblem, tile: TileConfig) -> dict[str, int]:
    return {}


def _refuse_window(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    if problem.window is not None:
        raise Refused("A kernel of your own is given q, k, v and causal, and no window; leave window out.")
