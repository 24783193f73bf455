"""Saved Runs on the command line: filtered in a list, and written as one table that reads back."""

import csv
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest

from profiler.catalogue import catalogue
from profiler.export import export
from profiler.grid import Grid
from profiler.list_command import MOST_FAULTS, files_of
from profiler.measured_rows import IMPOSSIBLE
from profiler.run import Measurement
from profiler.run_document import to_document
from profiler.store import StoreError, save, write_atomically
from profiler.sweep import create
from tests.command_line import Answer, Command, answer_to
from tests.fake_runs import NO_COUNTERS, cpu_run, flash_run, naive_run


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Command:
    """Runs `python -m profiler words` in this process, in a folder of its own."""
    monkeypatch.setenv("BYTESCOPE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.chdir(tmp_path)

    def run(*words: str) -> Answer:
        return answer_to(words, monkeypatch, capsys)

    return run


@pytest.fixture
def three(runs: Path) -> Path:
    """Three saved Runs."""
    for run in (naive_run(), flash_run(), cpu_run()):
        save(run)
    return runs


def of_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def of_parquet(path: Path) -> list[dict[str, Any]]:
    with duckdb.connect() as opened:
        found = opened.read_parquet(str(path))
        return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


def test_list_takes_a_filter_and_keeps_its_format(command: Command, three: Path) -> None:
    answer = command("list", "--where", "kernel = 'flash' and seq_len_q >= 4096", "--json")
    (found,) = json.loads(answer.out)["runs"]
    whole = to_document([flash_run()])["runs"][0]
    assert found == {
        "id": "fake-flash",
        "created": "2026-11-29T12:00:01Z",
        "device": "NVIDIA H200",
        "workload": json.loads(json.dumps(whole["workload"])),
    }
    table = command("list", "--where", "device = 'cpu'").out
    assert "fake-cpu.json" in table and "fake-naive" not in table
    assert len(json.loads(command("list", "--json", "--most", "2").out)["runs"]) == 2


def test_a_filter_that_cannot_be_used_is_one_sentence(command: Command, three: Path) -> None:
    answer = command("list", "--where", "kernle = 'flash'")
    assert (answer.code, answer.out) == (2, "") and len(answer.err.splitlines()) == 1
    assert 'Referenced column "kernle" not found' in answer.err and "kernel, batch" in answer.err


def test_of_many_broken_files_the_first_are_named(command: Command, three: Path) -> None:
    for number in range(MOST_FAULTS + 3):
        (three / f"broken-{number:02}.json").write_text("{")
    lines = command("list").err.splitlines()
    assert lines[0].startswith("broken-00.json: This is not a Run file")
    assert lines[MOST_FAULTS:] == ["3 more files hold no Run that can be read."]


@pytest.mark.parametrize(("format", "read"), [("csv", of_csv), ("parquet", of_parquet)])
def test_runs_are_written_a_row_each(
    command: Command, three: Path, tmp_path: Path, format: str, read: Callable[[Path], list[dict[str, Any]]]
) -> None:
    out = tmp_path / "it's [new]" / f"all.{format}"
    out.parent.mkdir()
    answer = command("export", str(three), "--format", format, "--out", str(out))
    assert (answer.code, answer.err) == (0, "") and answer.out == f"3 Runs written to {out}\n"
    found = {row["id"]: row for row in read(out)}
    assert found.keys() == {"fake-naive", "fake-flash", "fake-cpu"}
    naive, cpu = found["fake-naive"], found["fake-cpu"]
    assert float(naive["hbm_bytes"]) == 13.09e9 and naive["hbm_bytes_source"] == "cupti-range"
    assert cpu["hbm_bytes"] in ("", None) and cpu["requested_bytes_source"] == "interpreter"
    assert str(naive["causal"]).lower() == "false" and naive["BLOCK_M"] in ("", None)
    assert "workload" not in naive and "modified" not in naive
    assert [path.name for path in out.parent.iterdir()] == [out.name], "nothing half written is left"


def test_measurements_are_written_a_row_each_with_launches_and_reasons(
    command: Command, three: Path, tmp_path: Path
) -> None:
    command("export", "--table", "measurements", "--format", "csv")
    found = of_csv(tmp_path / "measurements.csv")
    expected = sum(len(run.measurements) for run in (naive_run(), flash_run(), cpu_run()))
    assert len(found) == expected
    (scale,) = [row for row in found if (row["launch"], row["measurement"]) == ("scale", "hbm_read_bytes")]
    assert (float(scale["value"]), scale["unit"], scale["source"], scale["kernel"]) == (
        2.148e9,
        "B",
        "cupti-range",
        "naive",
    )
    (time,) = [row for row in found if row["id"] == "fake-flash" and row["measurement"] == "gpu_time_seconds"]
    assert (float(time["p20"]), float(time["p80"])) == (1.28e-3 * 0.99, 1.28e-3 * 1.01)
    (none,) = [row for row in found if row["id"] == "fake-cpu" and row["measurement"] == "hbm_read_bytes"]
    assert (none["value"], none["note"]) == ("", NO_COUNTERS)
    names = [row["measurement"] for row in found if row["id"] == "fake-naive"]
    assert names == [m.name for m in naive_run().measurements], "in the order of the file"


def test_measurements_of_a_filter_and_of_single_files(command: Command, three: Path, tmp_path: Path) -> None:
    files = [str(three / f"fake-{name}.json") for name in ("naive", "cpu")]
    words = ("--table", "measurements", "--where", "kernel = 'naive'", "--out", "one.parquet")
    answer = command("export", *files, *words)
    assert answer.out == "1 Run written to one.parquet\n"
    found = of_parquet(tmp_path / "one.parquet")
    assert len(found) == len(naive_run().measurements) and {row["id"] for row in found} == {"fake-naive"}


def test_a_launchs_value_that_cannot_have_been_measured_is_left_out_and_said(
    command: Command, runs: Path, tmp_path: Path
) -> None:
    runs.mkdir()
    document = to_document([cpu_run()])
    document["runs"][0]["measurements"][0] |= {"value": -1.0, "launch": "flash"}
    (runs / "odd.json").write_text(json.dumps(document))
    command("export", "--table", "measurements", "--out", "odd.parquet")
    first, second = of_parquet(tmp_path / "odd.parquet")[:2]
    assert (first["measurement"], first["value"], first["note"]) == ("flops", None, IMPOSSIBLE)
    assert (second["value"], second["note"]) == (cpu_run().workload.problem.compulsory_bytes, "")


def test_a_sweep_is_its_runs(command: Command, runs: Path, tmp_path: Path) -> None:
    sweep = tmp_path / "a sweep"
    save(flash_run(), sweep / "runs")
    (sweep / "failed").mkdir()
    (sweep / "failed" / "cell.json").write_text("{}")
    (sweep / "sweep.json").write_text("{}")
    answer = command("export", str(sweep), "--out", "sweep.csv", "--format", "csv")
    assert (answer.code, answer.err) == (0, "") and [row["id"] for row in of_csv(tmp_path / "sweep.csv")] == [
        "fake-flash"
    ]


def test_broken_files_are_named_and_the_others_written(command: Command, three: Path, tmp_path: Path) -> None:
    (three / "cut.json").write_text('{"format_version": 1, "runs": [')
    answer = command("export", str(three), "--out", "all.parquet")
    assert answer.code == 0 and answer.err.startswith("cut.json: This is not a Run file")
    assert len(of_parquet(tmp_path / "all.parquet")) == 3


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--format", "xlsx"], "format is 'xlsx'; choose parquet or csv."),
        (["--table", "pages"], "table is 'pages'; choose runs or measurements."),
        (["nowhere"], "nowhere does not exist."),
        (["empty"], "There is no Run in empty; nothing was written."),
        (["--where", "false"], "The filter takes none of the Runs; nothing was written."),
        (["--out", "empty"], "empty is a folder; name a file."),
        (["--out", "/dev/null/x.csv"], "Nothing could be written to /dev/null: "),
    ],
)
def test_what_cannot_be_written_is_refused(
    command: Command, three: Path, tmp_path: Path, words: list[str], sentence: str
) -> None:
    (tmp_path / "empty").mkdir()
    before = sorted(tmp_path.iterdir())
    answer = command("export", *words)
    assert answer.code == 2 and answer.out == "" and answer.err.startswith(sentence) and answer.err.count("\n") == 1
    assert sorted({*tmp_path.iterdir()} - {tmp_path / "cache"}) == before


def test_a_spreadsheet_runs_nothing_of_it(command: Command, runs: Path, tmp_path: Path) -> None:
    save(replace(cpu_run(), recorded="=HYPERLINK(1)", measurements=(Measurement("x", None, "1", "torch", "@SUM(1)"),)))
    command("export", "--format", "csv")
    command("export", "--format", "csv", "--table", "measurements")
    (run,), (measurement,) = of_csv(tmp_path / "runs.csv"), of_csv(tmp_path / "measurements.csv")
    assert (run["recorded"], measurement["note"]) == ("'=HYPERLINK(1)", "'@SUM(1)")


def test_a_fault_in_between_leaves_the_old_file(three: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "out.csv"
    target.write_text("old")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with catalogue([three]) as saved:
        monkeypatch.setattr("os.fsync", full)
        with pytest.raises(StoreError, match=r"could not be written: No space left on device\.$"):
            export(saved, saved.runs, "runs", "csv", target)
    assert target.read_text() == "old" and sorted(path.name for path in tmp_path.iterdir()) == ["out.csv", "runs"]


def test_what_is_read_is_not_written_over(command: Command, runs: Path) -> None:
    save(naive_run())
    target = runs / "fake-naive.json"
    before = target.read_bytes()
    for place in (runs, target):
        answer = command("export", str(place), "--format", "csv", "--out", str(target))
        assert answer.code == 2 and "is one of the files that are exported; name another" in answer.err
    assert target.read_bytes() == before


def test_what_is_no_ordinary_file_is_not_replaced(command: Command, runs: Path, tmp_path: Path) -> None:
    save(naive_run())
    os.mkfifo(tmp_path / "pipe")
    answer = command("export", str(runs), "--format", "csv", "--out", str(tmp_path / "pipe"))
    assert answer.code == 2 and "no ordinary file" in answer.err
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(OSError, match="no ordinary file"):
        write_atomically(tmp_path / "pipe", "text")


def test_list_and_report_take_folders_and_sweeps(command: Command, runs: Path, tmp_path: Path) -> None:
    sweep = create(Grid({"kernel": ("naive",), "seed": (0, 1)}), tmp_path / "sweep")
    run = replace(flash_run(), id=sweep.run_id(sweep.cells[0]))
    save(run, sweep.runs)
    for place in (sweep.folder, sweep.runs, sweep.runs / f"{run.id}.json"):
        assert [one["id"] for one in json.loads(command("list", str(place), "--json").out)["runs"]] == [run.id]
        assert files_of(place) == [sweep.runs / f"{run.id}.json"]
    assert command("list", str(tmp_path / "nowhere")).err.endswith("nowhere does not exist.\n")
    with pytest.raises(StoreError, match="There is no Run in"):
        files_of(runs.parent)
