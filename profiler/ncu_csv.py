"""What Nsight Compute's raw page says, as CSV, of each kernel it profiled; pure.

The text is ncu's whole log: lines that begin with == around one table, whose first row holds the columns, whose second
holds their units, and whose others are one profiled kernel each, in the order in which they ran.
"""

import csv
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from profiler.cupti.host import TrafficMetrics

MAX_BYTES = 64 * 2**20
MAX_VALUE = 2**64  # the counters have fewer bits
MARK = "bytescope_mark"  # the kernel that profiler.ncu_target launches between sections
DRAIN, PASS, DRAINED = "drain", "pass", "drained"

# Base units as ncu spells them: ns since 2025, nsecond before.
BYTES, SECTORS, NANOSECONDS = ("byte",), ("sector",), ("ns", "nsecond")

NUMBER = re.compile(r"(\d{1,3}(,\d{3})+|\d+)(\.\d+)?([eE][+-]?\d{1,3})?", re.ASCII)
# 1.234, which in other countries is 1,234: of a time, one cannot be told from the other.
POINTED_THOUSANDS = re.compile(r"[1-9]\d{0,2}\.\d{3}", re.ASCII)
QUOTED_LINES = re.compile(r'(?:\n"[^\n]*+)++')
PASSES = "profiler__replayer_passes"  # ncu's own metric: how often it ran the kernel


class NcuError(RuntimeError):
    """ncu gave no numbers that can be trusted; the message is for the user: what happened, why, what to do."""


@dataclass(frozen=True)
class Section:
    """What ran after one mark: part DRAIN, PASS or DRAINED, and within the pass the launch, None outside of one."""

    part: str
    launch: str | None = None


@dataclass(frozen=True)
class LoadMarks:
    """How profiler.ncu_target launched a Load: the state of L2, a Section for each mark, and why it did not finish."""

    l2: str
    sections: tuple[Section, ...]
    reason: str = ""


@dataclass(frozen=True)
class ProfiledKernel:
    """One kernel as ncu names it, and its traffic by measurement name: bytes, and seconds for gpu_time_seconds."""

    name: str
    traffic: dict[str, float]


MarkedKernels = tuple[tuple[Section, tuple[ProfiledKernel, ...]], ...]


def parse(text: str, metrics: TrafficMetrics) -> tuple[ProfiledKernel, ...]:
    """The profiled kernels in the order in which they ran, each measured in one pass.

    Raises NcuError for anything else: a replay, a table that is missing, torn or of other columns or units, and a
    value that is missing or impossible.
    """
    if len(text) > MAX_BYTES:
        raise NcuError(f"ncu wrote more than {MAX_BYTES >> 20} MiB; choose a problem with fewer launches.")
    table = _table(text)
    try:
        header, *rows = csv.reader(table, strict=True)
    except csv.Error as error:
        raise _unusable(f"its table is torn ({error})") from error
    columns = _columns(header, rows.pop(0) if rows else [], metrics)
    names = [_cell(header, row, "Kernel Name") for row in rows]
    _require_order([_cell(header, row, "ID") for row in rows])
    _require_one_pass(_cell(header, row, PASSES) for row in rows)
    kernels = []
    for name, row in zip(names, rows, strict=True):
        found = {metric: _value(row[column], metric, metrics) for metric, column in columns.items()}
        kernels.append(ProfiledKernel(name, metrics.traffic(found)))
    return tuple(kernels)


def split(kernels: Iterable[ProfiledKernel], sections: Sequence[Section]) -> MarkedKernels:
    """Each section with its kernels, its mark the first of them. Raises NcuError where the marks do not fit."""
    groups: list[list[ProfiledKernel]] = []
    for kernel in kernels:
        if kernel.name.startswith(MARK):
            groups.append([])
        if not groups:
            raise _unusable("it profiled a kernel before the first mark")
        groups[-1].append(kernel)
    if len(groups) != len(sections):
        raise _unusable(f"it profiled {len(groups)} of {len(sections)} marks, so its kernels cannot be told apart")
    return tuple((section, tuple(group)) for section, group in zip(sections, groups, strict=True))


def _table(text: str) -> list[str]:
    """The table's lines. Found without a look at each of the others: a log may be 64 MiB of them."""
    text = f"\n{text}"
    begin = text.find('\n"ID",')
    if begin < 0:
        raise _unusable("it profiled no kernel" if "No kernels were profiled" in text else "it holds no table")
    table = QUOTED_LINES.match(text, begin)
    rest = text[table.end() :].lstrip() if table else ""
    if table is None or text.find('\n"') < begin or '\n"' in rest or (rest and not rest.startswith("==")):
        raise _unusable("its table is torn or not the only one")
    return [line.rstrip("\r") for line in table[0].split("\n")[1:]]


def _columns(header: list[str], units: list[str], metrics: TrafficMetrics) -> dict[str, int]:
    """Where each metric stands. Raises NcuError unless it stands there once and in its base unit."""
    for name in ("ID", "Kernel Name", PASSES, *metrics.names):
        if header.count(name) != 1:
            raise _unusable(f"its table has {header.count(name) or 'no'} columns {name}")
    if len(units) != len(header) or units[header.index("ID")]:
        raise _unusable("its table has no row of units")
    wanted = {metrics.read: BYTES, metrics.write: BYTES, metrics.sectors: SECTORS, metrics.time: NANOSECONDS}
    wanted |= {name: unit for name, unit in ((metrics.to_sm, BYTES), (metrics.sm_reads, SECTORS)) if name}
    columns = {name: header.index(name) for name in wanted}
    for name, column in columns.items():
        if units[column] not in wanted[name]:
            raise _unusable(f"{name} has the unit {units[column][:40]!r}, not {wanted[name][0]}")
    return columns


def _cell(header: list[str], row: list[str], column: str) -> str:
    if len(row) != len(header):
        raise _unusable(f"a row has {len(row)} of {len(header)} cells")
    return row[header.index(column)]


def _require_order(numbers: list[str]) -> None:
    """ncu counts the kernels it profiles."""
    if not numbers:
        raise _unusable("its table holds no kernel")
    if any(not re.fullmatch(r"\d{1,9}", number, re.ASCII) for number in numbers):
        raise _unusable("a kernel has no number")
    order = [int(number) for number in numbers]
    if order != sorted(set(order)):
        raise _unusable("its kernels are not in the order in which they ran")
    if order[-1] - order[0] != len(order) - 1:
        raise _unusable(f"it holds {len(order)} of the kernels {order[0]} to {order[-1]}")


def _require_one_pass(counts: Iterable[str]) -> None:
    """A kernel that is replayed finds what its own first pass left in L2."""
    for count in counts:
        if count != "1":
            raise NcuError(
                f"ncu ran a kernel {count[:9]!r} times to count what was asked, and a replay changes what L2 holds. "
                "Name another version of ncu with BYTESCOPE_NCU, or use another source."
            )


def _value(text: str, metric: str, metrics: TrafficMetrics) -> float:
    is_number = NUMBER.fullmatch(text) and not POINTED_THOUSANDS.fullmatch(text)
    value = float(text.replace(",", "")) if is_number else math.inf
    # Bytes are whole, and whatever ran took time; a mark takes about 2 µs.
    is_possible = value > 0 if metric == metrics.time else value.is_integer()
    if value >= MAX_VALUE or not is_possible:
        raise _unusable(f"{metric} of a kernel is {text[:40]!r}")
    return value


def _unusable(what: str) -> NcuError:
    return NcuError(f"ncu's output cannot be used: {what}. Name another version of ncu with BYTESCOPE_NCU.")
