"""Which Run of a file is meant: FILE where it holds one, FILE:WHICH by kernel, place or id where it holds several."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernels.problem import Refused
from profiler.run import Run
from profiler.store import load_named, shown_path

MOST_LISTED = 20


@dataclass(frozen=True)
class Chosen:
    """A Run, its file, and its place in it from 1."""

    file: Path
    place: int
    run: Run

    @property
    def word(self) -> str:
        """What names it from anywhere."""
        return f"{self.file.resolve()}:{self.place}"


def pair(words: Sequence[str], kernel: str | None = None) -> tuple[Chosen, Chosen]:
    """The two Runs that one or two FILE[:WHICH] name; one file alone must hold two Runs.

    `kernel` chooses from files that hold several.

    Raises Refused where that is not clear, NotARun or StoreError for a file that cannot be read.
    """
    if len(words) == 1:
        both = _found(words[0], "")
        if len(both) != 2:
            raise Refused(
                f"{shown_path(words[0])} holds {len(both)} Run{'' if len(both) == 1 else 's'}; name two files, or two "
                f"of its Runs: {_listed(both)}."
            )
        return both[0], both[1]
    if len(words) != 2:
        raise Refused(f"{len(words)} files are named; compare takes two, such as A.json B.json.")
    before, after = (chosen(word, kernel) for word in words)
    return before, after


def chosen(word: str, kernel: str | None = None) -> Chosen:
    """The Run that FILE[:WHICH] names. Raises as `pair` does."""
    found = _found(word, kernel or "")
    if len(found) == 1:
        return found[0]
    file, which = _divided(word)
    several = f"{len(found)} Runs" if found else "no Run"
    of = f" {(which or kernel or '')[:80]!r}" if which or kernel else ""
    raise Refused(f"{shown_path(file)} holds {several}{of}; name one of them: {_listed(_found(str(file), ''))}.")


def _found(word: str, kernel: str) -> list[Chosen]:
    """The Runs that a word takes: by place from 1, id or kernel; all of a file without any of these."""
    file, which = _divided(word)
    runs = [Chosen(file, place, run) for place, run in enumerate(load_named(file), 1)]
    if which.isascii() and which.isdecimal():
        return [one for one in runs if str(one.place) == which]
    if which:
        return [one for one in runs if which in (one.run.id, one.run.workload.kernel)]
    return [one for one in runs if kernel in ("", one.run.workload.kernel)]


def _divided(word: str) -> tuple[Path, str]:
    """The file and what follows it; a file's own name may hold a colon."""
    if Path(word).exists():
        return Path(word), ""
    places = [index for index, sign in enumerate(word) if sign == ":"]
    for place in places:
        if Path(word[:place]).is_file():
            return Path(word[:place]), word[place + 1 :]
    return Path(word), ""


def _listed(runs: Sequence[Chosen]) -> str:
    """How each Run of a file is named: by its kernel, or by its place where others have the same kernel."""
    kernels = [one.run.workload.kernel for one in runs]
    shown = [
        f"{one.file}:{kernel if kernels.count(kernel) == 1 else one.place} ({_about(one.run)})"
        for kernel, one in zip(kernels, runs, strict=True)
    ]
    more = f" and {len(shown) - MOST_LISTED} more" if len(shown) > MOST_LISTED else ""
    return ", ".join(shown[:MOST_LISTED]) + more


def _about(run: Run) -> str:
    tile = run.workload.tile
    cut = f"{tile.BLOCK_M}×{tile.BLOCK_N} {tile.order}, " if tile else ""
    return f"{cut}{run.workload.problem.label}"
