"""Run files as a list: newest first, broken files named, changed files read again."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import history, saved_sweeps
from app.history import Entry, Wanted, load_entries, newest_request, read_folder, table_of
from app.recorded import describe
from profiler.run import Run
from profiler.run_document import to_json
from profiler.store import load, save
from tests.fake_runs import PROBLEM, SMALL, cpu_run, flash_run, naive_run


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of indexes, empty and only this test's."""
    monkeypatch.setenv("BYTESCOPE_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two requests: an older one of the CPU, a newer one of naive and flash."""
    for age, run in ((300, cpu_run()), (200, naive_run()), (100, flash_run())):
        path = save(run, tmp_path)
        os.utime(path, (2_000_000_000 - age,) * 2)
    return tmp_path


def test_newest_first_with_what_the_list_shows(folder: Path) -> None:
    found = read_folder(folder)
    assert [entry.run_id for entry in found.entries] == ["fake-flash", "fake-naive", "fake-cpu"]
    assert (found.entries[0].hbm_bytes, found.entries[0].gpu_time_seconds) == (0.135e9, 1.28e-3)
    assert found.entries[0].sources == ("cupti-range", "cuda-event", "torch")
    assert found.entries[2].hbm_bytes is None
    assert found.faults == ()
    assert len(read_folder(folder, most=1).entries) == 1


def test_the_count_and_the_choices_are_of_all_runs(folder: Path) -> None:
    found = read_folder(folder, most=1)
    assert (len(found.entries), found.count, found.wanted) == (1, 3, 3)
    assert (found.kernels, found.devices) == (("flash", "naive"), ("NVIDIA H200", "Two-core CPU"))
    assert found.problems == (SMALL, PROBLEM)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        (Wanted(kernel="flash"), ["fake-flash", "fake-cpu"]),
        (Wanted(device="Two-core CPU"), ["fake-cpu"]),
        (Wanted(problem=PROBLEM), ["fake-flash", "fake-naive"]),
        (Wanted(problem=replace(PROBLEM, window=5)), []),
        (Wanted(kernel="flash", problem=PROBLEM), ["fake-flash"]),
        (Wanted(text="128×64"), ["fake-flash"]),
        (Wanted(text=" H200  NAIVE "), ["fake-naive"]),
        (Wanted(text="12:00:02"), ["fake-cpu"]),
        (Wanted(text="8192 flash"), ["fake-flash"]),
        (Wanted(text="%"), []),
        (Wanted(text="' or true --"), []),
        (Wanted(kernel="x' or 'a' = 'a"), []),
    ],
    ids=str,
)
def test_filters_act_on_all_runs(folder: Path, wanted: Wanted, found: list[str]) -> None:
    listed = read_folder(folder, most=1, wanted=wanted)
    assert [entry.run_id for entry in listed.entries] == found[:1]
    assert (listed.wanted, listed.count) == (len(found), 3)
    assert [entry.run_id for entry in read_folder(folder, wanted=wanted).entries] == found


@pytest.mark.parametrize("run", [naive_run(), flash_run(), cpu_run()], ids=lambda run: run.id)
def test_an_entry_of_the_list_equals_that_of_the_opened_run(folder: Path, run: Run) -> None:
    (entry,) = [entry for entry in read_folder(folder).entries if entry.run_id == run.id]
    assert entry == history.Entry.of(run, folder / f"{run.id}.json")


def test_what_is_listed_can_be_taken_along(folder: Path) -> None:
    lines = table_of(folder, Wanted(kernel="flash"), "csv").decode().splitlines()
    assert [line.split(",")[1] for line in lines] == ["id", "fake-flash", "fake-cpu"]
    assert table_of(folder, Wanted(), "parquet")[:4] == b"PAR1"


def test_the_newest_request_reads_no_older_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(history, "load", lambda path: read.append(path.name) or load(path))
    for number in range(20):
        save(replace(cpu_run(), id=f"old-{number}"), folder)
        os.utime(folder / f"old-{number}.json", (1_000_000_000,) * 2)
    assert [run.id for run in newest_request(folder)] == ["fake-naive", "fake-flash"]
    assert read == ["fake-flash.json", "fake-naive.json", "fake-cpu.json"]


def test_a_folder_that_does_not_exist_is_empty(tmp_path: Path) -> None:
    assert read_folder(tmp_path / "none").entries == ()
    assert newest_request(tmp_path / "none") == ()


def test_broken_files_are_named_and_not_fatal(folder: Path) -> None:
    (folder / "half.json").write_text('{"format_version": 1, "runs": [')
    (folder / "other.json").write_text("[1, 2]")
    found = read_folder(folder)
    assert len(found.entries) == 3
    assert sorted(fault.split(":")[0] for fault in found.faults) == ["half.json", "other.json"]
    assert "it is not JSON" in " ".join(found.faults)


def test_the_newest_request_is_whole_and_in_order(folder: Path) -> None:
    (folder / "broken.json").write_text("{")
    assert [run.id for run in newest_request(folder)] == ["fake-naive", "fake-flash"]


def test_a_changed_file_is_read_again(folder: Path) -> None:
    path = folder / "fake-cpu.json"
    read_folder(folder)
    path.write_text(to_json([replace(cpu_run(), recorded="a longer label")]))
    assert (
        next(entry for entry in read_folder(folder).entries if entry.run_id == "fake-cpu").recorded == "a longer label"
    )


def test_entries_open_as_the_runs_that_were_saved(folder: Path) -> None:
    entries = read_folder(folder).entries
    (folder / "fake-naive.json").unlink()
    runs, faults = load_entries(entries)
    assert runs == (flash_run(), cpu_run())
    assert len(faults) == 1 and faults[0].startswith("fake-naive.json: ")


def test_a_recording_is_described_by_gpu_driver_versions_and_date(folder: Path) -> None:
    entries = [entry for entry in read_folder(folder).entries if entry.run_id != "fake-cpu"]
    label, facts = describe(entries)
    assert label == f"{entries[0].path.stem}: (1, 16, 8192, 128) bfloat16, full mask"
    assert facts == (
        "naive and flash, recorded on NVIDIA H200, driver 580.159.04, torch 2.11.0+cu130, triton 3.6.0, 2026-11-29"
    )


def runs_page() -> AppTest:
    def script() -> None:
        from app import form
        from app.views import runs

        form.prepare()  # as the frame does before any page
        runs.render(())

    return AppTest.from_function(script, default_timeout=30).run()


def test_a_name_that_is_not_utf8_is_a_file_that_cannot_be_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Text with half a character cannot be sent to a browser: the page would not be drawn at all."""
    (folder / "fake-naive.json").rename(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.json"))
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    at = runs_page()
    assert not at.exception
    shown = " ".join(element.proto.body for element in at.get("html"))
    assert "caf\ufffd.json: It cannot be read: its name is not UTF-8; rename it." in shown
    assert "2 saved Runs" in shown


def test_a_folder_whose_name_is_not_utf8_is_shown_with_a_printable_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCOPE_RUNS", os.fsdecode(os.fsencode(tmp_path) + b"/runs\xe9"))
    at = runs_page()
    assert not at.exception
    assert "/runs\ufffd, the newest" in " ".join(element.proto.body for element in at.get("html"))


def test_the_list_says_how_each_run_was_measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = replace(naive_run().workload, l2="warm", repeats=5, counters="ncu", drain=False, detail=True)
    save(replace(naive_run(), workload=asked), folder)
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    (listed,) = runs_page().dataframe
    how = ["L2", "passes", "bytes counted by", "write-back drain", "detail counters"]
    assert listed.value[how].values.tolist() == [
        ["cold", "20", "auto", "yes", "no"],
        ["–"] * 5,
        ["warm", "5", "ncu", "no", "yes"],
    ]


def text_of(at: AppTest) -> str:
    return " ".join(element.proto.body for element in at.get("html"))


def test_filters_of_the_page_narrow_the_list_and_not_the_count(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    at = runs_page()
    kernel, device, problem = at.selectbox
    assert (kernel.options, device.options) == (["flash", "naive"], ["NVIDIA H200", "Two-core CPU"])
    assert problem.options == [SMALL.label, PROBLEM.label]
    kernel.select("flash").run()
    assert at.dataframe[0].value["kernel"].tolist() == ["flash", "flash"]
    at.text_input[0].input("h200").run()
    assert at.dataframe[0].value["device"].tolist() == ["NVIDIA H200"]
    assert "3 saved Runs" in text_of(at) and not at.exception
    at.text_input[0].input("nothing like it").run()
    assert "No saved Run fits these filters" in text_of(at) and not at.dataframe and not at.exception


def test_of_many_broken_files_the_page_names_the_first(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(9):
        (folder / f"broken-{number}.json").write_text("{")
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    shown = text_of(runs_page())
    assert shown.count("This is not a Run file") == 5 and "4 more files hold no Run" in shown


def a_sweep(root: Path, name: str, axes: dict[str, list[str]], done: int, failed: int, cells: int) -> Path:
    """A sweep's folder as the command line leaves it."""
    sweep = root / "sweeps" / name
    for number in range(done):
        path = save(replace(flash_run(), id=f"tiles-{number}"), sweep / "runs")
        os.utime(path, (2_000_000_000 + number,) * 2)
    (sweep / "failed").mkdir(parents=True)
    for number in range(failed):
        (sweep / "failed" / f"{number}.json").write_text("{}")
    plan = {"id": "tiles", "created": "2026-11-30T05:15:00Z", "axes": axes, "where": "", "trace": False, "cells": cells}
    plan["digest"] = "0" * 16
    (sweep / "sweep.json").write_text(json.dumps({"format_version": 1} | plan))
    return sweep


def test_without_sweeps_there_is_no_card_of_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    assert "Sweeps" not in text_of(runs_page())


def test_a_sweep_says_how_far_it_is_and_shows_its_newest_runs(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_sweep(folder, "<b>tiles", {"kernel": ["naive", "flash"]}, 10, 2, 1_500)
    (folder / "sweeps" / "broken").mkdir()
    (folder / "sweeps" / "broken" / "sweep.json").write_text("{")
    monkeypatch.setenv("BYTESCOPE_RUNS", str(folder))
    at = runs_page()
    shown = text_of(at)
    assert "&lt;b&gt;tiles" in shown and "<b>tiles" not in shown
    assert "naive, flash, 10 of 1,500 cells done, 2 failed, 2026-11-30 05:15" in shown
    assert "broken: sweep.json cannot be used: it is not JSON" in shown
    (button,) = [one for one in at.button if one.label == "Show"]
    button.click().run()
    assert not at.exception
    assert len(at.session_state["current"]) == 8


def test_the_newest_runs_of_a_sweep_are_at_most_eight(folder: Path) -> None:
    a_sweep(folder, "tiles", {}, 10, 0, 10)
    (sweep,), faults = saved_sweeps.read_sweeps(folder / "sweeps")
    assert (sweep.name, sweep.kernels, sweep.done, sweep.failed, sweep.planned) == ("tiles", ("flash",), 10, 0, 10)
    assert faults == []
    assert [entry.run_id for entry in saved_sweeps.newest_entries(sweep)] == [f"tiles-{n}" for n in range(9, 1, -1)]


def test_two_files_with_different_runs_of_one_id_are_not_opened_together(tmp_path: Path) -> None:
    """Nothing would tell their columns apart; the newest request takes the newer one."""
    first = save(flash_run(), tmp_path)
    copy = tmp_path / "copy.json"
    copy.write_text(to_json([replace(flash_run(), recorded="a copy")]), encoding="utf-8")
    os.utime(first, (1, 1))
    entries = [Entry.of(flash_run(), first), Entry.of(flash_run(), copy)]
    runs, faults = load_entries(entries)
    assert len(runs) == 1
    assert faults == ("copy.json: There are two Runs of one id, fake-flash, that differ; which of them is meant?",)
    assert [run.recorded for run in newest_request(tmp_path)] == ["a copy"]
