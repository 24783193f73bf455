"""When the output of a Run is no answer at all, told of any kernel as a sentence."""

from profiler.own_kernel import has_own_reference, why_spoiled
from profiler.run import Run

# Relative error above which an output is wrong. bfloat16, the coarsest dtype, rounds by 2⁻⁸ at most, 0.4 %: 5 % would
# be a dozen such roundings that all go the same way, while a mask or a scale that is left out costs tens of percent.
WRONG = 0.05
NOT_FINITE = "holds NaN or infinity"  # after the tensor's name it begins the reason why there is no error
ERRORS = {"O": "relative_error"} | {f"d{name}": f"d{name.lower()}_relative_error" for name in "QKV"}


def is_finite(run: Run) -> bool:
    """False where O or a gradient was compared and held NaN or infinity."""
    return not _spoiled(run)


def is_wrong(run: Run) -> bool:
    """Whether the error of O or of a gradient is more than rounding explains."""
    return largest_error(run)[1] > WRONG


def largest_error(run: Run) -> tuple[str, float]:
    """The tensor whose relative error is largest, among O and the gradients, and that; 0 where none is known."""
    known = ((tensor, run.value(name)) for tensor, name in ERRORS.items())
    return max(((tensor, value or 0.0) for tensor, value in known), key=lambda item: item[1])


def _spoiled(run: Run) -> list[str]:
    """The tensors that held NaN or infinity."""
    found = {tensor: run.find(name) for tensor, name in ERRORS.items()}
    return [
        tensor
        for tensor, error in found.items()
        if error is not None and error.value is None and error.note.startswith(f"{tensor} {NOT_FINITE}")
    ]


def why_wrong(run: Run, name: str) -> str:
    """What is wrong with the output of a Run, which is called `name`; empty where nothing is known to be."""
    if spoiled := _spoiled(run):
        return f"The {_spelled(spoiled[0])} of {name} {NOT_FINITE}."
    if not is_wrong(run):
        return ""
    against = "its own reference in float64" if has_own_reference(run) else "float64 attention"
    tensor, error = largest_error(run)
    return (
        f"The {_spelled(tensor)} of {name} is wrong: relative error {error:.2g} against {against}, and "
        f"rounding explains no more than {WRONG:g}."
    )


def _spelled(tensor: str) -> str:
    return "output" if tensor == "O" else tensor


def why_failed(run: Run) -> str:
    """Why the output of a Run cannot be used, in full; empty where it can."""
    return why_spoiled(run) or why_wrong(run, run.workload.kernel)
