"""The walk-through as it is shown: the page, its languages, and its section of the report."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from streamlit.testing.v1 import AppTest

from app import report_html
from app.picture import Picture
from app.style import LIGHT
from app.views import walk_through
from profiler.run import Run
from tests.fake_runs import cpu_run, flash_run, naive_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

BOTH = (naive_run(), flash_run())


def test_the_sheet_prints_english_beside_chinese() -> None:
    found = walk_through.sheet(BOTH, LIGHT)
    assert [item.title.partition(".")[0] for item in found.items] == [str(number) for number in range(1, 12)]
    assert found.items[6].caption.startswith("A softmax divides by a sum over its whole row")
    assert found.headline is not None and found.headline.detail.startswith("(1, 16, 8192, 128)")
    charts = [item.chart.to_json() for item in found.items if isinstance(item, Picture)]
    assert sum(map(len, charts)) < 200_000
    (chinese,) = found.translations
    assert (chinese.language, chinese.code) == ("中文", "zh")
    assert chinese.sheet.headline is not None and chinese.sheet.headline.sentence.startswith("注意力")
    assert chinese.sheet.items[6].title == "7. 出错的 softmax"


@pytest.mark.browser
def test_the_report_holds_both_languages_and_shows_english(chromium: Browser, tmp_path: Path) -> None:
    """By CSS alone: without JavaScript the switch works, and paper shows what it stands at, English at first."""
    file = tmp_path / "report.html"
    file.write_text(report_html.html(BOTH), encoding="utf-8")
    page = chromium.new_page(java_script_enabled=False)
    page.goto(file.as_uri())
    part = page.locator("#walk-through")
    english, chinese = part.locator(".language[lang=en]"), part.locator(".language[lang=zh]")
    assert (english.is_visible(), chinese.is_visible()) == (True, False)
    page.emulate_media(media="print")
    assert (english.is_visible(), chinese.is_visible()) == (True, False)
    assert not part.locator("label").first.is_visible()
    page.emulate_media(media="screen")
    part.locator("label", has_text="中文").click()
    assert (english.is_visible(), chinese.is_visible()) == (False, True)
    assert "出错的 softmax" in chinese.inner_text()
    page.close()


@pytest.mark.browser
def test_charts_of_the_chosen_language_fill_their_cards(chromium: Browser, tmp_path: Path) -> None:
    file = tmp_path / "report.html"
    file.write_text(report_html.html(BOTH), encoding="utf-8")
    page = chromium.new_page(viewport={"width": 1440, "height": 900})
    faults: list[str] = []
    page.on("console", lambda message: faults.append(message.text) if message.type == "error" else None)
    page.goto(file.as_uri())
    page.locator("#walk-through label", has_text="中文").click()
    page.wait_for_function(
        "[...document.querySelectorAll('#walk-through .language[lang=zh] .chart')].every((chart) =>"
        " Math.abs(chart.querySelector('.main-svg').clientWidth - chart.clientWidth) <= 1)",
        timeout=5000,
    )
    assert not faults
    page.close()


def test_each_problem_has_a_switch_of_its_own() -> None:
    text = report_html.html((*BOTH, cpu_run()))
    switches = re.findall(r'<input type="radio" name="([^"]*)"( checked)?>', text)
    assert [bool(checked) for _, checked in switches] == [True, False, True, False]
    names = [name for name, _ in switches]
    assert names[0] == names[1] != names[2] == names[3]


def _page() -> None:
    import streamlit as st

    from app.views import walk_through as view

    view.render(st.session_state.runs)


def html(app: AppTest) -> str:
    return "".join(str(element.proto.body) for element in app.get("html"))


@pytest.mark.parametrize("runs", [(), (naive_run(),), (cpu_run(),), BOTH])
def test_the_page_draws_eleven_anchors(runs: tuple[Run, ...]) -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = runs
    app.run()
    assert not app.exception
    text = html(app)
    assert all(f'id="step-{number}"' in text and f'href="#step-{number}"' in text for number in range(1, 12))


def test_the_language_is_kept() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = ()
    app.run()
    assert "The score matrix" in html(app) and 'lang="en"' in html(app)
    app.segmented_control[0].set_value("中文").run()
    assert "分数矩阵" in html(app) and "The score matrix" not in html(app)
    app.run()
    assert "分数矩阵" in html(app)
    assert app.session_state["walk.language"] == "中文"
