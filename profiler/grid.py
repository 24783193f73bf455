"""A grid of Workloads: values for every field, and a condition that leaves combinations out."""

import hashlib
import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import duckdb

from kernels.base import all_kernels
from kernels.own import is_own
from kernels.problem import LINEAR, AttentionProblem, Refused, TileConfig
from profiler import axes
from profiler.axes import Value
from profiler.catalogue import spelled
from profiler.codec import encode
from profiler.plausible import printable
from profiler.workload import AUTO, CPU, TraceRequest, Workload, workloads

MAX_COMBINATIONS, MAX_CELLS = 10_000_000, 100_000  # before and after the condition
MAX_CONDITION, CONDITION_SECONDS = 1_000, 10.0  # characters, and how long it may take
ID_DIGITS = 12


@dataclass(frozen=True)
class Axis:
    """One field that a grid may vary: how its words are read, and its value where a grid does not name it."""

    read: Callable[[str, str], Any]
    default: Value


# Named as in Workload, AttentionProblem and TileConfig, the outermost first: neighbours share what they can.
AXES: Mapping[str, Axis] = {
    "kernel": Axis(axes.word, "flash"),
    "batch": Axis(axes.whole, 1),
    "heads": Axis(axes.whole, 2),
    "kv_heads": Axis(axes.whole_or_none, None),
    "seq_len_q": Axis(axes.whole, 512),
    "seq_len_kv": Axis(axes.whole_or_none, None),
    "head_dim": Axis(axes.whole, 64),
    "dtype": Axis(axes.word, "float16"),
    "causal": Axis(axes.flag, False),
    "window": Axis(axes.whole_or_none, None),
    "backward": Axis(axes.flag, False),
    "BLOCK_M": Axis(axes.whole, 64),
    "BLOCK_N": Axis(axes.whole, 64),
    "num_warps": Axis(axes.whole, 4),
    "num_stages": Axis(axes.whole, 3),
    "order": Axis(axes.word, LINEAR),
    "l2": Axis(axes.word, "cold"),
    "repeats": Axis(axes.whole, 20),
    "seed": Axis(axes.whole, 0),
    "counters": Axis(axes.word, AUTO),
    "drain": Axis(axes.flag, True),
    "detail": Axis(axes.flag, False),
}
# What an axis left at none means: as many as the queries' side has.
SAME_AS = {"kv_heads": "heads", "seq_len_kv": "seq_len_q"}


@dataclass(frozen=True)
class Cell:
    """One combination of a grid; `workload` is None, and `refused` says why, where it cannot be.

    The id is made from everything but the device, so that a cell is the same wherever it runs.
    """

    id: str
    values: Mapping[str, Value] = field(hash=False)
    workload: Workload | None
    refused: str = ""

    @property
    def words(self) -> dict[str, str]:
        """Its values as words."""
        return {name: axes.spell(value) for name, value in self.values.items()}

    @property
    def label(self) -> str:
        """What tells it apart from others, in a few words."""
        if self.workload is None:
            return str(self.values["kernel"])
        tile = self.workload.tile
        cut = "" if tile is None else f" {tile.BLOCK_M}×{tile.BLOCK_N}"
        return f"{self.workload.kernel}{cut}, {self.workload.problem.label}"


@dataclass(frozen=True)
class Grid:
    """Values of each axis, those not named at their defaults; `where` is a condition in DuckDB's SQL on their names.

    With `trace`, softmax state and program times are recorded as well. Raises Refused.
    """

    given: dict[str, tuple[Value, ...]]
    where: str = ""
    trace: bool = False

    def __post_init__(self) -> None:
        for name, chosen in self.given.items():
            if name not in AXES:
                raise Refused(f"A grid has no axis {name[:40]!r}; choose {', '.join(AXES)}.")
            if not chosen:
                raise Refused(f"{name} has no value, so the grid is empty; give one or more.")
        if self.combinations > MAX_COMBINATIONS:
            raise Refused(
                f"The grid has {self.combinations:,} combinations, above {MAX_COMBINATIONS:,}; leave values out, or "
                "split it into several sweeps."
            )
        if len(self.where) > MAX_CONDITION:
            raise Refused(f"The condition has {len(self.where):,} characters; stay below {MAX_CONDITION:,}.")

    def values_of(self, name: str) -> tuple[Value, ...]:
        """The values of one axis."""
        return self.given.get(name, (AXES[name].default,))

    @property
    def words(self) -> dict[str, tuple[str, ...]]:
        """The values that are given, as words that `read_axes` reads, in the order of AXES."""
        return {name: tuple(map(axes.spell, self.given[name])) for name in AXES if name in self.given}

    @property
    def combinations(self) -> int:
        """How many there are before the condition, and before those that mean the same are joined."""
        return math.prod(len(self.values_of(name)) for name in AXES)

    @cached_property
    def count(self) -> int:
        """How many combinations the condition keeps. Raises Refused where it is none, or keeps none or too many."""
        ((kept,),) = self._ask(lambda grid: grid.aggregate("count(*)"))
        if not kept:
            raise Refused(f"The condition {self.where[:80]!r} keeps none of {self.combinations:,} combinations.")
        if kept > MAX_CELLS:
            raise Refused(
                f"The grid has {kept:,} cells, above {MAX_CELLS:,}: at a second each they would take "
                f"{kept / 86_400:,.0f} days. Leave values out, or split it into several sweeps."
            )
        return int(kept)

    def rows(self, every: int = 1) -> Iterator[dict[str, Any]]:
        """The combinations that the condition keeps, or each `every`th of them, in the order of AXES."""
        assert self.count
        names, places = ", ".join(map(_quoted, AXES)), ", ".join(_quoted(f"{name} at") for name in AXES)
        numbered = f"{names}, row_number() OVER (ORDER BY {places}) - 1 AS place"
        for row in self._ask(
            lambda grid: grid.project(numbered).filter(f"place % {every} = 0").order("place").project(names)
        ):
            yield dict(zip(AXES, row, strict=True))

    def _ask(self, question: Callable[[duckdb.DuckDBPyRelation], duckdb.DuckDBPyRelation]) -> list[Any]:
        """Ask about every combination that the condition holds for, and its place on each axis. Raises Refused."""
        lists = ", ".join(
            f"(SELECT unnest(${name}) AS {_quoted(name)}, generate_subscripts(${name}, 1) AS {_quoted(f'{name} at')})"
            for name in AXES
        )
        same = ", ".join(f"coalesce({name}, {other}) AS {name}" for name, other in SAME_AS.items())
        values = {name: list(self.values_of(name)) for name in AXES}
        was_slow = threading.Event()
        with duckdb.connect(config={"enable_external_access": "false", "threads": "1"}) as base:
            base.execute("SET lock_configuration = true")
            timer = threading.Timer(CONDITION_SECONDS, _interrupt, (base, was_slow))
            timer.start()
            try:
                self.where.encode()  # DuckDB takes no half characters
                grid = base.sql(f"SELECT * REPLACE ({same}) FROM {lists}", params=values)
                kept = grid.filter(duckdb.SQLExpression(self.where)) if self.where.strip() else grid
                return question(kept).fetchall()
            except RuntimeError as error:  # what DuckDB makes of an interruption
                if not was_slow.is_set():
                    raise KeyboardInterrupt from error
                raise self._too_slow() from None
            except (duckdb.Error, UnicodeError) as error:
                if was_slow.is_set():
                    raise self._too_slow() from None
                reason = printable(str(error).partition("\n")[0], 160).rstrip("!.")
                raise Refused(
                    f"The condition {self.where[:80]!r} cannot be used ({reason}); it is SQL on "
                    f"{', '.join(map(spelled, AXES))}."
                ) from None
            finally:
                timer.cancel()

    def _too_slow(self) -> Refused:
        return Refused(f"The condition {self.where[:80]!r} takes over {CONDITION_SECONDS:g} s; give a simpler one.")

    def cells(self, device: str = CPU) -> tuple[Cell, ...]:
        """One Cell for each combination that means something of its own, in the order of AXES."""
        found: dict[str, Cell] = {}
        for row in self.rows():
            cell = self.cell(row, device)
            found.setdefault(cell.id, cell)
        return tuple(found.values())

    def cell(self, row: dict[str, Any], device: str = CPU) -> Cell:
        """The Cell of one combination."""
        try:
            workload = self._workload(row, device)
        except Refused as refusal:
            return Cell(_id_of(_without_default(row, "backward")), row, None, str(refusal))
        # A field that older plans did not know leaves their ids as they were.
        told = {name: value for name, value in encode(replace(workload, device=CPU)).items() if name != "like"}
        told["problem"] = _without_default(told["problem"], "backward")
        return Cell(_id_of(told), row, workload)

    @staticmethod
    def _has_order(kernel: str, order: str) -> bool:
        found = all_kernels().get(kernel)
        return found is not None and order in found.orders

    def _workload(self, row: Mapping[str, Any], device: str) -> Workload:
        # A sweep's plan is a file that may come from anywhere, and goes on where it was stopped.
        if is_own(str(row["kernel"])):
            raise Refused(f"A sweep takes Bytescope's kernels; measure {row['kernel']} with `profiler run --kernel`.")
        problem = AttentionProblem(**{part.name: row[part.name] for part in fields(AttentionProblem)})
        tile = TileConfig(**{part.name: row[part.name] for part in fields(TileConfig)})
        if not self._has_order(str(row["kernel"]), tile.order) and any(
            self._has_order(str(other), tile.order) for other in self.values_of("kernel")
        ):
            # The order is another kernel's of this grid; this one has its one order, once.
            tile = replace(tile, order=LINEAR)
        (workload,) = workloads(
            (row["kernel"],), problem, tile, device, row["seed"], row["l2"], row["repeats"],
            TraceRequest() if self.trace else None, row["counters"], row["drain"], row["detail"],
        )  # fmt: skip
        return workload


def read_axes(words: Mapping[str, Sequence[str]]) -> dict[str, tuple[Value, ...]]:
    """The values of axes from words. Raises Refused."""
    return {
        # A name that is no axis is refused by the Grid.
        name: tuple(AXES[name].read(name, word) for word in chosen) if name in AXES else tuple(chosen)
        for name, chosen in words.items()
    }


def _without_default(fields: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The fields without one that has its default."""
    return {key: value for key, value in fields.items() if key != name or value != AXES[name].default}


def _interrupt(base: duckdb.DuckDBPyConnection, was_slow: threading.Event) -> None:
    was_slow.set()
    base.interrupt()


def _id_of(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:ID_DIGITS]


def _quoted(name: str) -> str:
    return f'"{name}"'
