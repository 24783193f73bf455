"""What sits where at one moment, level by level: HBM, L2, shared memory, registers; how full each is."""

from dataclasses import dataclass

import numpy as np

from app.packed_rows import head_title
from app.picture import Table
from app.resident import Resident, resident, why_none
from app.style import capacity, ratio, seconds
from app.subject import Subject
from app.tensor_names import tensor_title
from app.tile_moment import Moment
from kernels.gpu_limits import REGISTER_FILE_BYTES
from kernels.on_chip import ONE_STEP, REGISTERS, SHARED, Held

MEANING = {
    "q": "the queries at hand",
    "k": "keys: each query is compared with each of them",
    "v": "values: what a query takes from each key",
    "o": "the output",
    "s": "scores Q Kᵀ, and what the softmax makes of them",
    "p": "exp(s − m): weights before their division by l",
    "acc": "Σ exp(s − m) · v so far: the output before its division by l",
    "m": "the largest score of each row so far",
    "l": "Σ exp(s − m) over each row's scores so far: the softmax's denominator",
    "lse": "m + ln l of each row, for a backward pass",
    "do": "the gradient of O, which the backward pass is given",
    "dq": "the gradient of Q",
    "dk": "the gradient of K",
    "dv": "the gradient of V",
    "delta": "rowsum(dO ∘ O) of each query, for the backward pass",
    "lse_delta": "LSE · log2 e and delta of each query, by Q tiles, for the backward pass",
    "dq_sum": "dQ in float32, to which each KV tile's program adds its share",
}
ALONE = "No two programs of this launch read the same K and V: there is nothing to share."


def percent(share: float) -> str:
    """How much of something is taken: 14%; 24× where it is far too much."""
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}" if share < 9.95 else ratio(share)


@dataclass(frozen=True)
class _Level:
    """A level, its bytes where they are known, and why they are not."""

    name: str
    limit: int | None
    why: str = ""

    @property
    def title(self) -> str:
        """Its name, and how much it holds where that is known."""
        return self.name if self.limit is None else f"{self.name}, {capacity(self.limit)}"

    def row(self, what: str, size: int, now: str, meaning: str) -> "_Row":
        """A line for something that it holds."""
        share = None if self.limit is None else size / self.limit
        shown = "–" if share is None else percent(share)
        texts = (self.title, what, capacity(size), shown, now, "schedule")
        why = self.why if share is None else ""
        return _Row(texts, ("", meaning, "", why, "", ""), (None, None, None, share, None, None))


@dataclass(frozen=True)
class _Row:
    texts: tuple[str, ...]
    reasons: tuple[str, ...]
    fills: tuple[float | None, ...]
    sources: tuple[str, ...] = ("",) * 6


def levels(subject: Subject, moment: Moment) -> Table:
    """HBM's whole tensors, what L2 was asked for of K and V, and what one program holds on chip."""
    running = None if subject.run is None else resident(subject.run, moment.program, moment.step)
    rows = [*_hbm(subject), _l2(subject, moment), _between(subject, running), *_on_chip(subject, moment)]
    head = head_title(moment.walk.grid)
    caption = (
        f"HBM: whole tensors, all heads. L2: K and V that this {head} has read, if nothing pushed them out. "
        f"{_when(running)}Below: where the compiler puts operands and accumulators on tensor "
        "cores; not all need room at once: do not add up."
    )
    texts, level = [], ""
    for row in rows:
        name, level = "" if row.texts[0] == level else row.texts[0], row.texts[0]
        texts.append((name, *row.texts[1:]))
    columns = ("level", "holds", "size", "of level", "rows or keys", "source")
    return Table(
        f"What sits where, {subject.name}", caption, columns, tuple(texts),
        tuple(row.reasons for row in rows), tuple(row.sources for row in rows), tuple(row.fills for row in rows),
    )  # fmt: skip


def _hbm(subject: Subject) -> list[_Row]:
    device = subject.device
    memory = device.memory_bytes if device is not None and device.compute_capability is not None else None
    level = _Level("HBM", memory, _no_limit(subject, "memory"))
    kept = subject.problem.tensor_bytes
    return [
        level.row(
            tensor_title(name) if name in kept else f"{tensor_title(name)}, temporary", size, "all",
            MEANING.get(name, "an intermediate result that the kernel keeps in HBM"),
        )
        for name, size in subject.tensor_bytes.items()
    ]  # fmt: skip


def _l2_level(subject: Subject) -> _Level:
    return _Level("L2", None if subject.device is None else subject.device.l2_bytes, _no_limit(subject, "L2"))


def _l2(subject: Subject, moment: Moment) -> _Row:
    grid, level = moment.walk.grid, _l2_level(subject)
    tiles = np.arange(grid.kv_tiles)
    rows = grid.kv_rows(tiles, tiles + 1)
    size = sum(int(rows[reads > 0].sum()) for reads in moment.kv_reads) * grid.row_bytes
    head = head_title(grid)
    return level.row(
        "K, V read", size, f"of this {head}",
        f"K and V of this {head} read so far, each byte once; other heads' compete for the same L2",
    )  # fmt: skip


def _between(subject: Subject, running: Resident | None) -> _Row:
    """What L2 must hold for the programs that run now to share K and V."""
    level, what = _l2_level(subject), "K, V between running programs"
    now = "–" if running is None else "1 program" if len(running.program) == 1 else f"{len(running.program):,} programs"
    if running is None or running.spanned is None:
        why = why_none(subject.run) if running is None else ALONE
        return _Row((level.title, what, "–", "–", now, ""), ("", "", why, why, why, ""), (None,) * 6)
    row = level.row(
        what, running.spanned, now,
        "K and V from the nearest to the furthest KV tile of the running programs that read the same K and V, summed "
        "over these: what L2 must hold for all of them to share what one has read",
    )  # fmt: skip
    return _Row((*row.texts[:-1], ""), row.reasons, row.fills, ("", "model", "", "", "", ""))


def _when(running: Resident | None) -> str:
    """At which measured time the programs ran that the row between them is about."""
    if running is None:
        return ""
    return (
        f"Running programs: those that ran {seconds(running.time * 1e-9)} after the first start, when this one was "
        "here; by the kernel's clock, each at an even speed. "
    )


def _no_limit(subject: Subject, what: str) -> str:
    if subject.device is None:
        return f"Without a Run the {what} of no GPU is known: measure on one, or open a recorded Run."
    return f"Measured on {subject.device.name}, of which no {what} of a GPU is known: measure on one."


def _on_chip(subject: Subject, moment: Moment) -> list[_Row]:
    device, main = subject.device, subject.schedule.main
    shared = None if device is None else device.shared_memory_per_block
    places = {
        SHARED: _Level("shared memory", shared, _no_limit(subject, "shared memory")),
        REGISTERS: _Level("registers", REGISTER_FILE_BYTES),
    }
    held = () if main is None else main.on_chip
    return [
        places[where].row(_spelled(part), part.size, _now(part, moment), _meaning(part))
        for where in (SHARED, REGISTERS)
        for part in held
        if part.place == where
    ]


def _spelled(part: Held) -> str:
    return f"{part.name} {'×'.join(f'{side:,}' for side in part.shape)}"


def _meaning(part: Held) -> str:
    return f"{MEANING.get(part.tensor, 'a tile')}; {part.dtype}; stays {part.stays}"


def _now(part: Held, moment: Moment) -> str:
    """Which rows or keys of the problem the tile holds at this step."""
    if part.tensor in ("k", "v"):
        return "–" if moment.keys is None or part.tensor not in moment.kv_now else _span(*moment.keys)
    if part.tensor in ("s", "p"):
        if moment.keys is None:
            return "–"
        return "this tile" if part.stays == ONE_STEP else "the tile before, then this one"
    return _span(*moment.rows)


def _span(first: int, stop: int) -> str:
    return f"{first:,}" if stop - first == 1 else f"{first:,}–{stop - 1:,}"
