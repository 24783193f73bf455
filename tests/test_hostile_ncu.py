"""Nsight Compute's CSV as anybody may have changed it: each file is read as it says, or refused with one sentence."""

import csv
import io
from pathlib import Path

from hypothesis import example, given
from hypothesis import strategies as st

from kernels.problem import AttentionProblem, Refused
from profiler.codec import NotARun
from profiler.cupti.host import TrafficMetrics
from profiler.ncu_csv import NcuError, parse
from profiler.ncu_import import Asked, imported
from profiler.ncu_page import BYTES, SECONDS, SECTORS, read
from profiler.run_document import from_json, to_json
from tests.hostile import HOSTILE_TEXTS, MOST_LETTERS, Long, changed_bytes, often, quickly, require_sentence

DATA = Path(__file__).parent / "data"
PROBLEM = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
METRICS = tuple(
    TrafficMetrics(
        f"dram__bytes{op}_read.sum",
        f"dram__bytes{op}_write.sum",
        "lts__t_sectors_srcunit_tex.sum",
        "gpu__time_duration.sum",
    )
    for op in ("", "_op")
)
FILES = tuple(path.read_bytes() for path in sorted(DATA.glob("ncu_*.csv")))
LINES = (
    "",
    "==PROF== Connected to process 812 (/usr/bin/python3.11)",
    "==WARNING== No kernels were profiled.",
    '"ID","Kernel Name"',
    '"',
    'what the program prints itself, with "quotes" and, commas',
    "\0",
    "x" * 200_000,
    '"' + "x" * 200_000 + '"',
)
CELLS = (
    "n/a", "(!) n/a", "-1", "0", "1e5", "1E400", "1e-400", "1.5", "1,5", "1.234", "1,234", "1.234,5", "1,234.5",
    "1,,234", "1.2.3", "0x1", "inf", "NaN", "１２", "²", "9" * 400, "1," + "234," * 3_000 + "234", " 1", "1 ", "+1",
    "--1", "18446744073709551616", "0.5", "1_000",
)  # fmt: skip
UNITS = (*BYTES, *SECONDS, *SECTORS, "", "%", "inst", "byte/second", "Kibyte")
NUMBERS = st.integers(0, 2**70).flatmap(
    lambda n: st.sampled_from([str(n), f"{n:,}", f"{n:,}".replace(",", "."), f"{n}.50", f"{n:,}.25", f"{n:e}"])
)
ANY_CELL = st.sampled_from(CELLS + UNITS) | NUMBERS | HOSTILE_TEXTS
NAMES = st.lists(HOSTILE_TEXTS | st.sampled_from(["flash", "bytescope", "void"]), max_size=2)
ASKED = st.builds(
    Asked,
    st.just(PROBLEM),
    st.just("") | HOSTILE_TEXTS,
    NAMES.map(tuple),
    st.sampled_from([1, 1, 1, 2, 3, 0, -1, 10**30]),
    st.sampled_from(["cold", "warm", "cold", "hot"]) | HOSTILE_TEXTS,
    st.just("") | HOSTILE_TEXTS,
)


@st.composite
def changed_tables(draw: st.DrawFn) -> bytes:
    """A file of ncu with cells, units, columns, rows and lines changed."""
    lines = draw(st.sampled_from(FILES)).decode().splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    around, table = lines[:begin], [*csv.reader(lines[begin:])]
    if draw(st.booleans()):
        del table[draw(st.integers(2, len(table) - 1)) :]
    for _ in range(draw(st.integers(0, 3))):
        act = draw(st.sampled_from(["cell", "cell", "cell", "unit", "row", "column", "ragged"]))
        row = draw(st.integers(0, len(table) - 1))
        column = draw(st.integers(0, len(table[0]) - 1))
        if act in ("cell", "unit"):
            # Numbers stand in the last columns.
            column = draw(st.integers(max(0, len(table[0]) - 6), len(table[0]) - 1) | st.just(column))
            table[1 if act == "unit" else row][column : column + 1] = [draw(ANY_CELL)]
        elif act == "row":
            table.insert(row, list(table[row])) if draw(st.booleans()) else table.pop(row)
        elif act == "column":
            for cells in table:
                cells.insert(column, cells[min(column, len(cells) - 1)] if cells else "")
        else:
            table[row].append(draw(ANY_CELL))
        if len(table) < 3 or not table[0]:
            break
    written = io.StringIO()
    quoting = draw(st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_ALL, csv.QUOTE_MINIMAL]))
    ending = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    csv.writer(written, quoting=quoting, lineterminator=ending, escapechar="\\").writerows(table)
    before, after = (
        draw(st.lists(st.sampled_from(LINES), max_size=2)),
        draw(st.lists(st.sampled_from(LINES), max_size=2)),
    )
    text = ending.join([*before, *around, written.getvalue().rstrip(ending), *after, ""])
    return text.encode("utf-8", "surrogatepass")


def require_read_or_refused(data: bytes, asked: Asked) -> None:
    """Both readers: of files that somebody made, and of what Bytescope asked ncu for."""
    try:
        with quickly():
            run = imported(read(data), asked)
    except (NotARun, Refused) as fault:
        require_sentence(str(fault), 2 * MOST_LETTERS)
    else:
        assert from_json(to_json([run])) == (run,)
    for metrics in METRICS:
        try:
            with quickly():
                kernels = parse(Long(data.decode("utf-8", "replace")), metrics)
        except NcuError as fault:
            require_sentence(str(fault))
        else:
            assert all(0 <= value < 2**69 for kernel in kernels for value in kernel.traffic.values())


@often
@given(changed_tables(), ASKED)
def test_a_changed_table_is_read_or_refused(data: bytes, asked: Asked) -> None:
    require_read_or_refused(data, asked)


@often
@example(b"", Asked(PROBLEM))
@given(changed_bytes(st.sampled_from(FILES)), ASKED)
def test_changed_bytes_are_read_or_refused(data: bytes, asked: Asked) -> None:
    require_read_or_refused(data, asked)


@often
@given(st.sampled_from(sorted(BYTES)), st.integers(1, 10**6), st.sampled_from(["point", "comma"]))
def test_a_number_that_is_read_is_the_number_that_was_written(unit: str, thousandths: int, locale: str) -> None:
    """Never a wrong one: 12.5 Gbyte in either country's digits, beside cells that tell the country."""
    spelled = f"{thousandths / 1000:,.4f}"
    told = "1,234.5"
    if locale == "comma":
        swap = str.maketrans(".,", ",.")
        spelled, told = spelled.translate(swap), told.translate(swap)
    columns = ["ID", "Kernel Name", "dram__bytes_read.sum", "dram__bytes_write.sum", "sm__cycles_elapsed.avg"]
    rows = [columns, ["", "", unit, "byte", "cycle"], ["0", "k", spelled, "1", told]]
    text = "\n".join(",".join(f'"{cell}"' for cell in row) for row in rows)
    run = imported(read(text.encode()), Asked(PROBLEM))
    assert run.value("hbm_read_bytes") == round(thousandths / 1000 * BYTES[unit])
