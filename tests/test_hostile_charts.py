"""Charts of a Run with markup in every text: plotly.js reads a subset of HTML in any of their words, hover included."""

import json
from collections.abc import Iterator
from html import unescape
from typing import Any

import pytest

from app.compare_sheet import compare_sheet
from app.picture import Picture, Sheet
from app.registry import all_views
from app.style import LIGHT
from profiler.compare import compare
from tests.hostile_runs import MARK, hostile_runs

MARKUP = ("<img", "<script", "<a ", "<b>zq", "<i>zq")
TEMPLATES = ("hovertemplate", "texttemplate")


def words(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a figure, with the name of the property that holds it."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from words(item, key)
    elif isinstance(value, list):
        for item in value:
            yield from words(item, name)


def sheets() -> dict[str, Sheet]:
    """What every page, and the comparison of two Runs, draws of them."""
    runs = hostile_runs()
    found = {view.TITLE: view.sheet(runs, LIGHT) for view in all_views() if hasattr(view, "sheet")}
    return found | {"Compared": compare_sheet(compare(runs[0], runs[1]), LIGHT)}


def test_no_chart_holds_markup_of_a_run() -> None:
    quoted = 0
    for title, shown in sheets().items():
        for item in shown.items:
            if not isinstance(item, Picture):
                continue
            for name, text in words(json.loads(item.chart.to_json())):
                # Titles of tensors are spelled in capitals.
                assert not any(tag in text.lower() for tag in MARKUP), (title, name, text)
                assert not (name in TEMPLATES and MARK in text), (title, name, text)  # it may hold %{...}
                quoted += name != "bdata" and MARK in unescape(text).lower()
    assert quoted > 10, "charts that quote nothing of a Run prove nothing"


@pytest.mark.parametrize("text", ["<b>zq</b>", "&lt;b&gt;zq"])
def test_the_words_of_a_chart_are_found_where_they_stand(text: str) -> None:
    assert ("text", text) in [*words({"data": [{"text": ["", text]}]})]
