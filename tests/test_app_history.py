"""Run files as a list: newest first, broken files named, changed files read again."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.history import load_entries, newest_request, read_folder
from app.recorded import describe
from profiler.run import to_json
from profiler.store import save
from tests.fake_runs import cpu_run, flash_run, naive_run


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
        from app.views import runs

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
