"""What one axis of a sweep may be given as: lists with commas, ranges start:stop:step and start:stop:*factor."""

from collections.abc import Callable, Iterator
from typing import TypeVar

from kernels.problem import Refused

Value = int | str | bool | None
T = TypeVar("T")
MAX_VALUES = 100_000
NONE = "none"
YES, NO = ("true", "yes"), ("false", "no")


def option(name: str) -> str:
    """How the command line calls an axis."""
    return {"seq_len_q": "--seq-len", "repeats": "--passes"}.get(name, f"--{name.lower().replace('_', '-')}")


def values(name: str, text: str, read: Callable[[str, str], T]) -> tuple[T, ...]:
    """The values of `text`, each read by `read(name, part)`, twice-named ones once. Raises Refused.

    A range holds its stop where a step meets it: 1:4:1 is 1, 2, 3, 4 and 1024:65536:*2 ends with 65,536.
    """
    parts = [part.strip() for part in text.split(",")]
    if not text.strip() or not all(parts):
        raise Refused(f"{name} is {text[:40]!r}; give values with commas between them, or a range such as 16:256:*2.")
    found: dict[T, None] = {}
    for part in parts:
        for spelled in _range(name, part) if ":" in part and read in (whole, whole_or_none) else (part,):
            found[read(name, spelled)] = None
            if len(found) > MAX_VALUES:
                raise Refused(f"{name} has more than {MAX_VALUES:,} values; give a larger step.")
    return tuple(found)


def _range(name: str, part: str) -> Iterator[str]:
    ends = [end.strip() for end in part.split(":")]
    if len(ends) not in (2, 3):
        raise Refused(f"{name} is {part[:40]!r}; a range is start:stop, start:stop:step or start:stop:*factor.")
    is_factor = len(ends) == 3 and ends[2].startswith("*")
    start, stop = (whole(name, end) for end in ends[:2])
    step = whole(name, ends[2].removeprefix("*")) if len(ends) == 3 else 1
    if start > stop:
        raise Refused(f"{name} goes from {start} to {stop}; give the smaller end first.")
    if step < 1 or (is_factor and (step < 2 or start < 1)):
        raise Refused(f"{name} is {part[:40]!r}; give a step of 1 or more, or a factor of 2 or more from 1 on.")
    value = start
    while value <= stop:
        yield str(value)
        value = value * step if is_factor else value + step


def whole(name: str, word: str) -> int:
    """A whole number. Raises Refused."""
    if not word.removeprefix("-").isdecimal() or not word.isascii() or len(word) > 20:
        raise Refused(f"{name} is {word[:40]!r}; it must be a whole number.")
    return int(word)


def whole_or_none(name: str, word: str) -> int | None:
    """A whole number, or none. Raises Refused."""
    return None if word.lower() == NONE else whole(name, word)


def flag(name: str, word: str) -> bool:
    """true or false. Raises Refused."""
    if word.lower() not in YES + NO:
        raise Refused(f"{name} is {word[:40]!r}; choose true, false or both with a comma between them.")
    return word.lower() in YES


def word(name: str, text: str) -> str:
    """A word as it stands; whoever uses it knows which there are."""
    return text


def spell(value: Value) -> str:
    """The word that is read as this value."""
    return NONE if value is None else str(value).lower() if isinstance(value, bool) else str(value)
