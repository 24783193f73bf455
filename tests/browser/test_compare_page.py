"""Two rows of the history become a comparison, which is sent on; in a real browser."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profiler.store import save
from tests.browser.conftest import IDLE, Dashboard
from tests.fake_runs import flash_run, naive_run

if TYPE_CHECKING:
    from playwright.sync_api import Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.").expect
expect.set_options(timeout=30_000)
ROW = 35  # pixels of the history's rows


@pytest.fixture
def saved(dashboard: Dashboard) -> None:
    """Two Runs in the dashboard's folder."""
    for run in (naive_run(), flash_run()):
        save(run, dashboard.runs)


def test_two_rows_of_the_history_are_compared_and_sent_on(saved: None, page: Page, tmp_path: Path) -> None:
    page.locator(".st-key-bs-nav").get_by_role("link", name="Runs", exact=True).click()
    expect(page.locator(IDLE)).to_be_attached()
    table = page.get_by_test_id("stDataFrame")
    expect(table).to_be_visible()
    for row in (1, 2):
        table.click(position={"x": 18, "y": ROW * row + ROW // 2})
        expect(page.locator(IDLE)).to_be_attached()
    page.get_by_role("button", name="Compare these two").click()
    expect(page).to_have_url(re.compile("/compare$"))
    expect(page.locator("h1")).to_have_text("Naive moved 13.09 GB through HBM, Flash 0.135 GB: 97 times less.")
    expect(page.locator(".js-plotly-plot").first).to_be_visible()
    with page.expect_download() as asked:
        page.get_by_role("button", name="Markdown for a pull request").click()
    file = tmp_path / "compare.md"
    asked.value.save_as(file)
    assert file.read_text().startswith("### Naive moved 13.09 GB through HBM")
    # The second is asked for before the first has come.
    with (
        page.expect_download(lambda file: file.suggested_filename.endswith(".csv")) as table,
        page.expect_download(lambda file: file.suggested_filename.endswith(".json")) as document,
    ):
        for name in ("CSV", "JSON"):
            page.get_by_role("button", name=name, exact=True).click(no_wait_after=True)
    assert table.value.path().read_text().startswith("name,launch,unit,")
    assert json.loads(document.value.path().read_text())["before"]["id"] == "fake-naive"
