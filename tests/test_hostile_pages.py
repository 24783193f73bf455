"""Whatever an accepted Run says, every page, report and comparison can be made of it, and its texts stay text."""

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import cycle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app import compare_report, report_html, report_parts
from app.compare_sheet import compare_sheet
from app.picture import Picture
from app.report import FORMATS
from app.style import DARK, LIGHT
from kernels.problem import Refused
from profiler.codec import NotARun
from profiler.compare import compare
from profiler.notebook import card, line
from profiler.run import Run
from profiler.run_document import from_json, to_document
from tests.fake_runs import naive_run
from tests.hostile import PRINTABLE, documents, full_run, often, places, quickly, require_sentence, seldom

pytestmark = pytest.mark.computes

# What charts write themselves: bold, a new line, a coloured square, and the end of a hover text.
UNMEANT = re.compile(r'<(?!/?b>|br>|/?extra>|/span>|span style="color:#[0-9A-F]{6}(;font-size:[0-9]+px)?">)')
PLOTLY = "plotly()"
FORMULA = tuple("=+-@\t\r")
TEXTS = ("device_name", "name", "launch", "note")
VIEWS = tuple(view for view in report_html.all_views() if hasattr(view, "sheet"))
# Elements and attributes that a page or a report writes itself; no Run can add one.
ELEMENTS = frozenset(
    (
        "html", "head", "meta", "title", "style", "body", "main", "header", "nav", "section", "figure", "details",
        "summary", "footer", "noscript", "script", "a", "b", "p", "h1", "h2", "h3", "div", "span", "table", "thead",
        "tbody", "tr", "th", "td", "sup", "ol", "li", "pre", "label", "input", "i",
    )
)  # fmt: skip
ATTRIBUTES = re.compile(
    "class|style|id|href|lang|charset|name|content|http-equiv|type|checked|role|aria-[a-z]+|tabindex|colspan|scope|title"
)


class Written(HTMLParser):
    """The elements of a document with their attributes, and the scripts that a browser would run."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, tuple[str, ...]]] = []
        self.links: list[str] = []
        self.running: list[str] = []
        self._runs = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple(name for name, _ in attrs)))
        self.links += [value or "" for name, value in attrs if name in ("href", "src", "action", "formaction")]
        self._runs = tag == "script" and dict(attrs).get("type") is None

    def handle_endtag(self, tag: str) -> None:
        self._runs = False

    def handle_data(self, data: str) -> None:
        if self._runs:
            self.running.append(data)


def require_only_text(document: str, scripts: tuple[str, ...] = ()) -> None:
    """Fail where anything of a Run became an element, an attribute, a link or a script of an HTML document."""
    written = Written(document)
    assert {tag for tag, _ in written.elements} <= ELEMENTS, {tag for tag, _ in written.elements} - ELEMENTS
    names = {name for _, attributes in written.elements for name in attributes}
    assert all(ATTRIBUTES.fullmatch(name) for name in names), names
    assert all(link.startswith("#") for link in written.links), written.links
    assert tuple(written.running) == scripts


def other(draw: st.DrawFn, old: Any) -> Any:
    """A value that may be there as well: a hostile but printable text, another number, less of a list."""
    if isinstance(old, str):
        return draw(st.sampled_from(PRINTABLE))
    if isinstance(old, bool) or old is None:
        return draw(st.sampled_from([None, True, False]))
    if isinstance(old, int | float):
        factor = draw(st.sampled_from([0, 0.5, 2, 3, 1e3, 1e6, 1e-3, 1e-6, 1e12]))
        return type(old)(min(old * factor, 10**24))
    if isinstance(old, list):
        kept = draw(st.integers(0, len(old)))
        return draw(st.sampled_from([old[:kept], old[kept:], [*reversed(old)]]))
    return draw(st.sampled_from([None, {}]))


def with_hostile_texts(document: Any, texts: Sequence[str]) -> Any:
    """The document with these texts, in turn, wherever a Run may say anything."""
    run, more = document["runs"][0], cycle(texts)

    def fill(at: dict[str, Any], *names: str, most: int = 500) -> None:
        at.update((name, next(more)[:most]) for name in names)

    fill(run, "recorded", "request")
    fill(run["device"], "name", "driver", "peak_hbm_source", "peak_flops_source")
    fill(run["environment"], *run["environment"], *texts)
    for measurement in run["measurements"]:
        fill(measurement, "note")
    empty = {"unit": "1", "source": "torch", "spread": None, "launch": None}
    for text in texts:
        found = {**empty, "name": text, "value": 1.0, "note": text, "launch": text}
        run["measurements"] += [found, {**empty, "name": text, "value": None, "note": text}]
        run["kernels"].append({"launch": text, "kernel": text})
        run["series"].append({"name": text, "unit": text, "source": text, "seconds": [0.0], "values": [1.0]})
    run["samples"].update((text, [1.0, 2.0]) for text in texts)
    run["phases"].update((text, 1.0) for text in texts)
    memory = run["memory"] or {"events": (), "segments": ()}
    for event in memory["events"]:
        fill(event, "launch")
        fill(event, "name", most=60)
        for frame in event["frames"]:
            fill(frame, "file", "function")
    for segment in memory["segments"]:
        fill(segment, "pool")
        for block in segment["blocks"]:
            fill(block, "name", most=60)
    return document


@st.composite
def accepted_runs(draw: st.DrawFn) -> Run:
    """A Run that its reader takes, though nobody measured it: what the reader refuses is undone."""
    document = draw(documents())
    if draw(st.booleans()):
        document = with_hostile_texts(
            document, draw(st.lists(st.sampled_from(PRINTABLE), min_size=1, max_size=3, unique=True))
        )
    (run,) = from_json(json.dumps(document))
    for _ in range(draw(st.integers(0, 5))):
        at, key = places(draw, document["runs"][0])
        old = at[key]
        at[key] = other(draw, old)
        try:
            (run,) = from_json(json.dumps(document))
        except NotARun:
            at[key] = old
    return run


def some_runs() -> st.SearchStrategy[list[Run]]:
    """One, or now and then two, of which a page shows each once."""
    two = st.lists(accepted_runs(), min_size=2, max_size=2, unique_by=lambda run: run.id)
    return st.integers(0, 3).flatmap(lambda of_four: two if of_four == 3 else accepted_runs().map(lambda run: [run]))


def made(make: Callable[[], Any]) -> Any:
    """What is made; None where that is refused in a sentence."""
    try:
        with quickly():
            return make()
    except Refused as refusal:
        require_sentence(str(refusal))
        return None


def texts_of(part: Any) -> Iterator[str]:
    """Every text in a chart."""
    if isinstance(part, str):
        yield part
    elif isinstance(part, dict):
        for inner in part.values():
            yield from texts_of(inner)
    elif isinstance(part, list):
        for inner in part:
            yield from texts_of(inner)


def require_plain_charts(items: Iterable[object]) -> None:
    """Plotly reads a subset of HTML in texts, links among it: fail where one is not of those that charts write."""
    for picture in (item for item in items if isinstance(item, Picture)):
        for text in texts_of(json.loads(picture.chart.to_json())):
            assert not UNMEANT.search(text), (picture.title, text)


@often
@given(some_runs(), st.sampled_from(VIEWS), st.sampled_from([LIGHT, DARK]))
def test_every_page_can_be_made(runs: list[Run], view: Any, theme: Any) -> None:
    with quickly():
        shown = view.sheet(tuple(runs), theme)
        document = report_parts.sheet(shown, "group")
    require_only_text(document)
    require_plain_charts(shown.items)


@pytest.mark.parametrize("make", [full_run, naive_run])
def test_names_that_tell_two_runs_apart_stay_texts(make: Callable[[], Run]) -> None:
    """Two of one kernel on devices of other names: these stand at the axes."""
    link = "<a href='https://example.com'>x</a>"
    runs = [replace(make(), id=name, device=replace(make().device, name=f"{link} {name}")) for name in ("a", "b")]
    for view in VIEWS:
        shown = view.sheet(tuple(runs), LIGHT)
        require_only_text(report_parts.sheet(shown, "group"))
        require_plain_charts(shown.items)


@often
@given(accepted_runs(), st.sampled_from([name for name in FORMATS if name != "html"]))
def test_every_report_can_be_made(run: Run, name: str) -> None:
    text = made(lambda: FORMATS[name]((run,)))
    if text is None:
        assert name in ("perfetto", "memory")
    elif name == "json":
        assert from_json(text) == (run,)
    elif name == "csv":
        rows = [*csv.DictReader(io.StringIO(text, newline=""))]
        assert len(rows) == len(run.measurements)
        assert not [cell for row in rows for column, cell in row.items() if column in TEXTS and cell[:1] in FORMULA]
    elif name == "md":
        assert "<" not in text and "@" not in text
    elif name == "perfetto":
        json.loads(text)
    else:
        assert text.startswith(b"\x80")


@pytest.fixture(autouse=True)
def short_plotly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own script is 4 MB, and the same in every report."""
    monkeypatch.setattr(report_html, "get_plotlyjs", lambda: PLOTLY)


@settings(max_examples=-(-settings().max_examples // 20))
@given(some_runs())
def test_a_report_as_html_holds_nothing_of_a_run_but_text(runs: list[Run]) -> None:
    document = FORMATS["html"](runs)
    require_only_text(document, (PLOTLY, report_html.SCRIPT.read_text()))


@seldom
@given(accepted_runs(), accepted_runs(), st.sampled_from(sorted(compare_report.FORMATS)))
def test_any_two_runs_can_be_compared(before: Run, after: Run, name: str) -> None:
    compared = made(lambda: compare(before, after))
    if compared is None:
        return
    with quickly():
        text = compare_report.FORMATS[name](compared, ())
    require_plain_charts(compare_sheet(compared, LIGHT, ()).items)
    if name == "html":
        require_only_text(text, (PLOTLY, report_html.SCRIPT.read_text()))
    elif name == "json":
        json.loads(text)


@seldom
@given(accepted_runs())
def test_a_notebook_shows_text_alone(run: Run) -> None:
    with quickly():
        require_only_text(card(run))
        assert line(run).isprintable()


def test_texts_that_are_everywhere_stay_texts() -> None:
    (run,) = from_json(json.dumps(with_hostile_texts(to_document([full_run()]), PRINTABLE)))
    document = FORMATS["html"]((run,))
    require_only_text(document, (PLOTLY, report_html.SCRIPT.read_text()))
    assert document.count("&lt;script&gt;alert(1)&lt;/script&gt;") > 10
