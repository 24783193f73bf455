"""When the output of a Run is no answer at all, told of any kernel as a sentence."""

from profiler.own_kernel import has_own_reference, why_spoiled
from profiler.run import Run

# Relative error above which an output is wrong. bfloat16, the coarsest dtype, rounds by 2⁻⁸ at most, 0.4 %: 5 % would
# be a dozen such roundings that all go the same way, while a mask or a scale that is left out costs tens of percent.
WRONG = 0.05
NOT_FINITE = "O holds NaN or infinity"  # begins the reason why there is no error


def is_finite(run: Run) -> bool:
    """False where O was compared and held NaN or infinity."""
    error = run.find("relative_error")
    return error is None or error.value is not None or not error.note.startswith(NOT_FINITE)


def is_wrong(run: Run) -> bool:
    """Whether the error of O is more than rounding explains."""
    return (run.value("relative_error") or 0.0) > WRONG


def why_wrong(run: Run, name: str) -> str:
    """What is wrong with the output of a Run, which is called `name`; empty where nothing is known to be."""
    if not is_finite(run):
        return f"The output of {name} holds NaN or infinity."
    if not is_wrong(run):
        return ""
    against = "its own reference in float64" if has_own_reference(run) else "float64 attention"
    return (
        f"The output of {name} is wrong: relative error {run.value('relative_error'):.2g} against {against}, and "
        f"rounding explains no more than {WRONG:g}."
    )


def why_failed(run: Run) -> str:
    """Why the output of a Run cannot be used, in full; empty where it can."""
    return why_spoiled(run) or why_wrong(run, run.workload.kernel)
