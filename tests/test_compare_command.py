"""`compare` through its door: which Runs are meant, limits and exit codes, and every format."""

import csv
import io
import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.limit_option import limits, spelled
from profiler.run import Measurement, Run
from profiler.run_document import to_json
from profiler.show import spell
from tests.command_line import Answer, Command, answer_to
from tests.fake_runs import PROBLEM, flash_run, naive_run

ROOT = Path(__file__).parents[1]


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """`python -m profiler compare words`, in a folder of its own that holds a.json, b.json and both.json."""
    monkeypatch.chdir(tmp_path)
    slower = replace(
        flash_run(run_id="slower"),
        measurements=tuple(
            replace(m, value=(m.value or 0) * 1.1, spread=None) if m.name == "hbm_read_bytes" else m
            for m in flash_run().measurements
        ),
    )
    for name, runs in {"a": [flash_run()], "b": [slower], "both": [naive_run(), flash_run()]}.items():
        Path(f"{name}.json").write_text(to_json(runs))
    Path("other.json").write_text("{}")

    def run(*words: str) -> Answer:
        return answer_to(["compare", *words], monkeypatch, capsys)

    return run


def test_as_a_ci_calls_it(command: Command) -> None:
    answer = command("a.json", "b.json", "--fail-above", "1.05", "hbm_read_bytes")
    assert answer.code == 1
    assert "failed: hbm_read_bytes went from 101 MB to 111.1 MB by cupti-range: 1.1 times" in " ".join(
        answer.out.split()
    )
    assert command("a.json", "b.json", "--fail-above", "1.2", "hbm_read_bytes").code == 0
    assert command("a.json", "b.json").code == 0
    assert command("b.json", "a.json", "--fail-above", "1.05", "hbm_read_bytes").code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("a.json b.json --fail-above 1.05 gpu_time_seconds hbm_write_bytes", 0),
        ("a.json b.json --fail-above 1.05 gpu_time_seconds hbm_read_bytes", 1),
        ("a.json b.json --fail-above 1.05 gpu_time_seconds --fail-above 1.2 hbm_read_bytes", 0),
        ("a.json b.json --fail-above 1.2 gpu_time_seconds --fail-above 1.05 hbm_read_bytes", 1),
        ("a.json b.json --fail-above=1.05 hbm_read_bytes", 1),
        ("--fail-above 1.05 hbm_read_bytes gpu_time_seconds a.json b.json", 1),
        ("a.json --fail-above 1.2 hbm_read_bytes --format table b.json", 0),
    ],
)
def test_several_names_and_several_limits(command: Command, words: str, code: int) -> None:
    assert command(*words.split()).code == code


def test_limits_are_spelled_as_they_are_read() -> None:
    asked = limits(["1.05\nhbm_read_bytes\ngpu_time_seconds", "2\nl2_sm_bytes:qk"])
    assert spelled(asked) == [
        *("--fail-above", "1.05", "hbm_read_bytes", "gpu_time_seconds"),
        *("--fail-above", "2.0", "l2_sm_bytes:qk"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "both.json",
        "both.json:naive both.json:flash",
        "both.json:1 both.json:2",
        "both.json:fake-naive both.json:fake-flash",
        "both.json:naive a.json",
        "both.json:naive both.json --kernel flash",
    ],
)
def test_which_runs_are_meant(command: Command, words: str) -> None:
    answer = command(*words.split(), "--format", "json")
    document = json.loads(answer.out.splitlines()[-1])
    assert (document["before"]["id"], document["after"]["id"]) == ("fake-naive", "fake-flash")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("both.json both.json", "both.json holds 2 Runs; name one of them: both.json:naive ((1, 16, 8192, 128)"),
        ("a.json", "a.json holds 1 Run; name two files"),
        ("a.json b.json both.json", "3 files are named; compare takes two"),
        ("both.json:3 a.json", "both.json holds no Run '3'; name one of them: both.json:naive"),
        ("a.json b.json --kernel naive", "a.json holds no Run 'naive'"),
        ("none.json a.json", "none.json could not be read: No such file"),
        ("a.json other.json", "other.json: This is not a Run file: it lacks format_version and runs."),
        (". a.json", ". is not a file.\n"),
        ("a.json b.json --format doc", "The format 'doc' is not known; choose table, html, md, csv, json."),
        ("a.json b.json --fail-above hbm_read_bytes", "--fail-above is 'hbm_read_bytes'; give a ratio"),
        ("a.json b.json --fail-above 1.05", "names no measurement"),
        ("a.json b.json --fail-above 1.05 no_such", "Neither Run holds 'no_such'"),
    ],
)
def test_what_is_refused_is_said_in_a_sentence(command: Command, words: str, sentence: str) -> None:
    answer = command(*words.split())
    assert answer.code == 2
    assert sentence in answer.err and answer.out == "" and "Traceback" not in answer.err


def test_memory_is_in_gib_and_traffic_in_gb(command: Command) -> None:
    lines = [line for line in command("both.json").out.splitlines() if "_bytes" in line]
    held = next(line for line in lines if "peak_allocated_bytes" in line)
    # 4.43e9 and 0.147e9 B.
    assert "4.126 GiB" in held and "140.2 MiB" in held
    assert "6.61 GB" in next(line for line in lines if "hbm_read_bytes" in line)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0 B"), (1023.0, "1023 B"), (2.0**20, "1 MiB"), (2.0**30 - 1, "1 GiB"), (1.5 * 2**40, "1.5 TiB")],
)
def test_memory_in_powers_of_1024(value: float, text: str) -> None:
    assert spell(Measurement("peak_reserved_bytes", value, "B", "torch")) == text


@pytest.mark.parametrize(("format", "is_refused"), [("html", True), ("json", False), ("md", False), ("csv", False)])
def test_a_terminal_gets_only_what_can_be_read_there(command: Command, format: str, is_refused: bool) -> None:
    reader, terminal = os.openpty()
    words = [sys.executable, "-m", "profiler", "compare", str(Path("both.json").resolve()), "--format", format]
    with subprocess.Popen(words, cwd=ROOT, stdout=terminal, stderr=subprocess.PIPE, text=True) as process:
        os.close(terminal)
        printed = bytearray()
        with suppress(OSError):  # what a terminal answers that nobody holds any more
            while part := os.read(reader, 65536):
                printed += part
        assert process.stderr is not None
        told = process.stderr.read()
    os.close(reader)
    refusal = "A comparison as html is nothing to read on a terminal; name a file for it with --out.\n"
    assert (process.returncode, told, bool(printed)) == ((2, refusal, False) if is_refused else (0, "", True))


def test_a_file_whose_name_holds_a_colon_is_that_file(command: Command) -> None:
    Path("c:naive").write_text(to_json([flash_run()]))
    assert command("c:naive", "b.json").code == 0


def test_the_table_lists_what_differs_first_and_what_is_missing_last(command: Command) -> None:
    out = command("both.json").out
    places = [out.index(word) for word in ("Circumstances", "8 warps", "compulsory_bytes", "of launch qk, scale")]
    assert places == sorted(places)


def test_json_holds_both_sides_in_full(command: Command) -> None:
    words = ("both.json", "--format", "json", "--fail-above", "1.05", "hbm_read_bytes", "gpu_time_seconds:qk")
    answer = command(*words)
    assert answer.code == 1  # flash has no qk
    document = json.loads(answer.out)
    row = next(m for m in document["measurements"] if m["name"] == "gpu_time_seconds" and m["launch"] is None)
    assert row["before"]["value"] == 6.4e-3 and row["after"]["spread"] == [1.28e-3 * 0.99, 1.28e-3 * 1.01]
    assert row["ratio"] == pytest.approx(0.2) and row["change"] == "beyond the spread"
    assert [one["passed"] for one in document["checks"]] == [True, False]
    assert {"what": "kernel", "before": "naive", "after": "flash"} in document["differences"]
    assert "gpu_time_seconds:qk cannot be held against 1.05" in answer.err


def test_csv_has_a_row_for_each_measurement_and_runs_nothing(command: Command) -> None:
    evil = replace(flash_run(run_id="evil"), environment={"torch": "=1+1"})
    Path("evil.json").write_text(to_json([evil]))
    rows = list(csv.DictReader(io.StringIO(command("a.json", "evil.json", "--format", "csv").out)))
    (torch,) = [row for row in rows if row["name"] == "torch"]
    assert (torch["after_value"], torch["change"]) == ("'=1+1", "circumstance")
    (time,) = [row for row in rows if row["name"] == "gpu_time_seconds"]
    assert (time["before_value"], time["before_source"], time["ratio"]) == ("0.00128", "cuda-event", "1.0")


def test_formats_that_are_drawn_come_from_a_program_of_their_own(command: Command) -> None:
    answer = command(
        "both.json:naive", "a.json", "--format", "md", "--out", "x.md", "--fail-above", "0.001", "hbm_bytes"
    )
    assert answer.code == 1
    text = Path("x.md").read_text()
    assert text.startswith("### Naive moved 13.09 GB through HBM, Flash 0.135 GB: 97 times less.")
    assert "❌ hbm\\_bytes went from" in text


def test_two_problems_are_said_and_not_divided(command: Command) -> None:
    longer: Run = flash_run(replace(PROBLEM, seq_len_q=16384, seq_len_kv=16384))
    Path("longer.json").write_text(to_json([longer]))
    answer = command("a.json", "longer.json", "--fail-above", "99", "hbm_read_bytes")
    assert answer.code == 1
    assert answer.out.startswith("Two problems: (1, 16, 8192, 128)")
    assert "the problems differ" in " ".join(answer.out.split())
