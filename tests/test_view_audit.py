"""The page of the last audit: its sentence, figures and tables, with an audit, a broken file and none."""

import os
from dataclasses import replace
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app import recorded
from app.audit_table import by_shape, every_check, figures, headline, limits, missed, reasons
from app.page import table_html
from app.picture import Table
from app.recorded import AUDIT
from profiler.audit import FAIL, NOT_CHECKED, PASS, Audit, AuditRow, audits_folder, load, save
from profiler.audit_grid import gpu_subjects, interpreted_subjects
from profiler.audit_rows import Found
from tests.fake_audits import REFUSED, audit_of, h200_audit, interpreted_found
from tests.fake_runs import THIS_CPU, cpu_run, flash_run

HOSTILE = '<img src=x onerror="alert(1)">'
NO_GPU = "NVML does not start; install the NVIDIA driver."


@pytest.fixture(scope="module")
def h200() -> Audit:
    return h200_audit()


@pytest.fixture(scope="module")
def cpu() -> Audit:
    """What a CPU can check, and why no more."""
    refused = [Found(subject, refused=NO_GPU) for subject in gpu_subjects("cuda:0")]
    return audit_of([*refused, *(interpreted_found(subject) for subject in interpreted_subjects())], THIS_CPU)


def row_of(table: Table, *begin: str) -> tuple[str, ...]:
    """The one row that begins like this; no-break spaces count as spaces."""
    plain = [tuple(cell.replace("\u00a0", " ") for cell in row) for row in table.rows]
    (found,) = [row for row in plain if row[: len(begin)] == begin]
    return found


def with_verdicts(audit: Audit, *verdicts: str) -> Audit:
    row = next(row for row in audit.rows if row.verdict == PASS)
    return replace(audit, rows=tuple(replace(row, verdict=verdict, note="why") for verdict in verdicts))


@pytest.mark.parametrize(
    ("verdicts", "sentence"),
    [
        ((PASS, PASS), "All 2 checks pass."),
        ((PASS, PASS, NOT_CHECKED), "All 2 checks that could be made pass."),
        ((PASS, FAIL), "1 of 2 checks pass, 1 fails."),
        ((PASS, FAIL, FAIL, NOT_CHECKED), "1 of 3 checks pass, 2 fail."),
        ((NOT_CHECKED,), "Nothing could be checked."),
    ],
)
def test_the_answer_is_a_sentence(h200: Audit, verdicts: tuple[str, ...], sentence: str) -> None:
    assert headline(with_verdicts(h200, *verdicts)).sentence == sentence


def test_below_it_stand_device_versions_time_and_what_is_missing(h200: Audit) -> None:
    assert headline(h200).detail == (
        "NVIDIA H200, driver 580.159.04, torch 2.11.0+cu130, triton 3.6.0, made 2026-11-29 16:01 UTC. "
        f"{h200.count(NOT_CHECKED)} more could not be checked; why is below."
    )


def test_five_figures(h200: Audit, cpu: Audit) -> None:
    shown = figures(h200)
    assert [figure.value for figure in shown] == ["422", "2", "49", "−0.25%", "74.2 s"]
    assert shown[3].detail.startswith("L2↔SM, ") and shown[4].detail == "2 Runs saved"
    assert (figures(cpu)[3].value, figures(cpu)[3].reason) == ("–", NO_GPU)


def test_every_limit_has_its_row(h200: Audit) -> None:
    table = limits(h200)
    sampled = row_of(table, "HBM total", "cupti-sampling", "cupti-range")
    assert sampled[3:] == ("within 2%", "32", "1", "3", "−2.42%", "cudnn (1, 16, 1024, 128) bfloat16, causal")
    assert row_of(table, "requested read")[3:] == ("equal", "54", "0", "0", "equal", "")
    assert row_of(table, "counting a launch")[3:7] == ("under 60 ms a launch", "33", "0", "3")
    assert row_of(table, "measuring")[4:] == ("0", "1", "0", "–", "")
    assert row_of(table, "the whole grid")[4:] == ("1", "0", "0", "74.2 s", "whole grid")


def test_missed_limits_come_first_with_both_numbers(h200: Audit, cpu: Audit) -> None:
    table = missed(h200)
    assert table is not None and len(table.rows) == 2
    assert row_of(table, "cudnn")[3:10] == (
        *("16.4 MB", "cupti-sampling", "16.8 MB", "cupti-range", "−2.42%", "within 2%", "fail"),
    )
    assert row_of(table, "flash")[-1] == "flash (phase: time) ended: the worker process was killed by SIGKILL."
    assert missed(cpu) is None


def test_differences_by_shape(h200: Audit, cpu: Audit) -> None:
    known, naive, attention = by_shape(h200)
    titles = ("Differences: copy, fill, sum", "Differences: naive", "Differences: cudnn, flash")
    assert (known.title, naive.title, attention.title) == titles
    assert known.columns[2:7] == (
        *("HBM read – known", "HBM write – known", "HBM read, ncu – known", "HBM write, ncu – known"),
        "HBM, sampled – known",
    )
    assert row_of(known, "fill")[2:4] == ("0%", "+0.20%"), "it reads 0 B, as it should"
    assert attention.columns == (
        *("kernel", "shape", "HBM write – known", "HBM read – ncu", "L2↔SM – ncu", "L2→SM – ncu", "HBM write – ncu"),
        "HBM, sampled – counter",
        *("HBM, GPM – counter", "counting a launch", "GPU time – events", "L2↔SM – requested"),
    )
    failed = row_of(attention, "cudnn", "(1, 16, 1024, 128) bfloat16, causal")
    sources = ("+0.20%", "+0.04%", "−0.25%", "0%", "+0.20%", "−2.42%·fail", "–", "45.0 ms", "+1.00%", "–")
    assert failed[2:] == sources
    assert naive.columns == (*attention.columns[:2], *attention.columns[3:]), "what naive writes, L2 may keep"
    assert 'class="number"' in table_html(attention), "a failed cell leaves its column one of numbers"
    index = [row[0] for row in attention.rows].index("cudnn")
    assert attention.reasons[index][3].startswith("pass, within 1% or 0.1 MB: 6.29 MB by cupti-range, 6.29 MB")
    assert by_shape(cpu) == (), "all equal or not checked: the limits say so in one row"


def test_what_was_not_checked_has_its_reason(h200: Audit, cpu: Audit) -> None:
    table = reasons(h200)
    assert table is not None and row_of(table, "30")[1::2] == ("3 shapes", REFUSED)
    alone = reasons(cpu)
    assert alone is not None and len(alone.rows) == 1 and alone.rows[0][3] == NO_GPU
    assert reasons(with_verdicts(h200, PASS)) is None


def test_every_check_is_there_as_it_was_saved(h200: Audit) -> None:
    table = every_check(h200)
    assert len(table.rows) == len(h200.rows) and {len(row) for row in table.rows} == {len(table.columns)}
    assert [row[9] for row in table.rows] == [row.verdict for row in h200.rows]


def hostile_audit(audit: Audit) -> Audit:
    row = AuditRow(HOSTILE, HOSTILE, HOSTILE, "B", "ncu", 1.0, "model", 2.0, HOSTILE, FAIL, HOSTILE)
    device = replace(audit.device, name=HOSTILE)
    silent = replace(row, value=None, verdict=NOT_CHECKED)
    return replace(audit, device=device, environment={"torch": HOSTILE}, rows=(row, silent, *audit.rows[:3]))


def page() -> AppTest:
    def script() -> None:
        from app.views import audit

        audit.render(())

    return AppTest.from_function(script, default_timeout=30).run()


def html(at: AppTest) -> str:
    return " ".join(element.proto.body for element in at.get("html"))


def test_the_recorded_audit_is_whole_and_of_a_gpu() -> None:
    shipped = load(AUDIT)
    assert AUDIT.parts[-3:] == ("examples", "audits", "nvidia_h200.json")
    assert shipped.device.name == "NVIDIA H200" and shipped.checks > 100
    assert {row.source for row in shipped.rows if row.verdict != NOT_CHECKED} >= {"cupti-range", "ncu", "schedule"}


def test_without_an_audit_the_page_shows_the_recorded_one_and_gives_the_command() -> None:
    shipped = load(AUDIT)
    at = page()
    assert not at.exception
    shown = html(at)
    where = f"Recorded on an NVIDIA H200, driver {shipped.device.driver}, torch {shipped.environment['torch']}, "
    assert where in shown
    assert f"{shipped.created[:10]}; make your own with python -m profiler audit." in shown
    assert headline(shipped).sentence in shown
    assert [block.value for block in at.code] == ["python -m profiler audit"]
    assert [expander.label for expander in at.expander] == ["Every check"]
    for absent in ("Saved as", "Its Runs are in", "Runs saved", "Repeat with"):
        assert absent not in shown


def test_an_own_audit_alone_is_shown(cpu: Audit) -> None:
    save(cpu)
    shown = html(page())
    assert "Two-core CPU" in shown and "Saved as" in shown
    assert "H200" not in shown and "Recorded on" not in shown and "make your own" not in shown.lower()


def test_a_broken_file_is_named_above_the_recorded_audit() -> None:
    audits_folder().mkdir(parents=True)
    (audits_folder() / "20270101T000000-audit-bad.json").write_text("<b>")
    shown = html(page())
    assert "20270101T000000-audit-bad.json: This is not an audit" in shown and "Recorded on an NVIDIA H200" in shown


def test_without_the_recorded_audit_the_page_says_so_and_gives_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded, "AUDIT", tmp_path / "gone.json")
    at = page()
    assert not at.exception
    assert "No audit has been made yet." in html(at) and "It could not be read: No such file" in html(at)
    assert [block.value for block in at.code] == ["python -m profiler audit"]


def test_the_page_shows_the_newest_audit_and_names_a_broken_file(h200: Audit, cpu: Audit) -> None:
    save(replace(cpu, id="20261101T000000-audit-old"))
    save(h200)
    (audits_folder() / "20270101T000000-audit-bad.json").write_text("<b>")
    at = page()
    assert not at.exception
    shown = html(at)
    assert "422 of 424 checks pass, 2 fail." in shown and "NVIDIA H200" in shown
    assert "20270101T000000-audit-bad.json: This is not an audit" in shown
    assert "python -m profiler audit --device cuda:0" in shown and f"{h200.id}.json" in shown
    for title in ("Missed limits", "Limits", "Differences: copy, fill, sum", "Not checked"):
        assert title in shown
    assert [expander.label for expander in at.expander] == ["Every check"]


def test_a_name_that_is_not_utf8_is_a_file_that_cannot_be_read(h200: Audit) -> None:
    path = save(h200)
    path.with_name(os.fsdecode(b"20270101-caf\xe9.json")).write_bytes(path.read_bytes())
    at = page()
    assert not at.exception
    shown = html(at)
    assert "20270101-caf\ufffd.json: It cannot be read: its name is not UTF-8; rename it." in shown
    assert headline(h200).sentence in shown, "the newest that can be read"


def test_a_folder_whose_name_is_not_utf8_is_shown_with_a_printable_name(
    h200: Audit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BYTESCOPE_RUNS", os.fsdecode(os.fsencode(tmp_path) + b"/runs\xe9"))
    assert "/runs\ufffd/audits." in html(page())
    save(h200)
    at = page()
    assert not at.exception
    assert f"/runs\ufffd/audits/{h200.id}.json" in html(at)


def test_text_from_a_file_stays_text(h200: Audit) -> None:
    save(hostile_audit(h200))
    at = page()
    assert not at.exception
    shown = html(at)
    assert "&lt;img" in shown and "<img" not in shown and 'onerror="' not in shown


@pytest.mark.parametrize("runs", [(), (cpu_run(),), (flash_run(), cpu_run())])
def test_it_draws_with_any_runs(h200: Audit, runs: tuple[object, ...]) -> None:
    def script(runs: object) -> None:
        from app.views import audit

        audit.render(runs)  # type: ignore[arg-type]

    save(h200)
    at = AppTest.from_function(script, default_timeout=30, kwargs={"runs": runs}).run()
    assert not at.exception
