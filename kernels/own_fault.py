"""What is wrong with the user's own kernel: a sentence, and the traceback of their frames; free of torch."""

import signal
import traceback
from collections.abc import Iterable
from pathlib import Path

from kernels.problem import Refused

MOST_FRAMES, MOST_CHARACTERS, LONGEST_LINE = 40, 8_000, 300
_OURS = Path(__file__).resolve().parent


class KernelFault(RuntimeError):
    """An own kernel that ran and failed; `trace` is the traceback, empty where there is none."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])


class RefusedKernel(Refused):
    """An own kernel that cannot even begin; `trace` as in KernelFault."""

    def __init__(self, sentence: str, trace: str = "") -> None:
        super().__init__(sentence, trace)
        self.trace = trace

    def __str__(self) -> str:
        return str(self.args[0])


def trace_of(error: BaseException) -> str:
    """The traceback from the first frame that is not Bytescope's, as printable lines that are not too many."""
    try:
        told = traceback.TracebackException.from_exception(error, limit=-MOST_FRAMES)
        frames = [*told.stack]
        while frames and _is_ours(frames[0].filename):
            frames.pop(0)
        told.stack = traceback.StackSummary.from_list(frames)
        return bounded("".join(told.format()))
    except BaseException:  # the error is the user's: asked for its parts, it may raise anything
        return ""


def together(faults: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """The sentences and the tracebacks of one or more faults, as one of each."""
    sentences, traces = zip(*faults, strict=True)
    return " ".join(sentences), "\n\n".join(filter(None, traces))


def bounded(text: str) -> str:
    """Text of unknown origin as printable lines; of too much of it, the end, which says most."""
    lines = ["".join(sign if sign.isprintable() else "�" for sign in line) for line in text.splitlines()]
    return "\n".join(line[:LONGEST_LINE] for line in lines)[-MOST_CHARACTERS:]


def words_of(error: BaseException) -> str:
    """What an error says, on one line of at most LONGEST_LINE characters, its type before it."""
    said = " ".join(bounded(said_by(error)).split())[:LONGEST_LINE].rstrip(" .")
    return f"{type(error).__name__}: {said}" if said else f"{type(error).__name__}, without a word"


def said_by(error: BaseException) -> str:
    """The text of an error; empty where its __str__, which may be the user's, raises or gives no text."""
    try:
        return str(error)
    except BaseException:
        return ""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether the user may have interrupted. A worker's process ignores SIGINT: there the kernel raised it itself."""
    return isinstance(error, KeyboardInterrupt) and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN


def _is_ours(file: str) -> bool:
    return file.startswith("<frozen importlib") or _OURS in Path(file).parents or _is_importlib(file)


def _is_importlib(file: str) -> bool:
    return Path(file).parent.name == "importlib"
