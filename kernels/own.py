"""The light half of a kernel of the user's own, spelled module:function; nothing of it is imported here.

What the function offers beyond (q, k, v, causal) -> o, its OwnCallable, is known only to the process that runs it.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial
from typing import Any

from kernels.base import AttentionKernel, GpuLimits, all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.row_walk import RowWalk
from kernels.schedule import DRAIN, Launch, Schedule

MAX_NAME = 120  # characters
# ASCII without a flag: Python's re and DuckDB's both read it.
SPELLING = "[A-Za-z_][A-Za-z0-9_]*([.][A-Za-z_][A-Za-z0-9_]*)*:[A-Za-z_][A-Za-z0-9_]*"
_WITHOUT_LSE = " without lse"
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
            f"examples.own_triton:two_pass, of up to {MAX_NAME} letters, digits and _."
        )
    if found is None:
        raise Refused(f"Kernel {name[:40]!r} is not known; choose {', '.join(all_kernels())}.")
    raise Refused(f"Kernel {name} has a schedule of its own; leave like out.")


@cache
def likes() -> tuple[str, ...]:
    """Schedules that an own kernel may have: of kernels cut by BLOCK_M and BLOCK_N, in one launch.

    Where LSE is written at the end, and nowhere else, there is the schedule without that too.
    """
    found = []
    for name, kernel in all_kernels().items():
        if kernel.is_tiled and kernel.tells_requests:
            launches = kernel.schedule(_PROBE, kernel.cut(_PROBE, TileConfig(16, 16))).launches
            found += [name] if len(launches) == 1 else []
            is_left_out = isinstance(launches[0].walk, RowWalk) and "lse" in launches[0].walk.at_end
            found += [f"{name}{_WITHOUT_LSE}"] if len(launches) == 1 and is_left_out else []
    return tuple(found)


@lru_cache(maxsize=1024)
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
    model = all_kernels()[like.removesuffix(_WITHOUT_LSE)]
    return own(
        schedule=partial(_as, model, launch, like.endswith(_WITHOUT_LSE)),
        temporaries=_unknown if like.endswith(_WITHOUT_LSE) else model.temporaries,
        cut=model.cut,
        like=like,
    )


def _operands_once(name: str, launch: str, problem: AttentionProblem, tile: TileConfig) -> Schedule:
    """One launch with its operands' bytes, each counted once: what happens inside is not known from here."""
    size = problem.tensor_bytes
    one = Launch(launch, {tensor: size[tensor] for tensor in "qkv"}, {"o": size["o"]})
    return Schedule(name, problem, (one,))


def _as(
    model: AttentionKernel, name: str, is_without_lse: bool, problem: AttentionProblem, tile: TileConfig
) -> Schedule:
    """The schedule of `model`, its launch under the function's name."""
    plan = model.schedule(problem, tile)
    (launch,) = plan.launches
    if is_without_lse and isinstance(launch.walk, RowWalk):
        at_end = {tensor: size for tensor, size in launch.walk.at_end.items() if tensor != "lse"}
        return replace(plan, launches=(Launch.of_walk(name, replace(launch.walk, at_end=at_end), launch.on_chip),))
    return replace(plan, launches=(replace(launch, name=name),))


def _unknown(problem: AttentionProblem, tile: TileConfig) -> dict[str, int]:
    return {}


def _refuse_window(problem: AttentionProblem, tile: TileConfig, gpu: GpuLimits | None) -> None:
    if problem.window is not None:
        raise Refused("A kernel of your own is given q, k, v and causal, and no window; leave window out.")
