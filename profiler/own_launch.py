"""The first launch of a kernel of the user's own: it compiles, tells what it asks for, and must leave inputs alone."""

import traceback

from kernels.own_fault import KernelFault
from kernels.own_forward import untouched
from kernels.own_import import OwnCallable
from kernels.run import Output
from profiler.bench import Bench
from profiler.counter import Reading
from profiler.interpreter import why_not_interpreted
from profiler.own_kernel import NO_INTERPRETER, seen, unseen
from profiler.tile_trace import is_interpreting, traced_accesses

NEEDS_GPU = (
    "{name} launches a Triton kernel, and q, k and v are on the CPU: give them on a GPU, or set TRITON_INTERPRET=1 "
    "before triton is imported."
)


def first_launch(bench: Bench, own: OwnCallable) -> tuple[Output | None, list[Reading]]:
    """O, and what it asks for, where the kernel is interpreted; on a GPU neither. Raises KernelFault.

    Whether its kernels are Triton ones shows when they are interpreted.
    """
    try:
        with untouched(own.name, bench.inputs):
            if bench.workload.on_gpu:
                bench.launch()
                return None, []
            if not is_interpreting():
                return bench.launch(), [Reading(unseen(NO_INTERPRETER))]
            with traced_accesses() as trace:
                output = bench.launch()
        return output, [Reading(seen(trace))]
    except KernelFault as fault:
        if not bench.workload.on_gpu and _asked_for_a_gpu(fault.__cause__):
            raise KernelFault(NEEDS_GPU.format(name=own.name)) from None
        reason = None if bench.workload.on_gpu else why_not_interpreted()
        if reason is None:
            raise
        raise KernelFault(f"{fault} If it is a Triton kernel: {reason}.", fault.trace) from None


def _asked_for_a_gpu(error: BaseException | None) -> bool:
    """Whether it was raised where Triton compiles and launches for a GPU, and does not interpret."""
    frames = traceback.walk_tb(error.__traceback__ if error is not None else None)
    return any(
        frame.f_globals.get("__name__") == "triton.runtime.driver"
        or frame.f_code.co_qualname.startswith("JITFunction.")
        for frame, _ in frames
    )
