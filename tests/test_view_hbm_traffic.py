"""The HBM traffic page: formulas with numbers filled in, sources side by side, and what may not be drawn as fact."""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace

import plotly.graph_objects as go
import pytest
from streamlit.testing.v1 import AppTest

from app import traffic_pictures
from app.flow_chart import Band, Flow, flows
from app.peak_check import above_peak, possible_hbm
from app.picture import Picture, Table
from app.requested_formula import formula, passes
from app.selection import compare
from app.stack_chart import Part, Stack, stacks
from app.style import DARK, LIGHT
from app.traffic_tables import measurements, several_sources
from app.views import hbm_traffic
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from profiler.run import Measurement, Run
from tests import fake_runs


def plain(html: str) -> str:
    """The formula without its spots of colour."""
    while "<span" in html:
        before, _, rest = html.partition("<span")
        html = before + rest.partition("</span> ")[2]
    return html


def chart_of(runs: tuple[Run, ...], title: str) -> go.Figure:
    items = hbm_traffic.sheet(runs, LIGHT).items
    return next(item.chart for item in items if isinstance(item, Picture) and item.title == title)


def test_formula_of_flash_with_the_numbers_filled_in() -> None:
    """Q, O 33.6 MB and LSE 0.5 MB once; K and V 33.6 MB each for every one of 8192 / 128 Q tiles."""
    schedule = all_kernels()["flash"].schedule(fake_runs.PROBLEM, fake_runs.TILE)
    symbols, numbers = formula(schedule)
    assert plain(symbols) == "Q + O + LSE + 64 (K + V)"
    assert numbers == "= 0.0676 + 64 · 0.0671 = <b>4.36 GB</b>"


def test_formula_of_naive_counts_six_passes_over_the_score_matrix() -> None:
    schedule = all_kernels()["naive"].schedule(fake_runs.PROBLEM, TileConfig())
    symbols, numbers = formula(schedule)
    assert plain(symbols) == "Q + K + V + O + 2 P + 4 S"
    assert numbers == "= 0.134 + 2 · 2.15 + 4 · 2.15 = <b>13.0 GB</b>"


def test_gqa_counts_k_with_its_own_heads() -> None:
    """32 query heads on 8 K/V heads, 4 Q tiles: each K byte is asked for 4 tiles × 4 heads = 16 times."""
    problem = AttentionProblem(1, 32, 8, 512, 512, 64)
    parts = {part.tensor: part for part in passes(all_kernels()["flash"].schedule(problem, TileConfig(128, 64)))}
    assert (parts["k"].size, parts["k"].times) == (8 * 512 * 64 * 2, 16.0)
    assert parts["k"].size_formula == "1 · 8 · 512 · 64 · 2 B"


def test_bytes_above_the_peak_are_flagged_and_not_drawn() -> None:
    """13.09 GB in 1 ms would be 13.1 TB/s on a memory of 4.81 TB/s."""
    run = fake_runs.naive_run()
    others = [m for m in run.measurements if m.name != "gpu_time_seconds"]
    fast = Measurement("gpu_time_seconds", 1e-3, "s", "cuda-event")
    impossible = replace(run, id="impossible", measurements=(*others, fast))
    assert above_peak(run, 13.09e9) == ""
    assert "13.1 TB/s, above the peak of 4.81 TB/s" in above_peak(impossible, 13.09e9)
    assert possible_hbm(impossible).value is None
    shown = hbm_traffic.sheet((impossible,), LIGHT)
    assert shown.headline is not None and "was not measured" in shown.headline.sentence
    assert [figure.value for figure in shown.figures if figure.label.startswith("HBM")] == ["–"]
    rows = measurements(compare([impossible])).rows
    assert [row[3] for row in rows if row[1] == "HBM, both"] == ["13.0 GB ⚠"]


def test_without_a_time_nothing_can_be_said_about_the_peak() -> None:
    run = replace(fake_runs.flash_run(), measurements=(Measurement("hbm_bytes", 1e15, "B", "nvml-gpm"),))
    assert above_peak(run, 1e15) == ""


def test_sources_stand_side_by_side_with_their_difference() -> None:
    """Counter 6.61 + 6.48 = 13.09 GB against GPM's 13.00: −0.7%; 0.135 GB against 0.1345: −0.4%."""
    found = several_sources(compare([fake_runs.naive_run(), fake_runs.flash_run()]))
    assert found is not None
    assert [(row[0], row[2], row[3], row[4], row[5]) for row in found.rows] == [
        ("naive", "13.0 GB", "nvml-gpm", "13.1 GB (counter)", "−0.7%"),
        ("flash", "134 MB", "nvml-gpm", "135 MB (counter)", "−0.4%"),
    ]
    cpu = several_sources(compare([fake_runs.cpu_run()]))
    assert cpu is not None and cpu.rows[0][-1] == "equal", "the interpreter saw what the schedule says"


def test_headline_puts_both_runs_against_the_compulsory_bytes() -> None:
    shown = hbm_traffic.sheet((fake_runs.flash_run(), fake_runs.naive_run()), LIGHT)
    assert shown.headline is not None
    expected = "134 MB is compulsory: naive moved 13.1 GB (98×) and flash moved 135 MB (1.0×) through HBM."
    assert shown.headline.sentence == expected


def test_a_cpu_run_has_dashes_with_reasons_and_no_hbm_bar() -> None:
    shown = hbm_traffic.sheet((fake_runs.cpu_run(),), DARK)
    missing = [figure for figure in shown.figures if figure.value == "–"]
    assert [figure.label for figure in missing] == ["L2↔SM, flash", "HBM, flash"]
    assert all(figure.reason == fake_runs.NO_COUNTERS for figure in missing)
    launches = chart_of((fake_runs.cpu_run(),), "HBM bytes by launch")
    assert not launches.data
    assert [(note.text, note.hovertext) for note in launches.layout.annotations] == [
        ("– not known", fake_runs.NO_COUNTERS)
    ]


def test_every_launch_of_naive_has_its_bar() -> None:
    chart = chart_of((fake_runs.naive_run(),), "HBM bytes by launch")
    assert [name.strip() for name in chart.layout.yaxis.ticktext] == ["naive", "QKᵀ", "scale", "softmax", "PV"]


def launches_run(*launches: Measurement) -> Run:
    """Naive with these measurements of launches alone."""
    run = fake_runs.naive_run()
    return replace(run, id="many", measurements=(*(m for m in run.measurements if m.launch is None), *launches))


def moved(launch: str, read: float, write: float, source: str = "cupti-range") -> tuple[Measurement, ...]:
    """A launch's two halves, in MB."""
    halves = (("hbm_read_bytes", read), ("hbm_write_bytes", write))
    return tuple(Measurement(name, size * 1e6, "B", source, launch=launch) for name, size in halves)


def rows_of(chart: go.Figure) -> list[str]:
    return [name.strip() for name in chart.layout.yaxis.ticktext]


def test_of_many_launches_the_largest_have_a_row_and_the_others_are_summed() -> None:
    """Launch i of 30 reads i and writes 2 i MB; 7 to 30 are drawn, 1 to 6 together move 21 + 42 = 63 MB."""
    run = launches_run(*(part for i in range(1, 31) for part in moved(f"k{i}", i, 2 * i)))
    chart = chart_of((run,), "HBM bytes by launch")
    assert rows_of(chart) == ["naive", *(f"k{i}" for i in range(7, 31)), "6 more launches"]
    read, write = chart.data
    # GB, as the whole Run's bar.
    assert (read.x[-1], write.x[-1]) == (pytest.approx(0.021), pytest.approx(0.042))
    assert chart.layout.annotations[-1].text == "<b>63.0 MB</b>"
    (picture,) = [item for item in hbm_traffic.sheet((run,), LIGHT).items if item.title == "HBM bytes by launch"]
    assert picture.caption.endswith("The 24 launches with the most bytes have a row each, the others share one.")


def test_a_sum_with_an_unknown_launch_is_not_known() -> None:
    """27 launches, one without its writes: it is among the 3 that share a row."""
    lost = Measurement("hbm_write_bytes", None, "B", "cupti-range", "the range was cut")
    known = [part for i in range(1, 27) for part in moved(f"k{i}", i, 2 * i)]
    run = launches_run(moved("k27", 99, 99)[0], replace(lost, launch="k27"), *known)
    chart = chart_of((run,), "HBM bytes by launch")
    assert rows_of(chart)[-1] == "3 more launches"
    note = chart.layout.annotations[-1]
    assert (note.text, note.hovertext) == ("– not known", "1 of them not known: the range was cut")


def test_a_launch_without_its_halves_makes_the_sum_one_grey_part() -> None:
    """1 B read and 2 written, and 3 B that nobody split: 6 B."""
    split = Stack("a", (Part("read", 1.0, "#1"), Part("write", 2.0, "#2")))
    row = traffic_pictures._together([split, Stack("b", (Part("both", 3.0, "#3"),), mark=4)])
    assert [(part.name, part.value) for part in row.parts] == [("read and written", 6.0)]
    assert row.mark is None, "one of the two has no mark"


def test_a_launch_that_two_sources_counted_has_one_row() -> None:
    both = [part for source in ("cupti-range", "ncu") for name in "ab" for part in moved(name, 1, 1, source)]
    assert rows_of(chart_of((launches_run(*both),), "HBM bytes by launch")) == ["naive", "a", "b"]


def test_250_launches_are_drawn_at_once() -> None:
    """One plotly call for each bar and label took 16 s."""
    found = compare([launches_run(*(part for i in range(250) for part in moved(f"k{i}", i + 1, i + 1)))])
    begun = time.process_time()
    picture = traffic_pictures.by_launch(found, LIGHT)
    assert time.process_time() - begun < 1.0
    assert len(rows_of(picture.chart)) == 26 and rows_of(picture.chart)[-1] == "226 more launches"
    many = [Stack(str(i), (Part("read", 1.0, "#000000"),), mark=2.0, lines=("x",)) for i in range(2_000)]
    begun = time.process_time()
    assert len(stacks(many, "bytes", LIGHT).data) == 1
    assert time.process_time() - begun < 3.0


def test_the_parts_of_each_row_lie_on_each_other_in_their_order() -> None:
    """Rows of two, one and no parts: the first trace holds the first parts, the second the second ones."""
    rows = [Stack("a", (Part("read", 1.0, "#000001"), Part("write", 2.0, "#000002")), lines=("below",))]
    rows += [Stack("b", ()), Stack("c", (Part("both", 4.0, "#000003"),))]
    first, second = stacks(rows, "bytes", LIGHT).data
    # A row is 22 high and 12 apart, a line of words 17: the middles are at 17, 68 and 102.
    assert (list(first.x), list(first.y), list(first.marker.color)) == ([1, 4], [17, 102], ["#000001", "#000003"])
    assert (list(second.x), list(second.y), list(second.marker.color)) == ([2], [17], ["#000002"])


def test_a_long_name_leaves_room_for_the_bars() -> None:
    chart = stacks([Stack("k" * 500, (Part("read", 1.0, "#000000"),))], "bytes", LIGHT)
    assert chart.layout.yaxis.ticktext == ("k" * 47 + "…",)
    assert chart.data[0].hovertext == ("k" * 500 + ": read 1 B",)


def test_only_runs_of_one_problem_are_compared_and_the_page_says_so() -> None:
    other = fake_runs.cpu_run()
    shown = hbm_traffic.sheet((fake_runs.naive_run(), other), LIGHT)
    assert shown.headline is not None and "not compared" in shown.headline.detail
    table = shown.items[-1]
    assert isinstance(table, Table) and {row[0] for row in table.rows} == {"flash"}


def test_measured_and_derived_bars_look_different() -> None:
    rows = [Stack("a", (Part("read", 1.0, "#000000"),)), Stack("b", (Part("read", 1.0, "#000000"),), is_measured=False)]
    solid, hatched = stacks(rows, "bytes", LIGHT).data
    assert solid.marker.pattern.shape is None and hatched.marker.pattern.shape == "/"


def test_a_number_stands_clear_of_the_tick_beside_it() -> None:
    """A tick just after a bar's end would cross its number; one far away does not."""
    near, far = (Stack(name, (Part("read", 50.0, "#000000"),), mark=mark) for name, mark in (("a", 60.0), ("b", 100.0)))
    assert [note.x for note in stacks([near, far], "bytes", LIGHT).layout.annotations] == [60.0, 50.0]


def test_names_from_a_run_are_escaped() -> None:
    name = "<a href='javascript:alert(1)'>x</a>"
    band = (Band("both", None, "", "<b>why</b>"),)
    stack = Stack(name, (), reason="<b>why</b>")
    for figure in (flows([Flow(name, band, band)], LIGHT), stacks([stack], "bytes", LIGHT)):
        # Plotly's own JSON spells every "<" as an escape, so the figure itself is searched.
        assert "<a" not in str(figure.to_dict()) and "<b>why" not in str(figure.to_dict())


def test_arrows_are_as_thick_as_their_bytes() -> None:
    """Twice the bytes, twice the thickness; what is too thin for a line is still drawn."""
    bands = (Band("read", 2e9, "ncu"), Band("write", 1e9, "ncu")), (Band("read", 1.0, "ncu"),)
    read, write, thin = (shape.path for shape in flows([Flow("run", *bands)], LIGHT).layout.shapes if shape.path)
    assert _thickness(read, min) == pytest.approx(2 * _thickness(write, max), abs=1e-3)
    assert _thickness(thin, min) > 0


def _thickness(path: str, tail: Callable[[Iterable[float]], float]) -> float:
    """Height of an arrow at its tail, which is its smallest or its largest x."""
    points = [tuple(map(float, point.split(","))) for point in path[2:-2].split(" L ")]
    end = tail(x for x, _ in points)
    heights = [y for x, y in points if x == end]
    return max(heights) - min(heights)


def test_bandwidth_over_time_stands_above_its_sums_and_the_launches() -> None:
    sampled = hbm_traffic.sheet((fake_runs.sampled_naive_run(), fake_runs.sampled_flash_run()), LIGHT)
    titles = [item.title for item in sampled.items]
    assert titles[2:5] == ["HBM bandwidth over time", "Bytes under the curve", "HBM bytes by launch"]


def test_without_samples_the_page_says_so_below_its_pictures() -> None:
    items = hbm_traffic.sheet((fake_runs.naive_run(),), LIGHT).items
    assert [item.title for item in items[2:5]] == [
        "HBM bytes by launch",
        "Requested bytes by tensor",
        "HBM bandwidth over time",
    ]
    assert "choose cupti-sampling" in items[4].caption


def _page() -> None:
    import streamlit as st

    from app.views import hbm_traffic as view

    view.render(st.session_state.runs)


def with_gaps(run: Run) -> Run:
    """Without every tenth of the first 500 samples."""
    kept = [i for i in range(len(run.series[0].seconds)) if i >= 500 or i % 10]

    def thinned(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(values[i] for i in kept)

    series = (replace(one, seconds=thinned(one.seconds), values=thinned(one.values)) for one in run.series)
    return replace(run, id="with-gaps", series=tuple(series))


def test_page_draws_any_subset_of_runs() -> None:
    sampled = (fake_runs.sampled_naive_run(), fake_runs.flash_run())
    plain = (fake_runs.naive_run(), fake_runs.flash_run())
    odd = (launches_run(*(part for i in range(250) for part in moved(f"k{i}", i, i))), with_gaps(sampled[0]))
    for runs in ((), (fake_runs.naive_run(),), (fake_runs.cpu_run(),), plain, sampled, odd):
        app = AppTest.from_function(_page, default_timeout=30)
        app.session_state["runs"] = runs
        app.run()
        assert not app.exception
