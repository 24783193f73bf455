"""`--fail-above RATIO NAME...` on the command line: an option of as many words as follow, and given several times."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from profiler.compare_limits import NAME, Limit, limit

OPTION = "--fail-above"
BETWEEN = "\n"  # the words of one option, in the one text that the parser hands on

FailAbove = Annotated[
    list[str] | None,
    typer.Option(
        OPTION,
        metavar="RATIO NAME...",
        show_default=False,
        help="Exit 1 where a named measurement is worse by more than RATIO, or cannot be compared; NAME:LAUNCH for one "
        "launch. May be given several times.",
    ),
]


class LimitedCommand(TyperCommand):
    """A command whose --fail-above takes a ratio and all names after it, up to the next option or file."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Join the words of each --fail-above to one, and parse as ever."""
        return super().parse_args(ctx, _joined(args))


def limits(found: Sequence[str] | None) -> tuple[Limit, ...]:
    """The Limits of the options that a LimitedCommand was given. Raises Refused."""
    asked = []
    for words in found or ():
        ratio, *names = words.split(BETWEEN)
        asked.append(limit(ratio, names))
    return tuple(asked)


def spelled(asked: Sequence[Limit]) -> list[str]:
    """Limits as words of a command line."""
    return [word for one in asked for word in (OPTION, repr(one.ratio), *one.names)]


def _joined(words: Sequence[str]) -> list[str]:
    left, found = list(words), []
    while left:
        word = left.pop(0)
        option, sign, ratio = word.partition("=")
        if option != OPTION:
            found.append(word)
            continue
        taken = [ratio] if sign else left[:1]
        left = left if sign else left[1:]
        while left and NAME.fullmatch(left[0]) and not Path(left[0]).exists():
            taken.append(left.pop(0))
        found += [OPTION, BETWEEN.join(taken)] if taken else [OPTION]
    return found
