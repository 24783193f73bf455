"""Nsight Compute's raw page as CSV (`ncu --csv --page raw`), made by anybody: a row for each kernel; pure.

The first row holds the columns, the second their units, and each other one kernel, in the order in which they ran.
Unlike profiler.ncu_csv, which reads what Bytescope asked ncu for, this takes the units and digits that a person's
settings gave, and any metrics beside those that it needs.
"""

import csv
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from kernels.shown import shown
from profiler.codec import NotARun
from profiler.cupti.host import SECTOR_BYTES
from profiler.ncu_number import COMMA, POINT, decimal_signs, number
from profiler.plausible import printable

MAX_BYTES = 64 * 2**20
MOST_COLUMNS, MOST_KERNELS, MOST_CELLS = 10_000, 100_000, 2_000_000
BEGIN = re.compile(r'\n"?ID"?,')
QUOTED_LINES = re.compile(r'(?:\n"[^\n]*+)++')
LARGEST = 1e18  # bytes, or seconds; no counter of one kernel reaches it
REPORT_FILE = b"NVR"  # what an .ncu-rep begins with
NEEDED = ("ID", "Kernel Name")
DETAILS = ("Metric Name", "Metric Value")  # columns of the other layout, a row for each metric

BYTES = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
SECONDS |= {"nsecond": 1e-9, "usecond": 1e-6, "msecond": 1e-3, "second": 1.0}
SECTORS = {
    f"{prefix}sector": factor * SECTOR_BYTES for prefix, factor in (("", 1.0), ("K", 1e3), ("M", 1e6), ("G", 1e9))
}
WHOLE = ("byte", "sector", "ns", "nsecond")
MOST_COUNTED = 1e11
METRIC = "__"  # in the name of every column that ncu counted
NO_VALUE = re.compile(r"(\(!\) )?n/a", re.IGNORECASE)
HOW = "ncu --print-units base, or with LC_ALL=C"
ASK = (
    "Run ncu with --metrics dram__bytes_read.sum,dram__bytes_write.sum,lts__t_sectors_srcunit_tex.sum,"
    "gpu__time_duration.sum --csv --page raw --print-units base."
)


@dataclass(frozen=True)
class Quantity:
    """A Measurement that ncu tells: the metrics that may hold it, and what one of each of their units is in `unit`."""

    name: str
    unit: str
    metrics: tuple[str, ...]
    units: Mapping[str, float]
    note: str


QUANTITIES = (
    Quantity("hbm_read_bytes", "B", ("dram__bytes_read.sum", "dram__bytes_op_read.sum"), BYTES, "dram read bytes"),
    Quantity("hbm_write_bytes", "B", ("dram__bytes_write.sum", "dram__bytes_op_write.sum"), BYTES, "dram write bytes"),
    Quantity("l2_sm_bytes", "B", ("lts__t_sectors_srcunit_tex.sum",), SECTORS, "L2 sectors × 32 B"),
    Quantity(
        "l2_to_sm_bytes", "B", ("l1tex__m_xbar2l1tex_read_bytes.sum",), BYTES, "bytes that arrived at the SMs' L1"
    ),
    Quantity("l2_sm_read_bytes", "B", ("lts__t_sectors_srcunit_tex_op_read.sum",), SECTORS, "L2 sectors read × 32 B"),
    Quantity(
        "gpu_time_seconds", "s", ("gpu__time_duration.sum",), SECONDS, "kernels alone, at the clocks that ncu set"
    ),
)
REQUIRED = ("hbm_read_bytes", "hbm_write_bytes")
TOLD = ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes", "gpu_time_seconds")  # missing ones have a reason


@dataclass(frozen=True)
class Page:
    """The table: `columns`, `units` and `kernels` have the same length in every row."""

    columns: tuple[str, ...]
    units: tuple[str, ...]
    kernels: tuple[tuple[str, ...], ...]

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each column stands."""
        return {column: place for place, column in enumerate(self.columns)}

    def place(self, quantity: Quantity) -> int | None:
        """The column that holds a quantity; None where none does. Raises NotARun for a unit that is not known."""
        place = next((self.places[metric] for metric in quantity.metrics if metric in self.places), None)
        if place is not None and self.units[place] not in quantity.units:
            raise NotARun(
                f"{self.columns[place]} is in {self.units[place][:40]!r}, which is not known for it; print base units: "
                "ncu --print-units base."
            )
        return place

    def value(self, quantity: Quantity, kernel: Sequence[str]) -> float | None:
        """A kernel's quantity in its unit; None where page or cell do not hold it. Raises NotARun."""
        place = self.place(quantity)
        if place is None:
            return None
        text = kernel[place]
        if NO_VALUE.fullmatch(text):
            return None
        told = self._number(place, text)
        if told is None:
            raise NotARun(
                f"{self.columns[place]} of kernel {self.text(kernel, 'ID')} is {text[:40]!r}, which is no number; "
                f"write the table anew with {HOW}."
            )
        value = told * quantity.units[self.units[place]]
        if value > LARGEST or (quantity.unit == "s" and value <= 0):
            raise NotARun(
                f"{self.columns[place]} of kernel {self.text(kernel, 'ID')} is {text[:40]!r}; no GPU gives it."
            )
        return float(round(value)) if quantity.unit == "B" else value

    def count(self, kernel: Sequence[str], column: str) -> int | None:
        """A whole number above 0 of a column without a unit that scales it; None where the page tells none."""
        place = self.places.get(column)
        if place is None or self.units[place] not in ("", "byte", "SM"):
            return None
        found = number(kernel[place], self.decimal or POINT)
        return int(found) if found and found < MOST_COUNTED and found.is_integer() else None

    @cached_property
    def decimal(self) -> str | None:
        """The sign before decimals as any number of the table shows it; None where none does. Raises NotARun."""
        places = [place for place, column in enumerate(self.columns) if METRIC in column]
        signs = decimal_signs(kernel[place] for kernel in self.kernels for place in places)
        if len(signs) > 1:
            raise NotARun(f"The table's numbers are of two countries: 1.5 and 1,5; write it anew with {HOW}.")
        return next(iter(signs), None)

    def _number(self, place: int, text: str) -> float | None:
        """What a cell says; None where it is no number. Raises NotARun where it may be two."""
        if self.decimal is not None:
            return number(text, self.decimal)
        readings = sorted({found for sign in (POINT, COMMA) if (found := number(text, sign)) is not None})
        # What is counted in base units is whole.
        if len(readings) > 1 and not (COMMA in text and self.units[place] in WHOLE):
            raise NotARun(
                f"{self.columns[place]} is {shown(text)}, which is {readings[0]:g} in one country and {readings[1]:g} "
                f"in another, and no number of the table tells which; write it anew with {HOW}."
            )
        return number(text, POINT)

    def text(self, kernel: Sequence[str], *columns: str) -> str:
        """The cell of the first of some columns that the page has, as one line; empty without any."""
        place = next((self.places[column] for column in columns if column in self.places), None)
        return "" if place is None else printable(kernel[place])


def read(data: bytes) -> Page:
    """The raw page in a file's bytes. Raises NotARun with a sentence for anything else."""
    if len(data) > MAX_BYTES:
        raise NotARun(f"The file is {len(data) / 2**20:.0f} MiB; an ncu table stays under {MAX_BYTES >> 20} MiB.")
    if data.startswith(REPORT_FILE) or b"\0" in data[:4096]:
        raise NotARun(
            "This is no CSV, but perhaps ncu's own report; turn it into one: ncu --import FILE --csv --page raw."
        )
    try:
        rows = list(csv.reader(_lines(data.decode("utf-8-sig")), strict=True))
    except UnicodeDecodeError as fault:
        raise NotARun("The file is not UTF-8 text; write it anew with ncu --csv --page raw.") from fault
    except csv.Error as fault:
        raise NotARun(f"The table is torn ({fault}); write it anew.") from fault
    columns, units, kernels = rows[0], rows[1] if len(rows) > 1 else [], rows[2:]
    _require_raw(columns)
    if not kernels or len(units) != len(columns) or units[columns.index("ID")]:
        raise NotARun("The table holds no kernel below its columns and units; was any profiled?")
    for kernel in kernels:
        if len(kernel) != len(columns):
            raise NotARun(f"A row has {len(kernel)} of {len(columns)} cells; the table is torn, write it anew.")
    return Page(tuple(columns), tuple(units), tuple(map(tuple, kernels)))


def _lines(text: str) -> list[str]:
    """The table's lines; the program that was profiled may have printed before and after them.

    Found without a look at each of the others: a file may be 64 MiB of them.
    """
    text = "\n" + text.replace("\r\n", "\n").replace("\r", "\n")
    begin = BEGIN.search(text)
    if begin is None:
        why = (
            "ncu profiled no kernel" if "No kernels were profiled" in text else "it holds no table that begins with ID"
        )
        raise NotARun(f"This is not what ncu --csv --page raw writes: {why}.")
    start = begin.start()
    quoted = QUOTED_LINES.match(text, start)
    end = quoted.end() if quoted else (text.find("\n\n", start) + 1 or len(text) + 1) - 1
    if any(text.find(line, start + 1) >= 0 for line in ('\n"ID",', "\nID,")):
        raise NotARun("The file holds several tables; keep one of them.")
    if quoted and text.find('\n"', end) >= 0:
        raise NotARun("The table is torn: rows follow a line that is none of them; keep the table alone.")
    table = text[start + 1 : end]
    if (cells := table.count(",")) > MOST_CELLS:
        raise NotARun(f"The table holds {cells:,} cells; {MOST_CELLS:,} are the most.")
    if (kernels := table.count("\n") - 1) > MOST_KERNELS:
        raise NotARun(f"The table holds {kernels:,} kernels; {MOST_KERNELS:,} are the most.")
    return table.removesuffix("\n").split("\n")


def _require_raw(columns: Sequence[str]) -> None:
    if len(columns) > MOST_COLUMNS:
        raise NotARun(f"The table has {len(columns):,} columns; {MOST_COLUMNS:,} are the most.")
    if all(column in columns for column in DETAILS):
        raise NotARun(
            "This is ncu's details page, with a row for each metric; write the raw one: ncu --csv --page raw."
        )
    for column in NEEDED:
        if columns.count(column) != 1:
            raise NotARun(
                f"The table has {columns.count(column) or 'no'} columns {column!r}; write it with ncu itself."
            )
    known = [metric for quantity in QUANTITIES for metric in quantity.metrics]
    twice = next((metric for metric in known if columns.count(metric) > 1), None)
    if twice is not None:
        raise NotARun(f"The table has the column {twice} twice; keep one of them.")
    for quantity in QUANTITIES:
        if quantity.name in REQUIRED and not set(quantity.metrics) & set(columns):
            raise NotARun(f"The table holds no bytes of HBM ({quantity.metrics[0]} is missing). {ASK}")
