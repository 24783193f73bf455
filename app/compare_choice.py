"""The Runs that the Compare page offers: those that are shown, then the newest saved ones, then those that ship."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from app.answer import pair
from app.history import Entry, read_folder
from app.recorded import EXAMPLES
from app.selection import compare, names
from profiler.codec import NotARun
from profiler.run import Run
from profiler.store import StoreError, load, printable_name, runs_folder
from profiler.workload import Workload

MOST_KEPT = 16  # Runs that were chosen lately stay in memory


@dataclass(frozen=True)
class Choice:
    """One Run to choose: what it is called, and the Run itself or the entry of its file."""

    label: str
    workload: Workload
    run: Run | None = None
    entry: Entry | None = None

    def read(self) -> Run:
        """The Run. Raises NotARun or StoreError, each a sentence, where its file has gone or changed."""
        if self.run is not None:
            return self.run
        assert self.entry is not None
        path = self.entry.path
        try:
            return _read(path, self.entry.run_id, path.stat().st_mtime_ns)
        except OSError as fault:
            raise StoreError(f"{printable_name(path)} could not be read: {fault.strerror or fault}.") from fault


def choices(runs: Sequence[Run]) -> dict[str, Choice]:
    """Every choice by its Run's id; a Run that is shown is not offered again."""
    shown = zip(names(runs), runs, strict=True)
    found = {run.id: Choice(_label(name, Entry.of(run, Path()), "shown"), run.workload, run) for name, run in shown}
    for place, folder in (("saved", runs_folder()), ("recorded", EXAMPLES)):
        for entry in read_folder(folder).entries:
            found.setdefault(entry.run_id, Choice(_label(_name(entry), entry, place), entry.workload, entry=entry))
    return found


def usual(runs: Sequence[Run], offered: Mapping[str, Choice]) -> tuple[str, str] | None:
    """The ids of what the other pages hold against each other; of Runs of different problems, of the newest two.

    One shown Run is held against the first other that is offered, of its own problem if there is one; None where none
    is shown.
    """
    if len(runs) > 1:
        before, after = usual_runs(runs)
        return before.id, after.id
    others = [run_id for run_id in offered if runs and run_id != runs[0].id]
    alike = [run_id for run_id in others if offered[run_id].workload.problem == runs[0].workload.problem]
    return ((alike or others)[0], runs[0].id) if others else None


def usual_runs(runs: Sequence[Run]) -> tuple[Run, Run]:
    """`usual` of two Runs or more, without ids."""
    two = pair(compare(runs))
    if two.baseline is not None:
        return two.baseline, two.subject
    before, after = sorted(runs, key=lambda run: run.created)[-2:]
    return before, after


def _name(entry: Entry) -> str:
    tile = entry.workload.tile
    return entry.workload.kernel if tile is None else f"{entry.workload.kernel} {tile.BLOCK_M}×{tile.BLOCK_N}"


def _label(name: str, entry: Entry, place: str) -> str:
    """Such as: shown: flash, (1, 16, 8192, 128) bfloat16, full mask, NVIDIA H200, 2026-11-30 16:12."""
    made = entry.created[:16].replace("T", " ")
    return f"{place}: {name}, {entry.workload.problem.label}, {entry.device}, {made}"


@lru_cache(maxsize=MOST_KEPT)
def _read(path: Path, run_id: str, modified: int) -> Run:
    """`modified` is there to notice a change."""
    found = next((run for run in load(path) if run.id == run_id), None)
    if found is None:
        raise NotARun(f"{printable_name(path)} holds the Run {run_id} no more.")
    return found
