"""The main job in a real browser: choose, run, look, stop, send on, open again; on a CPU."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.presets import LADDER
from app.registry import all_views
from profiler.run_document import from_json
from tests.browser.conftest import IDLE, Dashboard

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.").expect
expect.set_options(timeout=30_000)
RUN = {"name": "Run", "exact": True}


def go_to(page: Page, view: str) -> None:
    page.locator(".st-key-bs-nav").get_by_role("link", name=view, exact=True).click()
    expect(page).to_have_url(re.compile(r"/(\w+)?$"))


def settle(page: Page) -> None:
    """Wait until the server has nothing more to draw."""
    expect(page.locator(IDLE)).to_be_attached()


def fill(page: Page, label: str, value: str) -> None:
    box = page.get_by_role("spinbutton", name=label, exact=True)
    box.fill(value)
    box.press("Enter")
    settle(page)
    expect(box).to_have_value(value)


def test_run_look_export_and_open_again(page: Page, dashboard: Dashboard, tmp_path: Path) -> None:
    page.get_by_role("button", **RUN).click()
    expect(page.locator(".st-key-bs-progress")).to_contain_text(re.compile("naive|flash"))
    expect(page.locator("h1")).to_have_text("Naive requests 6.82 MB. Flash requests 2.36 MB: 2.9 times less.")
    expect(page.locator(".st-key-bs-progress")).to_have_count(0)
    saved = {run.id for path in dashboard.runs.glob("*.json") for run in from_json(path.read_bytes())}
    assert len(saved) == 2

    go_to(page, "Runs")
    expect(page.locator("h1")).to_have_text("2 saved Runs, 2 shown on every page.")
    expect(page.locator("code")).to_contain_text("python -m profiler run --kernel naive --kernel flash")
    settle(page)
    with page.expect_download() as asked:
        page.get_by_role("button", name="Download Runs (JSON)").click()
    file = tmp_path / "runs.json"
    asked.value.save_as(file)
    assert {run.id for run in from_json(file.read_bytes())} == saved
    with page.expect_download() as asked:
        page.get_by_role("button", name="Download report (HTML)").click()
    report = tmp_path / "report.html"
    asked.value.save_as(report)
    assert "Naive requests 6.82 MB" in report.read_text(encoding="utf-8")

    document = json.loads(file.read_text())
    document["runs"] = document["runs"][:1]
    file.write_text(json.dumps(document))
    page.locator('input[type="file"]').set_input_files(file)
    expect(page.locator("h1")).to_have_text("2 saved Runs, 1 shown on every page.")


def test_what_was_run_is_there_in_a_new_session(page: Page) -> None:
    expect(page.locator("h1")).to_contain_text("Flash requests 2.36 MB")


def test_a_row_of_the_history_opens_as_the_selection(page: Page) -> None:
    go_to(page, "Runs")
    expect(page.locator("h1")).to_have_text("2 saved Runs, 2 shown on every page.")
    table = page.get_by_test_id("stDataFrame").locator(".dvn-scroller")
    table.click(position={"x": 16, "y": 52})  # the first row's box: the table is one canvas
    page.get_by_role("button", name="Show 1 selected").click()
    expect(page.locator("h1")).to_have_text("2 saved Runs, 1 shown on every page.")


def test_a_recorded_run_opens_with_its_counters(page: Page) -> None:
    go_to(page, "Runs")
    # The overview has this button too: wait until it is gone.
    expect(page.locator("h1")).to_contain_text("saved Runs")
    settle(page)
    page.locator(".st-key-open-full_8k-json").get_by_role("button").click()
    expect(page.locator("code")).to_contain_text("--seq-len 8192")
    go_to(page, "Overview")
    expect(page.locator("h1")).to_contain_text("through HBM")
    expect(page.locator(".bs-headline p")).to_contain_text("recorded on NVIDIA H200")


def test_every_page_draws_without_a_fault(page: Page) -> None:
    for view in all_views():
        go_to(page, view.TITLE)
        settle(page)
        expect(page.locator("h1").first).to_be_visible()
        expect(page.get_by_text("cannot be drawn")).to_have_count(0)
        assert page.get_by_test_id("stException").count() == 0, view.TITLE


def test_no_page_is_wider_than_a_phone(phone: Page, dashboard: Dashboard) -> None:
    for index, view in enumerate(all_views()):
        path = view.__name__.rpartition(".")[2] if index else ""  # the first page is the root
        phone.goto(f"{dashboard.url}/{path}")
        phone.locator("h1").first.wait_for()
        settle(phone)
        main = phone.get_by_test_id("stMain")
        assert main.evaluate("element => element.scrollWidth <= element.clientWidth"), view.TITLE


def test_impossible_requests_are_refused_in_the_form(page: Page) -> None:
    fill(page, "kv heads", "3")
    expect(page.get_by_role("alert")).to_have_text("kv_heads 3 does not divide heads 2; choose one of 1, 2.")
    expect(page.get_by_role("button", **RUN)).to_be_disabled()
    fill(page, "kv heads", "1")
    expect(page.get_by_role("button", **RUN)).to_be_enabled()
    block = page.get_by_role("combobox", name="BLOCK_M")
    block.fill("48")
    block.press("Enter")
    expect(page.get_by_role("alert")).to_have_text("BLOCK_M is 48; it must be a power of two up to 1024, such as 32.")


@pytest.mark.parametrize(
    ("label", "typed"), [("seq_len", "9" * 20), ("seed", "9" * 20), ("window", "9" * 400), ("window", "-")]
)
def test_a_number_that_the_browser_cannot_send_takes_run_away(page: Page, label: str, typed: str) -> None:
    """The server never hears of it and would measure the old value, which the field no longer shows."""
    page.get_by_text("More settings").click()
    box, run = page.get_by_role("spinbutton", name=label, exact=True), page.locator(".st-key-run")
    expect(run).to_be_visible()
    box.press("Control+a")
    box.press_sequentially(typed)
    expect(run).to_be_hidden()
    box.press("Enter")
    settle(page)
    expect(run).to_be_hidden()
    expect(page.locator(".bs-unsent").filter(visible=True)).to_have_text(
        [f"{label} is not a number of at most 15 digits."]
    )
    fill(page, label, "7")
    expect(page.get_by_role("button", **RUN)).to_be_enabled()
    expect(page.locator(".bs-unsent").filter(visible=True)).to_have_count(0)


def test_run_clicked_before_the_answer_to_an_edit_is_there_runs_what_was_typed(
    slow: Page, dashboard: Dashboard
) -> None:
    box = slow.get_by_role("spinbutton", name="seq_len", exact=True)
    box.fill("256")
    box.press("Enter")
    time.sleep(0.6)  # the server has drawn the form anew and called it Custom; the browser does not know yet
    assert _runs_after_a_click(slow, dashboard) == [(256, 2), (256, 2)]
    expect(slow.get_by_role("combobox", name="Preset")).to_have_value("Custom")


def test_run_clicked_before_a_preset_is_drawn_runs_the_preset(slow: Page, dashboard: Dashboard) -> None:
    slow.get_by_role("combobox", name="Preset").click()
    slow.get_by_role("option", name="Article").click()
    time.sleep(0.6)
    assert _runs_after_a_click(slow, dashboard) == [(16, 1)] * len(LADDER)
    expect(slow.get_by_role("combobox", name="Preset")).to_have_value(re.compile("Article"))


def test_a_value_typed_before_the_preset_is_drawn_goes_on_top_of_it(slow: Page, dashboard: Dashboard) -> None:
    slow.get_by_role("combobox", name="Preset").click()
    slow.get_by_role("option", name="Article").click()
    time.sleep(0.4)  # the server has filled the form; what follows names widgets that are no longer there
    box = slow.get_by_role("spinbutton", name="heads", exact=True)
    box.fill("3")
    box.press("Enter")
    time.sleep(0.2)
    assert _runs_after_a_click(slow, dashboard) == [(16, 3)] * len(LADDER)
    expect(box).to_have_value("3")
    expect(slow.get_by_role("combobox", name="Preset")).to_have_value("Custom")


def _runs_after_a_click(page: Page, dashboard: Dashboard) -> list[tuple[int, int]]:
    before = set(dashboard.runs.glob("*.json"))
    page.get_by_role("button", **RUN).click()
    expect(page.locator(".st-key-bs-progress")).not_to_have_count(0)
    expect(page.locator(".st-key-bs-progress")).to_have_count(0)
    made = [run for path in set(dashboard.runs.glob("*.json")) - before for run in from_json(path.read_bytes())]
    return [(run.workload.problem.seq_len_q, run.workload.problem.heads) for run in made]


def test_stop_ends_a_run_within_two_seconds_and_pages_stay_usable(page: Page) -> None:
    fill(page, "seq_len", "4096")
    page.get_by_role("button", **RUN).click()
    expect(page.locator(".st-key-bs-progress")).to_be_visible()
    go_to(page, "Runs")
    expect(page.locator("h1")).to_contain_text("saved Run")
    stop = page.locator(".st-key-stop").get_by_role("button")  # Streamlit shows a Stop of its own while it draws
    expect(stop).to_have_count(1)  # the old page's may still stand beside it
    begun = time.monotonic()
    stop.click()
    expect(page.locator(".st-key-bs-notice")).to_contain_text("Stopped. Runs that were finished are kept.")
    assert time.monotonic() - begun < 10.0, "the run itself would take half a minute more"
    page.get_by_role("button", name="Dismiss").click()
    expect(page.locator(".st-key-bs-notice")).to_have_count(0)


def test_a_killed_worker_leaves_the_dashboard_up(page: Page, dashboard: Dashboard) -> None:
    fill(page, "seq_len", "4096")
    page.get_by_role("button", **RUN).click()
    # While a page is drawn anew its old progress line may still stand beside the new one.
    expect(page.locator(".st-key-bs-progress", has_text="flash: interpret").first).to_be_visible()
    for worker in dashboard.workers():
        os.kill(worker, signal.SIGKILL)
    expect(page.locator(".st-key-bs-notice")).to_contain_text("SIGKILL")
    expect(page.get_by_role("button", **RUN)).to_be_enabled()


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("hello", "This is not a Run file: it is not JSON"),
        ('{"format_version": 99, "runs": [{}]}', "The file has format_version 99"),
        ('{"format_version": 1, "runs": [], "more": 1}', "a field that this version does not know: 'more'"),
    ],
)
def test_a_bad_file_is_refused_with_a_sentence(page: Page, tmp_path: Path, content: str, sentence: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    go_to(page, "Runs")
    page.locator('input[type="file"]').set_input_files(file)
    expect(page.locator(".st-key-bs-notice")).to_contain_text("bad.json: ")
    expect(page.locator(".st-key-bs-notice")).to_contain_text(sentence)
