"""The password in a real browser: nothing before it, everything after it, and each session by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from profiler.run_document import from_json, to_json
from tests.browser.conftest import IDLE
from tests.fake_runs import cpu_run
from tests.served import Served, served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.").expect
expect.set_options(timeout=30_000)
PASSWORD = "a password for the browser"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Listening to everybody, with a password."""
    secrets = f'[bytescope]\npassword = "{PASSWORD}"\n'
    with served(tmp_path_factory.mktemp("server"), secrets=secrets, address="0.0.0.0") as found:
        yield found


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    """A browser that has not been here; it may ask this machine alone, and nothing may go wrong in it."""
    with chromium.new_context() as context:
        opened, complaints = context.new_page(), []
        opened.set_default_timeout(60_000)
        opened.on("request", lambda asked: None if "//127.0.0.1:" in asked.url else complaints.append(asked.url))
        opened.on("pageerror", lambda error: complaints.append(str(error)))
        yield opened
        assert [line for line in complaints if not line.startswith(("blob:", "data:"))] == []


def try_password(page: Page, password: str) -> None:
    page.get_by_label("Password", exact=True).fill(password)
    page.get_by_role("button", name="Sign in").click()


def test_nothing_before_the_password_and_everything_after_it(page: Page, server: Served, tmp_path: Path) -> None:
    page.goto(f"{server.url}/runs")
    expect(page.locator("h1")).to_have_text("Sign in to Bytescope.")
    expect(page.locator(IDLE)).to_be_attached()
    for selector in (".st-key-bs-nav", 'input[type="file"]', '[data-testid="stPageLink"]', ".st-key-run"):
        assert page.locator(selector).count() == 0, selector
    try_password(page, "not the password")
    expect(page.get_by_role("alert")).to_have_text("That is not the password.")
    assert page.locator(".st-key-bs-nav").count() == 0
    try_password(page, PASSWORD)
    expect(page.locator("h1")).to_contain_text("No Run is saved yet")
    expect(page.locator(".st-key-bs-open")).to_contain_text("listens on every address of this machine")
    file = tmp_path / "run.json"
    file.write_text(to_json([cpu_run()]))
    page.locator('input[type="file"]').set_input_files(file)
    expect(page.locator("h1")).to_contain_text("1 shown on every page")
    with page.expect_download() as asked:
        page.get_by_role("button", name="Download Runs (JSON)").click()
    assert from_json(asked.value.path().read_bytes()) == (cpu_run(),)
    assert PASSWORD not in server.log and server.trap.asked == []


def test_another_session_is_asked_anew(page: Page, server: Served) -> None:
    page.goto(server.url)
    expect(page.locator("h1")).to_have_text("Sign in to Bytescope.")


def test_a_page_of_another_origin_cannot_frame_it(page: Page, server: Served) -> None:
    page.goto(f"{server.url}/_stcore/health")
    page.set_content(f'<iframe src="{server.url}/"></iframe>')
    frame = page.frames[-1]
    frame.wait_for_load_state()
    assert "Bytescope" not in frame.content() and "root" not in frame.content()
