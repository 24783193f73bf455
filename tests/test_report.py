"""The report in every format: complete, self-contained, safe with hostile Runs, and drawn in a real browser."""

from __future__ import annotations

import base64
import csv
import dataclasses
import hashlib
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import plotly.graph_objects as go
import pytest

from app import report_html
from app.picture import Figure, Headline, Picture, Sheet, Table
from app.report import FORMATS
from app.report_parts import LISTED_AS_MEASUREMENTS
from app.style import DARK, LIGHT
from kernels.problem import Refused
from profiler.run import Measurement, Run, Series
from profiler.run_document import from_json, to_json
from tests.fake_runs import NO_COUNTERS, cpu_run, flash_run, naive_run

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROOT = Path(__file__).parents[1]
LABELS_CUT_OFF = """[...document.querySelectorAll('.chart .bartext')].filter((text) =>
    text.getBoundingClientRect().right > text.closest('.chart').getBoundingClientRect().right + 1
).map((text) => text.textContent)"""
TITLES_IN_TICKS = """[...document.querySelectorAll('.chart .xtitle, .chart .ytitle')].filter((title) => {
    const at = title.getBoundingClientRect();
    return [...title.closest('.chart').querySelectorAll('.xtick, .ytick')].some((tick) => {
        const other = tick.getBoundingClientRect();
        const apart = at.right <= other.left || other.right <= at.left;
        return !apart && at.top < other.bottom - 1 && other.top < at.bottom - 1;
    });
}).map((title) => title.textContent)"""
HOSTILE = "</script><script>alert(1)</script><img src=//x onerror=alert(1)>\" onclick='alert(1)' =1+1 | `@all`"


class Page(HTMLParser):
    """The elements, links and scripts of a document, and its text without scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[tuple[str | None, str]] = []
        self.text = ""
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag
        if tag == "script":
            self.scripts.append((dict(attrs).get("type"), ""))

    def handle_endtag(self, tag: str) -> None:
        self._inside = ""

    def handle_data(self, data: str) -> None:
        if self._inside == "script":
            kind, before = self.scripts[-1]
            self.scripts[-1] = (kind, before + data)
        elif self._inside != "style":
            self.text += data

    def attributes(self, name: str) -> list[str]:
        return [attributes[name] or "" for tag, attributes in self.elements if name in attributes and tag != "style"]


def sheet(runs: tuple[Run, ...], theme: object) -> Sheet:
    chart = go.Figure(go.Bar(x=[13.09, 0.135], y=[run.workload.kernel for run in runs], orientation="h"))
    chart.update_layout(title_text=HOSTILE, height=240)
    return Sheet(
        Headline("Naive moved 13.09 GB through HBM.", HOSTILE),
        (Figure("HBM bytes, flash", "–", "cupti-range", reason="No counter here."),),
        (Picture("Bytes", HOSTILE, chart), Table("Launches", HOSTILE, ("launch", "source"), ((HOSTILE, "schedule"),))),
    )


def empty(runs: tuple[Run, ...], theme: object) -> Sheet:
    return Sheet(missing="No Run here recorded m, l and acc.")


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> None:
    views = (SimpleNamespace(TITLE="Traffic", sheet=sheet), SimpleNamespace(TITLE="Softmax", sheet=empty))
    monkeypatch.setattr(report_html, "all_views", lambda: (*views, SimpleNamespace(TITLE="Live")))


@pytest.fixture(scope="module")
def both() -> tuple[Run, Run]:
    return naive_run(), flash_run()


def hostile_run() -> Run:
    run = naive_run()
    return dataclasses.replace(
        run,
        request=HOSTILE,
        created=HOSTILE,
        recorded=HOSTILE,
        device=dataclasses.replace(run.device, name=HOSTILE, driver=HOSTILE, peak_hbm_source=HOSTILE),
        environment={HOSTILE: HOSTILE},
        measurements=(
            Measurement(HOSTILE, 1.0, "B", "torch", HOSTILE, launch=HOSTILE),
            Measurement("hbm_read_bytes", None, "B", "cupti-range", HOSTILE),
        ),
        samples={HOSTILE: (1.0,)},
        series=(Series(HOSTILE, HOSTILE, HOSTILE, (0.0,), (1.0,)),),
    )


@pytest.mark.usefixtures("pages")
def test_html_loads_nothing(both: tuple[Run, Run]) -> None:
    page = Page(FORMATS["html"](both))
    assert not page.attributes("src")
    assert {tag for tag, _ in page.elements}.isdisjoint({"link", "img", "iframe", "object", "base", "form"})
    names = page.attributes("id")
    assert [link.removeprefix("#") for link in page.attributes("href")] == names
    assert names[:2] == ["traffic", "softmax"]

    policy = next(attributes["content"] or "" for _, attributes in page.elements if "http-equiv" in attributes)
    runnable = [code for kind, code in page.scripts if kind is None]
    digests = [base64.b64encode(hashlib.sha256(code.encode()).digest()).decode() for code in runnable]
    assert len(runnable) == 2
    assert "default-src 'none'" in policy
    assert re.findall(r"script-src ([^;]*);", policy) == [" ".join(f"'sha256-{digest}'" for digest in digests)]


@pytest.mark.usefixtures("pages")
def test_html_says_everything(both: tuple[Run, Run]) -> None:
    text = Page(FORMATS["html"](both)).text
    assert "Naive moved 13.09 GB through HBM." in text
    assert "No counter here." in text
    assert "No Run here recorded m, l and acc." in text
    for number in ("6,610,000,000", "2,118,000,000", "0.006336 s to 0.006464 s", "549,755,813,888", "0.0023"):
        assert number in text, number
    for fact in (
        "NVIDIA H200",
        "580.159.04",
        "2.11.0+cu130",
        "3.6.0",
        "3.12.3",
        "2026-11-29",
        "128\u00a0×\u00a064, linear",
    ):
        assert fact in text, fact
    assert "python -m profiler run --kernel naive --kernel flash" in text
    assert "--seq-len 8192" in text


@pytest.mark.usefixtures("pages")
@pytest.mark.usefixtures("pages")
def test_html_names_how_each_run_was_measured_as_the_form_does() -> None:
    asked = dataclasses.replace(naive_run().workload, counters="cupti-sampling", drain=False, detail=True, repeats=5)
    text = FORMATS["html"]((dataclasses.replace(naive_run(), workload=asked), cpu_run()))
    text = text[text.index("How it was measured") :]
    heads = ["kernel", "L2", "passes", "bytes counted by", "write-back drain", "detail counters", "Run"]
    assert re.findall(r"<th[^>]*>([^<]*)</th>", text)[:7] == heads
    cells = re.findall(r"<td[^>]*>([^<]*)</td>", text)
    assert cells[:7] == ["Naive", "cold", "5", "cupti-sampling", "no", "yes", "fake-naive"]
    assert "fake-cpu" not in cells[: cells.index("device")]  # a CPU has none of these
    assert "How it was measured" not in FORMATS["html"]((cpu_run(),))


@pytest.mark.usefixtures("pages")
def test_html_marks_a_footnote_as_no_exponent_is_written() -> None:
    text = FORMATS["html"]((naive_run(),))
    assert "6.61 GB<sup>[" in text
    assert not re.search(r"<sup>\d", text)


def test_html_folds_raw_samples_away(both: tuple[Run, Run]) -> None:
    series = Series("hbm_read", "B", "cupti-sampling", (0.0, 2e-5), (96e6, 48e6))
    run = dataclasses.replace(both[0], samples={"gpu_time_seconds": (0.0064, 0.0065)}, series=(series,))
    page = Page(FORMATS["html"]((run,)))
    assert sum(tag == "details" for tag, _ in page.elements) == 3  # measurements, passes, series
    assert not page.attributes("open")
    words = " ".join(page.text.split())
    assert "gpu_time_seconds, s (cuda-event) 0.0064 0.0065" in words
    assert "time, s hbm_read, B (cupti-sampling) 0 96000000 2e-05 48000000" in words


@pytest.mark.usefixtures("pages")
def test_html_gives_the_reason_for_a_missing_number() -> None:
    text = Page(FORMATS["html"]((cpu_run(),))).text
    assert text.count(NO_COUNTERS) == 1  # of HBM read, HBM write, L2↔SM: one footnote


@pytest.mark.usefixtures("pages")
def test_hostile_text_stays_text() -> None:
    page = Page(FORMATS["html"]((hostile_run(),)))
    assert [kind for kind, _ in page.scripts] == ["application/json", None, None]
    assert json.loads(page.scripts[0][1])["layout"]["title"]["text"] == HOSTILE
    assert "img" not in {tag for tag, _ in page.elements}
    assert not any(name.startswith("on") for _, attributes in page.elements for name in attributes)
    assert page.text.count(HOSTILE) >= 10


def test_hostile_text_in_the_other_formats() -> None:
    run = hostile_run()
    table = FORMATS["md"]((run,))
    assert "<" not in table
    assert "@" not in table
    assert all(line.count("|") == 3 for line in table.splitlines() if line.startswith("| "))
    formula = dataclasses.replace(run, measurements=(Measurement("=1+1", -1.0, "B", "torch", "@sum"),))
    (row,) = csv.DictReader(FORMATS["csv"]((formula,)).splitlines())
    assert (row["name"], row["note"], row["value"]) == ("'=1+1", "'@sum", "-1.0")


def test_every_page_of_the_app_is_in_the_report(both: tuple[Run, Run]) -> None:
    text = FORMATS["html"](both)
    names = Page(text).attributes("id")
    for view in report_html.all_views():
        assert not hasattr(view, "sheet") or view.TITLE.lower().replace(" ", "-") in names
    assert len(text.encode()) < 10e6


def test_each_problem_is_a_chapter_with_every_page(both: tuple[Run, Run]) -> None:
    text = FORMATS["html"]((*both, cpu_run()))
    page = Page(text)
    names = page.attributes("id")
    assert [link.removeprefix("#") for link in page.attributes("href")] == names
    slugs = [view.TITLE.lower().replace(" ", "-") for view in report_html.all_views() if hasattr(view, "sheet")]
    pages = [*slugs, "measurements", "raw-samples"]
    wanted = [["chapter-1", *(f"{slug}-1" for slug in pages)], ["chapter-2", *(f"{slug}-2" for slug in pages)]]
    assert names == [*wanted[0], *wanted[1], "chapter-3", "environment-and-settings-3", "repeat-it-3"]
    assert "another problem" not in page.text
    assert len(text.encode()) < 10e6


def test_no_measurement_is_listed_twice(both: tuple[Run, Run]) -> None:
    sheets = [view.sheet(both, LIGHT) for view in report_html.all_views() if hasattr(view, "sheet")]
    assert LISTED_AS_MEASUREMENTS in {item.title for found in sheets for item in found.items}
    text = Page(FORMATS["html"](both)).text
    assert LISTED_AS_MEASUREMENTS not in text
    assert text.count("2,209,000,000 B") == 1  # naive's PV, HBM read


def test_json_is_the_document_that_the_runs_page_opens(both: tuple[Run, Run]) -> None:
    assert from_json(FORMATS["json"](both)) == both


def test_csv_has_a_row_for_each_measurement(both: tuple[Run, Run]) -> None:
    rows = list(csv.DictReader(FORMATS["csv"]((*both, cpu_run())).splitlines()))
    assert len(rows) == sum(len(run.measurements) for run in (*both, cpu_run()))
    pv = next(row for row in rows if row["launch"] == "pv" and row["name"] == "hbm_read_bytes")
    assert (pv["value"], pv["unit"], pv["source"]) == ("2209000000.0", "B", "cupti-range")
    assert (pv["kernel"], pv["seq_len_q"], pv["BLOCK_M"]) == ("naive", "8192", "")
    how = ("l2", "repeats", "counters", "drain", "detail")
    assert [pv[name] for name in how] == ["cold", "20", "auto", "True", "False"]
    missing = next(row for row in rows if row["run"] == "fake-cpu" and row["name"] == "l2_sm_bytes")
    assert (missing["value"], missing["note"]) == ("", NO_COUNTERS)
    assert [missing[name] for name in how] == [""] * 5


def test_markdown_has_a_column_for_each_run_and_a_table_for_each_problem(both: tuple[Run, Run]) -> None:
    lines = FORMATS["md"]((*both, cpu_run())).splitlines()
    assert "| | naive | flash |" in lines
    assert "| HBM bytes | 13.1 GB (counter) | 135 MB (counter) |" in lines  # 6.610 + 6.480, 0.101 + 0.034
    assert "| GPU time | 6.40 ms (events) | 1.28 ms (events) |" in lines
    assert "| HBM bytes | – |" in lines
    assert f"* HBM bytes, flash: {NO_COUNTERS}" in lines
    assert sum(line.startswith("### ") for line in lines) == 2
    how = "cold L2, 20 passes, bytes counted by auto, write-back drain, no detail counters"
    versions = "torch 2.11.0+cu130, triton 3.6.0, python 3.12.3, 2026-11-29"
    assert f"* NVIDIA H200, driver 580.159.04, {versions}, {how}" in lines
    assert f"* Two-core CPU, {versions}" in lines


def test_no_runs_are_refused() -> None:
    with pytest.raises(Refused, match="no Run"):
        FORMATS["html"](())


def call(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "app.report", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)


def test_command_line_without_a_file_says_so_in_one_sentence() -> None:
    done = call("--format", "md")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "No Run file is named; name one or more, such as examples/full_8k.json.\n"


def test_command_line(tmp_path: Path) -> None:
    file, report = tmp_path / "runs.json", tmp_path / "report.md"
    file.write_text(to_json([naive_run(), flash_run()]))
    # A Run that is given twice is one Run.
    assert call(file, file, "--format", "md", "--out", report).returncode == 0
    assert "| | naive | flash |" in report.read_text()
    assert from_json(call(file, "--format", "json").stdout) == from_json(file.read_text())


@pytest.mark.parametrize(("format", "is_refused"), [("html", True), ("json", True), ("md", False), ("csv", False)])
def test_a_terminal_gets_only_what_can_be_read_there(tmp_path: Path, format: str, is_refused: bool) -> None:
    file = tmp_path / "runs.json"
    file.write_text(to_json([cpu_run()]))
    reader, terminal = os.openpty()
    words = [sys.executable, "-m", "profiler", "report", str(file), "--format", format]
    done = subprocess.run(words, cwd=ROOT, stdout=terminal, stderr=subprocess.PIPE, text=True, check=False)
    os.close(terminal)
    os.close(reader)
    refusal = f"A report as {format} is nothing to read on a terminal; name a file for it with --out.\n"
    assert (done.returncode, done.stderr) == ((2, refusal) if is_refused else (0, ""))


@pytest.mark.parametrize(
    ("content", "options", "sentence"),
    [
        ("[]", (), "runs.json: This is not a Run file: it lacks format_version and runs."),
        ("", ("--format", "pdf"), "The format 'pdf' is not known; choose html, json, csv, md, perfetto, memory."),
        ("", ("--out", "/nowhere/report.html"), "/nowhere/report.html could not be written"),
        ("", ("--format", "perfetto"), "Flash has no timeline here, since it ran through the interpreter"),
    ],
)
def test_command_line_refuses_with_one_sentence(
    tmp_path: Path, content: str, options: tuple[str, ...], sentence: str
) -> None:
    file = tmp_path / "runs.json"
    file.write_text(content or to_json([cpu_run()]))
    done = call(file, *options)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence)
    assert done.stderr.count("\n") == 1


@pytest.mark.browser
@pytest.mark.parametrize(("most", "width"), [(1, 1440), (2, 390)])
def test_report_in_a_browser(chromium: Browser, tmp_path: Path, both: tuple[Run, Run], width: int, most: int) -> None:
    file = tmp_path / "report.html"
    file.write_text(FORMATS["html"](both[-most:]), encoding="utf-8")
    complaints: list[str] = []
    requests: list[str] = []
    with chromium.new_context(viewport={"width": width, "height": 900}) as context:
        page = context.new_page()
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("request", lambda request: requests.append(request.url))
        page.goto(file.as_uri())
        charts = page.locator(".chart").count()
        page.wait_for_function("count => document.querySelectorAll('.chart .main-svg').length >= count", arg=charts)
        assert charts >= 1
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(LABELS_CUT_OFF) == []
        assert page.evaluate(TITLES_IN_TICKS) == []
        page.emulate_media(media="print")
        page.evaluate("dispatchEvent(new Event('beforeprint'))")
        assert page.locator("details.printed:not([open])").count() == 0
    assert complaints == []
    assert requests == [file.as_uri()]


def test_the_report_is_light_in_every_mode() -> None:
    """Its charts are drawn once, in light colours."""
    text = report_html.html([naive_run()]).partition("<script>")[0]
    assert "color-scheme: light;" in text and "prefers-color-scheme" not in text
    assert LIGHT.paper in text and DARK.paper not in text
