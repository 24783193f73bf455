"""Which of the selected Runs can be compared, and a short name for each that tells them apart."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernels.base import AttentionKernel, all_kernels
from profiler.run import Run

MAX_COMPARED = 8

# What can tell two Runs of one kernel apart, in the order in which a reader would ask.
_DIFFERENCES: tuple[Callable[[Run], str], ...] = (
    lambda run: f"{run.workload.tile.BLOCK_M}×{run.workload.tile.BLOCK_N}" if run.workload.tile else "",
    lambda run: run.workload.tile.order if run.workload.tile else "",
    lambda run: f"{run.workload.tile.num_warps} warps" if run.workload.tile else "",
    lambda run: f"{run.workload.tile.num_stages} stages" if run.workload.tile else "",
    lambda run: run.device.name,
    lambda run: f"{run.workload.l2} L2",
    lambda run: f"counted by {run.workload.counters}",
    lambda run: "drained" if run.workload.drain else "not drained",
    lambda run: "with detail counters" if run.workload.detail else "",
    lambda run: f"seed {run.workload.seed}",
    lambda run: run.created[11:19] or run.created,
    lambda run: run.id,
)


@dataclass(frozen=True)
class Comparison:
    """Runs of one problem, oldest first, under names that tell them apart; `note` says what was left out."""

    runs: tuple[Run, ...]
    names: tuple[str, ...]
    note: str = ""


def compare(runs: Sequence[Run]) -> Comparison:
    """The Runs that share the newest Run's problem, at most MAX_COMPARED, the newest of them."""
    if not runs:
        return Comparison((), ())
    distinct = sorted(dict.fromkeys(runs), key=lambda run: run.created)
    problem = distinct[-1].workload.problem
    same = [run for run in distinct if run.workload.problem == problem]
    shown = tuple(same[-MAX_COMPARED:])
    notes = []
    if len(same) < len(distinct):
        notes.append(f"{len(distinct) - len(same)} selected Runs compute another problem and are not compared here.")
    if len(shown) < len(same):
        notes.append(f"The newest {MAX_COMPARED} of {len(same)} Runs are shown.")
    return Comparison(shown, names(shown), " ".join(notes))


def names(runs: Sequence[Run]) -> tuple[str, ...]:
    """The kernel's name of each Run, followed by what differs where a kernel occurs more than once.

    An own kernel is named by its function where no other kernel has that name.
    """
    kernels = {run.workload.kernel for run in runs} | {*all_kernels()}
    short = Counter(map(_short, kernels))
    found = [_short(run.workload.kernel) for run in runs]
    found = [run.workload.kernel if short[name] > 1 else name for name, run in zip(found, runs, strict=True)]
    for difference in _DIFFERENCES:
        twice = {name for name in found if found.count(name) > 1}
        words = [difference(run) for run in runs]
        for name in twice:
            members = [index for index, other in enumerate(found) if other == name]
            if len({words[index] for index in members}) > 1:
                for index in members:
                    found[index] = f"{name} {words[index]}".rstrip()
    return tuple(found)


def title(run: Run, name: str = "") -> str:
    """The kernel's title, as a sentence begins with it, and what else the Run's name in `names` holds."""
    return titled(run.workload.attention_kernel, name)


def titled(kernel: AttentionKernel, name: str) -> str:
    """The kernel's title, and what else a name that `names` gave it holds."""
    return f"{kernel.title}{name.removeprefix(kernel.name if name.startswith(kernel.name) else _short(kernel.name))}"


def _short(kernel: str) -> str:
    return kernel.rpartition(":")[2]
