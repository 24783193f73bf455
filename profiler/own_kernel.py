"""A kernel of the user's own, as it is measured: who may import it, what it says of itself, what it asks for."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernels import own_import
from kernels.own import is_own, kernel_named
from kernels.own_fault import bounded
from kernels.own_import import OwnCallable
from kernels.problem import AttentionProblem, TileConfig
from profiler.admission import INTERPRETED_STEP_SECONDS
from profiler.interpreter import why_not_interpreted
from profiler.plausible import printable
from profiler.run import HALVES, Measurement, Run
from profiler.workload import CPU, Workload

if TYPE_CHECKING:
    from profiler.tile_trace import AccessTrace

INTERPRET_SECONDS = 60.0  # that interpreting beside a Run on a GPU may take
STEP_FLOPS = 4 * 64 * 64 * 64  # of the tile step that INTERPRETED_STEP_SECONDS is of
NOTE = (
    "every load, store and atomic (as a write) of the interpreted Triton programs; what torch does beside them is not"
)
OWN_ALLOCATES = "what a kernel of your own allocates for itself is not known beforehand"
NO_TRITON = "on the CPU, where Triton interprets, it launched no Triton kernel, so its loads and stores cannot be seen"
NO_INTERPRETER = "Triton does not interpret in this process; set TRITON_INTERPRET=1 before triton is imported"
OWN_REFERENCE = "against the kernel's own reference in float64"
OWN_WORK = "its own reference says what it computes, and how many FLOP that needs is not known"
FLOPS = "4 · visible scores · head_dim"
FLOPS_OF_BOTH = "14 · visible scores · head_dim: 2 products forward, 5 backward"
FORWARD_FILE, FRAMES = "own_forward.py", "frames.txt"


@dataclass(frozen=True)
class Permit:
    """The own kernels that a worker may import, and the folder where their modules are looked up first."""

    names: tuple[str, ...] = ()
    folder: str = ""

    @classmethod
    def here(cls, *names: str) -> "Permit":
        """For these, from the working directory."""
        return cls(names, str(Path.cwd()))

    def give(self) -> None:
        """Let this process import these and no others from now on."""
        own_import.permit(self.names, self.folder)


@dataclass(frozen=True)
class Own:
    """What a worker is told beside a Workload for the sake of own kernels.

    `beside` are Measurements of the same kernel from another process; after `seconds`, if the work takes so long, the
    frames where it stands are written to FRAMES beside its progress file.
    """

    permit: Permit = Permit()
    beside: tuple[Measurement, ...] = ()
    seconds: float | None = None


NOBODY = Permit()
NO_OWN = Own()


def completed(workload: Workload, own: OwnCallable) -> Workload:
    """The Workload with what its kernel says of itself: the tile that it takes, if any, and whose schedule it has."""
    if not own.takes:
        return replace(workload, tile=None, like="")
    tile = workload.tile or TileConfig()
    return replace(workload, tile=kernel_named(own.name, own.like).cut(workload.problem, tile), like=own.like)


def as_imported(workload: Workload) -> Workload:
    """`completed`, its kernel imported in this process. Raises Refused where that is not possible."""
    return completed(workload, own_import.imported(workload.kernel))


def seen(trace: "AccessTrace") -> tuple[Measurement, ...]:
    """What an interpreted own kernel asked for."""
    if not trace.accesses:
        return unseen(NO_TRITON)
    return tuple(
        Measurement(f"requested_{way}_bytes", float(trace.total(way)), "B", "interpreter", NOTE)
        for way in ("read", "write")
    )


def unseen(reason: str) -> tuple[Measurement, ...]:
    """Why it is not known what an own kernel asks for."""
    words = printable(reason)
    return tuple(Measurement(name, None, "B", "interpreter", words) for name in HALVES["requested_bytes"])


def why_not_beside(workload: Workload) -> str | None:
    """Why a kernel that is measured on a GPU is not interpreted beside; None where it can be."""
    if reason := why_not_interpreted():
        return reason
    seconds = workload.problem.flops / STEP_FLOPS * INTERPRETED_STEP_SECONDS
    if seconds > INTERPRET_SECONDS / 2:
        return (
            f"to interpret this problem would take roughly {seconds / 60:,.0f} minutes; run a smaller one with "
            "--device cpu"
        )
    return None


def on_cpu(workload: Workload) -> Workload:
    """The same work for the interpreter."""
    return replace(workload, device=CPU, repeats=1, detail=False)


def why_spoiled(run: Run) -> str:
    """Why the O of an own kernel could not be held against float64, as a sentence; empty where it was."""
    error = run.find("relative_error")
    if not is_own(run.workload.kernel) or error is None or error.value is not None:
        return ""
    return f"{run.workload.kernel} has no error against float64: {error.note.rstrip('.')}."


def has_own_reference(run: Run) -> bool:
    """Whether a Run's errors are against what its kernel says that it computes, and not against attention."""
    error = run.find("relative_error")
    return is_own(run.workload.kernel) and error is not None and error.note.startswith(OWN_REFERENCE)


def problem_flops(problem: AttentionProblem, has_own_reference: bool = False) -> Measurement:
    """What attention needs on a problem; None of a kernel that computes what its own reference says."""
    if has_own_reference:
        return Measurement("flops", None, "FLOP", "model", OWN_WORK)
    return Measurement("flops", float(problem.flops), "FLOP", "model", FLOPS_OF_BOTH if problem.backward else FLOPS)


def needed_flops(run: Run) -> Measurement:
    """What the work of a Run needs; None, with the reason, where it is not attention's: older files do not say so."""
    if has_own_reference(run):
        return problem_flops(run.workload.problem, has_own_reference=True)
    return run.find("flops") or problem_flops(run.workload.problem)


def where_it_hung(text: str) -> str:
    """From the frames of all threads as faulthandler tells them, the user's, the innermost last; empty without any."""
    for thread in text.split("\n\n"):
        lines = [line.strip() for line in thread.splitlines() if line.strip().startswith("File ")]
        ours = next((index for index, line in enumerate(lines) if FORWARD_FILE in line), 0)
        if ours:
            frames = "\n".join(f"  {line}" for line in reversed(lines[:ours]))
            return bounded(f"Where it stood when it was stopped (most recent call last):\n{frames}")
    return ""
