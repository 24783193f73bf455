"""Runs with markup in every text, opened from a file in a real browser: on every page and in what is sent on, text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from app.compare_report import html as comparison
from app.registry import all_views
from app.report import FORMATS
from profiler.compare import compare
from profiler.run import Run
from profiler.run_document import to_json
from tests.browser.conftest import IDLE, Dashboard
from tests.fake_runs import cpu_run
from tests.hostile_runs import MADE_OF_MARKUP, SCRIPT_RAN, hostile_runs, seen

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

expect = pytest.importorskip("playwright.sync_api", reason="playwright is not installed.").expect
expect.set_options(timeout=30_000)
TELLING = {"overview", "hbm_traffic", "memory", "roofline", "compare", "runs"}  # pages that quote a Run
PICKED = ("Compare", "Memory", "Online softmax", "Tile schedule")  # pages where a Run is picked by its name
# What a policy refused, from the first element on.
REFUSED = """window.refused = [];
document.addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));"""
# Playwright itself would wait for the page that the form leads to.
SEND = """() => new Promise((done) => {
    const told = (event) => event.effectiveDirective === "form-action" && done();
    document.addEventListener("securitypolicyviolation", told);
    document.querySelector("#send").click();
})"""
SHOWN = "getComputedStyle(document.querySelector('main') ?? document.body).display"
# At once: a page that is just drawn anew may take one away while another is clicked.
UNFOLD = """for (const one of document.querySelectorAll("[data-testid=stExpander] details:not([open]) > summary"))
    one.click()"""
PLANTED = (
    "<script>window.pwned = 1</script><img src=x onerror='window.pwned = 1'><style>main{display:none}</style>"
    "<link rel=stylesheet href=http://zq.invalid/a.css><iframe src=http://zq.invalid/></iframe>"
    "<form action=http://zq.invalid/><input name=a><button id=send>Send</button></form>"
)


def test_every_page_shows_a_hostile_run_as_text(page: Page, dashboard: Dashboard, tmp_path: Path) -> None:
    dialogs: list[str] = []
    page.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss())[0])
    file = tmp_path / "hostile.json"
    file.write_text(to_json(hostile_runs()), encoding="utf-8")
    _go_to(page, "Runs")
    page.locator('input[type="file"]').set_input_files(file)
    expect(page.locator("h1")).to_contain_text(f"{len(hostile_runs())} shown on every page")
    quoting = set()
    for view in all_views():
        _go_to(page, view.TITLE)
        expect(page.locator(IDLE)).to_be_attached()
        page.evaluate(UNFOLD)
        expect(page.get_by_test_id("stExpander").locator("details:not([open])")).to_have_count(0)
        expect(page.locator(IDLE)).to_be_attached()
        pickers = page.get_by_test_id("stMain").locator('[role="combobox"]').all()
        for picker in pickers if view.TITLE in PICKED else ():
            picker.click()  # what it offers is drawn now
            assert page.evaluate(MADE_OF_MARKUP) == [], view.TITLE
            page.keyboard.press("Escape")
        assert page.evaluate(MADE_OF_MARKUP) == [], view.TITLE
        assert page.get_by_text("cannot be drawn").count() == 0, view.TITLE
        if seen(page):
            quoting.add(view.__name__.rpartition(".")[2])
    assert dialogs == []
    assert quoting >= TELLING, "pages that show nothing of a Run prove nothing"


def _go_to(page: Page, title: str) -> None:
    page.locator(".st-key-bs-nav").get_by_role("link", name=title, exact=True).click()
    page.locator("h1").first.wait_for()
    expect(page.locator(IDLE)).to_be_attached()


def _documents(runs: tuple[Run, ...]) -> dict[str, str]:
    return {"report": str(FORMATS["html"](runs)), "comparison": comparison(compare(runs[0], runs[1]))}


def test_what_is_sent_on_shows_a_hostile_run_as_text(chromium: Browser, tmp_path: Path) -> None:
    cards = "".join(run._repr_html_() for run in hostile_runs())
    found = _documents(hostile_runs()) | {"notebook": f"<!doctype html><meta charset=utf-8>{cards}"}
    for name, text in found.items():
        shown = _opened(chromium, tmp_path / f"{name}.html", text)
        assert shown.made == [] and shown.refused == [] and shown.complaints == [], name
        assert shown.requests == [(tmp_path / f"{name}.html").as_uri()], name
        assert shown.texts > 10, name


def test_the_policy_of_a_report_refuses_what_was_planted_in_it(chromium: Browser, tmp_path: Path) -> None:
    """Were a text of a Run ever not escaped, this is what stands behind it."""
    for name, whole in _documents((cpu_run(), cpu_run(run_id="other"))).items():
        shown = _opened(chromium, tmp_path / f"{name}.html", whole.replace("<main>", f"<main>{PLANTED}", 1))
        directives = {"script-src-elem", "script-src-attr", "style-src-elem", "img-src", "frame-src", "form-action"}
        assert set(shown.refused) >= directives, name
        assert SCRIPT_RAN not in shown.made and not shown.is_hidden, name
        assert shown.unsent and set(shown.unsent) == {"csp"}, name
        assert len(shown.requests) == 1 + len(shown.unsent), name


class _Opened:
    """What a document did in the browser."""

    def __init__(self) -> None:
        self.made: list[str] = []
        self.refused: list[str] = []
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.unsent: list[str | None] = []  # why a request was not sent
        self.texts = 0
        self.is_hidden = False


def _opened(chromium: Browser, path: Path, text: str) -> _Opened:
    path.write_text(text, encoding="utf-8")
    found = _Opened()
    with chromium.new_context() as context:
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.add_init_script(REFUSED)
        page.on("console", lambda message: found.complaints.append(message.text))
        page.on("pageerror", lambda error: found.complaints.append(str(error)))
        page.on("dialog", lambda dialog: (found.complaints.append(dialog.message), dialog.dismiss())[0])
        page.on("request", lambda request: found.requests.append(request.url))
        page.on("requestfailed", lambda request: found.unsent.append(request.failure))
        page.goto(path.as_uri())
        # The policy forbids eval, which Playwright's wait_for_function needs where it must wait.
        expect(page.locator(".chart:not(:has(.main-svg))")).to_have_count(0, timeout=60_000)
        if page.locator("#send").count():
            page.evaluate(SEND)
        page.evaluate("document.querySelectorAll('details').forEach((one) => (one.open = true))")
        # plotly.js notes that it draws a $text$ as it stands.
        found.complaints = [line for line in found.complaints if "MathJax is not loaded" not in line]
        found.made = page.evaluate(MADE_OF_MARKUP)
        found.refused = page.evaluate("refused")
        found.texts = seen(page)
        found.is_hidden = page.evaluate(SHOWN) == "none"
    return found
