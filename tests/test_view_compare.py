"""The Compare page and its exports: the answer in words, what differs first, shared axes, and hostile Runs."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from app.compare_choice import choices, usual_runs
from app.compare_report import FORMATS, html
from app.compare_sheet import compare_sheet
from app.compare_tables import MOST_ROWS
from app.compare_words import change
from app.picture import Picture, Sheet, Table
from app.style import DARK, LIGHT
from app.views import compare as view
from profiler.codec import NotARun
from profiler.compare import compare
from profiler.compare_limits import Limit, check
from profiler.compare_row import WITHIN, Row
from profiler.compare_table import ratio
from profiler.run import Measurement, Run
from profiler.store import StoreError, save
from tests.fake_runs import PROBLEM, TILE, cpu_run, flash_run, naive_run, sampled_flash_run, sampled_naive_run

HOSTILE = '</script><script>alert(1)</script><img src=//x onerror=alert(1)>" =1+1 | `@all`'


def shown(before: Run, after: Run) -> Sheet:
    return compare_sheet(compare(before, after), LIGHT)


def item(sheet: Sheet, title: str) -> Picture | Table:
    return next(one for one in sheet.items if one.title == title)


def table(sheet: Sheet, title: str) -> Table:
    found = item(sheet, title)
    assert isinstance(found, Table)
    return found


def chart(sheet: Sheet, title: str) -> Picture:
    found = item(sheet, title)
    assert isinstance(found, Picture)
    return found


def row(before: float, after: float, verdict: str = "beyond the spread") -> Row:
    sides = (Measurement("hbm_read_bytes", value, "B", "ncu") for value in (before, after))
    return Row("hbm_read_bytes", None, "B", *sides, after / before, verdict)


def test_the_answer_is_a_sentence_and_five_figures() -> None:
    sheet = shown(naive_run(), flash_run())
    assert sheet.headline is not None
    assert sheet.headline.sentence == "Naive moved 13.09 GB through HBM, Flash 0.135 GB: 97 times less."
    # 6.40 ms / 1.28 ms.
    assert sheet.headline.detail.startswith(
        "5.0 times faster, beyond the spread. 2 circumstances differ. (1, 16, 8192, 128)"
    )
    assert [figure.label for figure in sheet.figures] == [
        "HBM bytes",
        "time",
        "L2↔SM bytes",
        "requested bytes",
        "peak memory",
    ]
    assert (sheet.figures[0].value, sheet.figures[0].detail) == ("97× less", "13.1 GB → 135 MB, differs, measured once")
    assert (sheet.figures[0].source, sheet.figures[3].source) == ("cupti-range", "schedule")


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (row(97.0, 1.0), "97 times less"),
        (row(1.0, 9.94), "9.9 times more"),
        (row(100.0, 103.1), "3.1% more"),
        (row(100.0, 67.0), "33% less"),
        (row(3.0, 2.0), "1.5 times less"),
        (row(1e6, 1e6 + 1), "the same to 0.05%"),
    ],
)
def test_changes_in_words(found: Row, words: str) -> None:
    assert change(found) == words


def test_ratios_keep_three_digits() -> None:
    assert [ratio(value) for value in (None, 1.0, 1.034, 0.0103, 97.46, 999.6, 12345.0, 1e-5)] == [
        *("–", "1.00×", "1.03×", "0.0103×", "97.5×", "1,000×", "12,345×", "1.0e-5×"),
    ]


def test_what_differs_stands_first_and_what_a_run_lacks_last() -> None:
    sheet = shown(naive_run(), flash_run())
    assert [one.title for one in sheet.items][:2] == ["What differs", "Ratios"]
    assert sheet.items[-1].title == "Of one Run only"
    assert table(sheet, "What differs").rows == (
        ("kernel", "naive", "flash"),
        ("BLOCK_M×BLOCK_N", "–", "128×64, 8 warps, 3 stages, linear"),
    )
    same = shown(flash_run(), replace(flash_run(), id="b", created="2026-11-29T13:00:00Z"))
    assert table(same, "What differs").rows == (("nothing", "–", "–"),)
    assert "Of one Run only" not in [one.title for one in same.items]


def test_limits_come_before_everything_else() -> None:
    compared = compare(naive_run(), flash_run())
    checks = check(compared, (Limit(1.05, ("hbm_bytes",)), Limit(0.001, ("gpu_time_seconds",))))
    limits = table(compare_sheet(compared, LIGHT, checks), "Limits")
    assert [cells[2] for cells in limits.rows] == ["passed", "failed"]


def test_every_measurement_with_its_source_ratio_and_change() -> None:
    found = table(shown(naive_run(), flash_run()), "Every measurement of both")
    at = [cells[0] for cells in found.rows].index("gpu_time_seconds")
    assert found.rows[at] == ("gpu_time_seconds", "whole", "6.40 ms", "1.28 ms", "0.200×", "beyond the spread")
    assert found.sources[at][2:4] == ("cuda-event", "cuda-event")
    assert found.reasons[at][3] == "1.27 ms to 1.29 ms"


def test_pictures_hold_both_runs_on_one_axis() -> None:
    sheet = shown(sampled_naive_run(), sampled_flash_run())
    titles = [one.title for one in sheet.items if isinstance(one, Picture)]
    assert titles == [
        *("Ratios", "Four kinds of bytes", "Time", "Peak memory", "HBM bytes by launch", "HBM bandwidth over time")
    ]
    bars = [trace for trace in chart(sheet, "Time").chart.data if trace.type == "bar"]
    assert [bar.x[0] for bar in bars] == [pytest.approx(6.4), pytest.approx(1.28)]  # ms, both


def test_ratio_bars_start_at_one_and_are_coloured_by_what_is_better() -> None:
    slower = replace(
        flash_run(run_id="slower"),
        measurements=tuple(
            replace(m, value=2 * (m.value or 0), spread=None) if m.name == "gpu_time_seconds" else m
            for m in flash_run().measurements
        ),
    )
    bars = [trace for trace in chart(shown(flash_run(), slower), "Ratios").chart.data if trace.type == "bar"]
    (bar,) = bars  # nothing else changed
    assert (bar.base[0], bar.x[0], bar.marker.color) == (1, 1, "#D55E00")  # from 1 to 2, worse


def test_two_problems_are_told_by_what_does_not_grow_with_them() -> None:
    longer = flash_run(replace(PROBLEM, seq_len_q=16384, seq_len_kv=16384), run_id="longer")
    sheet = shown(flash_run(), longer)
    assert sheet.headline is not None
    # 135 MB of 134,217,728 B; the same 135 MB, as the fake has it, of twice as many.
    assert sheet.headline.sentence == (
        "Flash seq_len 8192 moved 1.01 times its compulsory bytes through HBM, Flash seq_len 16384 0.503 times."
    )
    assert "their ratios are not computed" in sheet.headline.detail
    assert [figure.label for figure in sheet.figures] == ["HBM / compulsory", "FLOP per second", "relative error"]
    # Four times the operations in the same time, as the fake has it: 549.8 GFLOP / 1.28 ms.
    assert (sheet.figures[1].value, sheet.figures[1].detail) == ("1.72 PFLOP/s", "instead of 429 TFLOP/s")
    found = table(sheet, "Every measurement of both")
    at = [cells[0] for cells in found.rows].index("hbm_read_bytes")
    assert found.rows[at][4:] == ("–", "not compared")
    assert "the problems differ" in found.reasons[at][4]


def test_without_counters_requested_bytes_are_told() -> None:
    other = cpu_run(tile=replace(TILE, BLOCK_M=32, BLOCK_N=16), run_id="other")
    sheet = shown(cpu_run(), other)
    assert sheet.headline is not None and "requests" in sheet.headline.sentence and "HBM" not in sheet.headline.sentence
    assert "HBM bytes by launch" not in [one.title for one in sheet.items]


def test_a_run_with_very_many_launches_is_cut_in_the_table_and_whole_in_the_exports() -> None:
    many = tuple(Measurement("hbm_read_bytes", 1.0, "B", "ncu", launch=f"k {n % 250}") for n in range(250))
    more = tuple(replace(m, name=name) for m in many for name in ("hbm_write_bytes", "l2_sm_bytes"))
    run = replace(flash_run(), measurements=(*flash_run().measurements, *many, *more))
    sheet = shown(run, run)
    assert len(table(sheet, "Every measurement of both").rows) == MOST_ROWS
    assert "the exports hold all" in table(sheet, "Every measurement of both").caption
    assert FORMATS["csv"](compare(run, run), ()).count("\n") > 750


def page_of(*runs: Run) -> AppTest:
    def script(runs: object) -> None:
        from app.views import compare as view

        view.render(runs)

    return AppTest.from_function(script, default_timeout=30, kwargs={"runs": runs}).run()


def words(at: AppTest) -> str:
    return " ".join(element.proto.body for element in at.get("html"))


def test_the_page_compares_what_is_chosen_and_swaps() -> None:
    earlier = replace(cpu_run(), created="2026-11-29T11:00:00Z")
    at = page_of(earlier, naive_run(), flash_run())
    assert not at.exception
    assert "Two problems" not in words(at) and "Naive moved 13.09 GB" in words(at)
    at.button(key="compare-swap").click().run()
    assert "Flash moved 0.135 GB through HBM, Naive 13.09 GB: 97 times more." in words(at)
    at.selectbox(key="compare-after").select("fake-cpu").run()
    assert "Two problems" in words(at) and not at.exception
    assert [one.label for one in at.get("download_button")] == ["HTML", "Markdown for a pull request", "CSV", "JSON"]


def test_without_a_run_the_page_says_what_to_do() -> None:
    at = page_of()
    assert not at.exception and "A comparison needs two Runs" in words(at)
    assert view.sheet((), LIGHT).missing == view.sheet((flash_run(),), LIGHT).missing == view.EMPTY


def test_one_run_is_held_against_a_saved_or_a_recorded_one(runs: Path) -> None:
    """Of the recorded ones of its problem the first in the newest file."""
    at = page_of(flash_run())
    assert not at.exception
    chosen = at.selectbox(key="compare-before").value
    assert choices([flash_run()])[chosen].workload.problem == PROBLEM and "NVIDIA H200" in words(at)
    save(naive_run())
    at = page_of(flash_run())
    assert "Naive moved 13.09 GB through HBM, Flash 0.135 GB" in words(at)
    offered = at.selectbox(key="compare-before").options
    assert offered[0].startswith("shown: flash, (1, 16, 8192, 128) bfloat16, full mask, NVIDIA H200, 2026-11-29 12:00")
    assert offered[1].startswith("saved: naive") and offered[2].startswith("recorded: ")


def test_a_file_that_has_gone_is_said(runs: Path) -> None:
    path = save(naive_run())
    offered = choices([flash_run()])
    path.unlink()
    with pytest.raises(StoreError, match=r"fake-naive\.json could not be read"):
        offered["fake-naive"].read()
    save(replace(flash_run(), id="other")).rename(path)
    with pytest.raises(NotARun, match="holds the Run fake-naive no more"):
        offered["fake-naive"].read()


def test_bytes_that_cannot_be_true_are_not_told_as_a_fact() -> None:
    fast = replace(
        flash_run(run_id="fast"),
        measurements=tuple(
            replace(m, value=1e-6, spread=None) if m.name == "gpu_time_seconds" else m for m in flash_run().measurements
        ),
    )
    sheet = shown(naive_run(), fast)
    assert sheet.headline is not None and "requests" in sheet.headline.sentence
    figure = next(one for one in sheet.figures if one.label == "HBM bytes")
    # 135 MB in 1 µs.
    assert figure.value == "–" and "above the peak of 4.81 TB/s" in figure.reason
    bars = [trace.hovertext for trace in chart(sheet, "Ratios").chart.data if trace.type == "bar"]
    assert not [text for text in bars if text.startswith("hbm_")]


@pytest.mark.parametrize(
    "pair_of_runs", [(naive_run(), flash_run()), (flash_run(), naive_run()), (flash_run(), flash_run(run_id="b"))]
)
def test_numbers_of_ratios_have_room_on_a_phone(pair_of_runs: tuple[Run, Run]) -> None:
    """A phone's axis is 190 px wide, and the longest number, such as 0.00526×, takes 65 of them."""
    figure = chart(shown(*pair_of_runs), "Ratios").chart
    low, high = figure.layout.xaxis.range
    numbers = next(trace for trace in figure.data if trace.type == "scatter")
    bars = [trace for trace in figure.data if trace.type == "bar"]
    assert len(bars) == len(numbers.x) and set(numbers.x) == {1.0}
    for bar, place in zip(bars, numbers.textposition, strict=True):
        end = math.log10(bar.base[0] + bar.x[0])
        assert low < end < high
        room = {"middle right": high, "middle left": -low}[place]
        assert (end < 0) == (place == "middle right") and room / (high - low) * 190 >= 65


def test_what_the_report_prints_is_what_the_other_pages_hold_against_each_other() -> None:
    sheet = view.sheet((naive_run(), flash_run()), LIGHT)
    assert sheet.headline == shown(naive_run(), flash_run()).headline
    assert [one.title for one in sheet.items] == ["What differs", "Ratios", "Every measurement of both"]
    # Of two problems the newest two, older first.
    assert usual_runs((cpu_run(), flash_run())) == (flash_run(), cpu_run())


class Document(HTMLParser):
    """The elements of a document with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def hostile() -> Run:
    run = flash_run(run_id="hostile")
    odd = Measurement(HOSTILE, 1.0, "1", "torch", HOSTILE, launch=HOSTILE)
    return replace(
        run,
        device=replace(run.device, name=HOSTILE),
        environment={HOSTILE: HOSTILE},
        recorded=HOSTILE,
        measurements=(*run.measurements, odd),
    )


def test_html_is_one_document_that_fetches_nothing_and_runs_nothing_of_a_run(hostile: Run) -> None:
    text = html(compare(flash_run(), hostile))
    document = Document(text)
    assert not [tag for tag, _ in document.elements if tag in ("img", "link", "iframe")]
    assert not [name for _, attributes in document.elements for name in attributes if name.startswith("on")]
    # Plotly's own and the one that draws, and one element of data for each chart.
    charts = sum(isinstance(one, Picture) for one in compare_sheet(compare(flash_run(), hostile), LIGHT).items)
    scripts = [attributes.get("type") for tag, attributes in document.elements if tag == "script"]
    assert scripts == ["application/json"] * charts + [None, None]
    assert "What differs" in document.text and "default-src 'none'" in text


def test_markdown_shows_a_run_as_text(hostile: Run) -> None:
    text = FORMATS["md"](compare(flash_run(), hostile), ())
    assert "<script" not in text and "<img" not in text and "@all" not in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    # No cell of a Run makes another one.
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in rows} == {4, 6}


def test_markdown_is_short_and_the_worst_stands_first() -> None:
    before = flash_run()
    after = replace(
        flash_run(run_id="worse"),
        measurements=tuple(
            replace(m, value=(m.value or 0) * {"hbm_read_bytes": 1.5, "l2_sm_bytes": 3.0}.get(m.name, 1.0))
            for m in before.measurements
        ),
    )
    text = FORMATS["md"](compare(before, after), ())
    visible, _, folded = text.partition("<details>")
    rows = [line.split(" | ")[0] for line in visible.splitlines() if line.startswith("| ")]
    # (0.1515 + 0.034) / 0.135 = 1.37
    assert rows[1:] == ["| l2\\_sm\\_bytes", "| hbm\\_read\\_bytes", "| hbm\\_bytes"]
    assert "compulsory\\_bytes" in folded and folded.count("\n\n</details>") == 1


def test_markdown_fits_into_a_comment_however_much_a_run_holds() -> None:
    many = tuple(Measurement(f"q{i}_bytes", 1.0 + i, "B", "ncu") for i in range(4900))
    before = replace(flash_run(), measurements=many)
    more = tuple(replace(m, value=2 * (m.value or 0)) for m in many)
    after = replace(before, id="b", measurements=more, environment={f"k{i}": "v" for i in range(999)})
    text = FORMATS["md"](compare(before, after), ())
    assert len(text) < 65_536
    assert "and 4,860 more, which the other formats hold." in text and "and 4,650 more" in text


def test_nothing_that_changed_is_said_so() -> None:
    text = FORMATS["md"](compare(flash_run(), flash_run()), ())
    assert "Nothing changed in which a Run can be better or worse." in text
    assert "Both are the same Run." in text


def test_both_themes_and_within_the_spread_is_grey() -> None:
    near = replace(
        flash_run(run_id="near"),
        measurements=tuple(
            replace(m, value=1.281e-3, spread=(1.27e-3, 1.29e-3)) if m.name == "gpu_time_seconds" else m
            for m in flash_run().measurements
        ),
    )
    compared = compare(flash_run(), near)
    found = compared.find("gpu_time_seconds")
    assert found is not None and found.verdict == WITHIN
    for theme in (LIGHT, DARK):
        ratios = next(one for one in compare_sheet(compared, theme).items if one.title == "Ratios")
        assert isinstance(ratios, Picture)
        (bar,) = [trace for trace in ratios.chart.data if trace.type == "bar"]
        assert bar.marker.color == "#829AB1"
