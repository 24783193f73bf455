"""The tile schedule page: stepped, played, picked, two kernels beside each other."""

from dataclasses import replace

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app import tile_pages
from app.picture import Picture
from app.style import LIGHT
from app.subject import Subject
from app.tile_stage import clicked_tile
from app.views import tile_schedule
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from kernels.tile_grid import TileGrid
from profiler.codec import PackedArray
from tests import fake_runs


def test_the_timeline_beside_the_tiles_marks_the_program_and_is_small() -> None:
    """Program 500 of 1,024 on 132 SMs ran on SM 500 − 3 · 132."""
    run = fake_runs.flash_run()
    shown = tile_pages.programs_on_sms(Subject("flash", "flash", fake_runs.PROBLEM, fake_runs.TILE, run), 500, LIGHT)
    assert shown is not None and "Program 500 ran on SM 104" in shown.caption
    assert len(shown.chart.to_json()) < 250_000
    assert [bar.y[0] for bar in shown.chart.data if bar.type == "bar"] == [104]


def test_sheet_holds_every_measured_kernel() -> None:
    shown = tile_schedule.sheet((fake_runs.naive_run(), fake_runs.flash_run()), LIGHT)
    titles = [item.title for item in shown.items]
    assert titles == [
        "Score matrix, flash",
        "Neighbourhood, flash",
        "Asked for so far",
        "What sits where, flash",
        "Launches, naive",
    ]
    assert shown.headline is not None and "reads K and V 64 times" in shown.headline.sentence
    assert all(len(item.chart.to_json()) < 2_000_000 for item in shown.items if isinstance(item, Picture))
    assert tile_schedule.sheet((), LIGHT).missing


def _page() -> None:
    import streamlit as st

    from app.views import tile_schedule as view

    view.render(st.session_state.get("runs", ()))


def _at(app: AppTest) -> tuple[int, int, int, int]:
    """Program, its step, row and key."""
    state = app.session_state
    return state["program"], state["step"], state["row"], state["key"]


def _opened(kernel: str = "flash", **state: object) -> AppTest:
    app = AppTest.from_function(_page, default_timeout=30)
    for name, value in {"tile.kernel": kernel, **state}.items():
        app.session_state[name] = value
    app.run()
    assert not app.exception
    return app


def test_page_needs_no_run_and_can_be_stepped() -> None:
    app = AppTest.from_function(_page, default_timeout=30).run()
    assert not app.exception
    assert app.selectbox(key="tile.choice").value == "flash"
    # The page opens at program 2, tile 2 of the article's 4 × 4: step 11 of 16.
    assert app.slider(key="tile.player.slider").value == 11
    app.button(key="tile.player.next").click().run()
    assert _at(app) == (2, 3, 8, 12)
    app.button(key="tile.player.next").click().run()
    assert _at(app) == (3, 0, 12, 0)
    app.button(key="tile.player.back").click().run()
    assert _at(app) == (2, 3, 12 - 4, 12)


@pytest.mark.parametrize(
    ("kernel", "step"), [("row_streaming", 9 * 8 + 1), ("query_tiled", 2), ("flash_kv_outer", 4 + 2), ("flash", 8 + 1)]
)
def test_another_kernel_is_shown_at_the_same_row_and_key(kernel: str, step: int) -> None:
    """Row 9 and key 6 of the article lie in Q tile 2 and KV tile 1; row_streaming comes to them in its row 9."""
    app = _opened("split_kv", row=9, key=6)
    app.selectbox(key="tile.choice").set_value(kernel).run()
    assert not app.exception
    assert app.slider(key="tile.player.slider").value == step + 1


def test_a_place_that_a_walk_comes_to_twice_is_kept_by_its_step() -> None:
    """row_streaming reads K of key 0 at step 1 of row 0, and V of it at step 5."""
    app = _opened("row_streaming", row=0, key=0, batch=0, head=0)
    app.slider(key="tile.player.slider").set_value(5).run()
    assert app.slider(key="tile.player.slider").value == 5 and _at(app)[1] == 4


def test_page_takes_the_forms_problem_and_clamps_what_was_chosen_before() -> None:
    problem = AttentionProblem(seq_len_q=64, seq_len_kv=64, head_dim=16, causal=True)
    app = _opened(problem=problem, tile=TileConfig(16, 16), row=5000, key=9999)
    # 1 + 2 + 3 + 4 steps, of which the last.
    assert (app.slider(key="tile.player.slider").value, app.slider(key="tile.player.slider").max) == (10, 10)
    app.number_input(key="tile.Q tile").set_value(1).run()
    assert _at(app) == (1, 1, 16, 16)


def test_page_plays_and_stops() -> None:
    app = AppTest.from_function(_page, default_timeout=30).run()
    app.button(key="tile.player.play").click().run()
    assert app.button(key="tile.player.play").label == "Stop"
    app.button(key="tile.player.play").click().run()
    assert app.button(key="tile.player.play").label == "Play"


def test_page_shows_naive_and_runs() -> None:
    app = _opened("naive", runs=(fake_runs.naive_run(),))
    assert (app.slider[0].min, app.slider[0].value, app.slider[0].max) == (1, 4, 4)
    app.button(key="tile.player.back").click().run()
    assert (app.session_state["tile.launch"], app.slider[0].value) == (2, 3)


@pytest.mark.parametrize(("label", "last"), [("Q tile", 3), ("KV tile", 3)])
def test_a_tile_out_of_range_is_clamped_and_said(label: str, last: int) -> None:
    app = AppTest.from_function(_page, default_timeout=30).run()
    app.number_input(key=f"tile.{label}").set_value(500).run()
    assert app.number_input(key=f"tile.{label}").value == last
    assert app.caption[0].value == f"{label} 500 does not exist here, 0 to {last} do: this is {label} {last}."


def test_a_masked_tile_is_said_and_the_nearest_one_shown() -> None:
    problem = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, causal=True)
    app = _opened(problem=problem, tile=TileConfig(4, 4), row=4, key=0)
    app.number_input(key="tile.KV tile").set_value(3).run()
    assert app.number_input(key="tile.KV tile").value == 1
    assert app.caption[0].value == "KV tile 3 is masked for Q tile 1: this is KV tile 1, the nearest visited."


def test_play_begins_at_the_first_step_where_the_head_has_ended() -> None:
    app = _opened(row=15, key=15)
    app.button(key="tile.player.play").click().run()
    assert _at(app)[:2] == (0, 0)


def test_two_kernels_stand_beside_each_other_on_one_slider() -> None:
    app = _opened()
    app.selectbox(key="tile.compare").set_value("flash_kv_outer").run()
    assert not app.exception
    assert (app.slider(key="tile.player.slider").value, app.slider(key="tile.player.slider").max) == (11, 16)
    words = " ".join(html.proto.body for html in app.get("html"))
    assert "Score matrix, flash<" in words.replace(" <", "<") and "Score matrix, flash_kv_outer" in words
    assert "For one head flash_kv_outer asks for" in words and "Both have the same number of steps." in words


def test_the_longer_of_two_kernels_leads_and_the_chosen_one_keeps_its_step() -> None:
    """Step 11 of flash's 16 is 11/16 of row_streaming's 128: step 88."""
    app = _opened()
    app.selectbox(key="tile.compare").set_value("row_streaming").run()
    slider = app.slider(key="tile.player.slider")
    assert (slider.value, slider.max, slider.label) == (88, 128, "Step of this head, row_streaming")
    app.button(key="tile.player.next").click().run()
    words = " ".join(html.proto.body for html in app.get("html"))
    assert "step 12 of 16 (flash) and step 89 of 128 (row_streaming)" in words
    app.selectbox(key="tile.compare").set_value("nothing").run()
    assert app.slider(key="tile.player.slider").value == 12


def test_launches_stand_beside_tiles() -> None:
    app = _opened()
    app.selectbox(key="tile.compare").set_value("naive").run()
    words = " ".join(html.proto.body for html in app.get("html"))
    assert "Launches, naive" in words and "step 11 of 16 (flash) and step 3 of 4 (naive)" in words


def test_two_kernels_without_tiles_stand_beside_each_other() -> None:
    app = _opened("naive")
    app.selectbox(key="tile.compare").set_value("cudnn").run()
    assert not app.exception
    assert (app.slider[0].label, app.slider[0].value, app.slider[0].max) == ("Launch, naive", 4, 4)


def test_a_kernel_that_refuses_the_problem_is_left_out_unless_its_rows_do_not_fit() -> None:
    """Two million keys are beyond what row_streaming and query_tiled can hold; the latter's page says so."""
    problem = AttentionProblem(seq_len_q=64, seq_len_kv=2**21, head_dim=64)
    app = _opened(problem=problem, tile=TileConfig(64, 64))
    options = app.selectbox(key="tile.choice").options
    assert "row_streaming" not in options and {"query_tiled", "flash"} <= set(options)


def test_exchanging_both_kernels_keeps_both() -> None:
    app = _opened()
    app.selectbox(key="tile.compare").set_value("naive").run()
    app.selectbox(key="tile.choice").set_value("naive").run()
    assert (app.selectbox(key="tile.choice").value, app.selectbox(key="tile.compare").value) == ("naive", "flash")


def test_a_report_holds_four_kernels_at_most_and_the_newest_run_of_each() -> None:
    names = ("naive", "flash", "row_streaming", "query_tiled", "split_kv", "flash_kv_outer")
    runs = [fake_runs.cpu_run(run_id=f"fake-{name}") for name in names]
    runs = [
        replace(run, created=f"2026-11-29T12:00:{10 + at}Z", softmax=None, workload=replace(
            run.workload, kernel=name, trace=None, tile=_cut(name, run.workload.tile or TileConfig()),
        ))
        for at, (name, run) in enumerate(zip(names, runs, strict=True))
    ]  # fmt: skip
    again = replace(runs[1], id="fake-older", created="2026-11-29T12:00:00Z")
    titles = [item.title for item in tile_schedule.sheet((*runs, again), LIGHT).items]
    assert [title for title in titles if title.startswith("Score matrix")] == [
        f"Score matrix, {name}" for name in ("flash 12:00:11", "flash_kv_outer", "split_kv", "query_tiled")
    ]


def _words(app: AppTest) -> str:
    return " ".join(html.proto.body for html in app.get("html"))


def test_the_page_says_how_far_apart_running_programs_are() -> None:
    """All programs of the fake timeline take equally long: those of a wave stand at one KV tile of each head."""
    app = _opened(runs=(fake_runs.flash_run(),), row=0, key=0, batch=0, head=0)
    words = _words(app)
    assert "K, V between" in words and "132 programs" in words and "when this one was here" in words
    assert "Ticks on K and V" in words


def test_the_page_says_why_it_does_not_know_which_programs_run_together() -> None:
    words = _words(_opened(runs=(fake_runs.cpu_run(),)))
    assert "it ran through the interpreter, one program after another" in words and "Ticks on K and V" not in words


def test_scores_lie_below_the_launches_of_naive() -> None:
    row, key = np.mgrid[:16, :16]
    flash = fake_runs.cpu_run(tile_schedule.ARTICLE[0], TileConfig(4, 4))
    assert flash.softmax is not None
    scores = PackedArray.pack((row + key / 100).astype(np.float32))
    flash = replace(flash, softmax=replace(flash.softmax, scores=scores))
    naive = replace(
        flash, id="fake-naive", softmax=None, workload=replace(flash.workload, kernel="naive", tile=None, trace=None)
    )
    app = _opened("naive", runs=(naive, flash))
    assert "Score matrix, naive" in _words(app) and len(app.get("plotly_chart")) == 2
    app.selectbox(key="tile.compare").set_value("flash").run()
    assert not app.exception and len(app.get("plotly_chart")) == 3
    titles = [item.title for item in tile_schedule.sheet((naive, flash), LIGHT).items]
    assert titles[-2:] == ["Launches, naive", "Score matrix, naive"]
    assert "Score matrix, naive" not in _words(_opened("naive", runs=(naive,)))


def _cut(kernel: str, tile: TileConfig) -> TileConfig | None:
    found = all_kernels()[kernel]
    return found.cut(fake_runs.SMALL, tile) if found.is_tiled else None


@pytest.mark.parametrize(
    ("point", "tile"),
    [
        ({"customdata": {"0": 3, "1": 1}, "x": 0.0, "y": 0.0}, (3, 1)),
        ({"x": 9.5, "y": 6.5}, (1, 2)),  # a printed score: row 6, key 9 of 4 × 4 tiles
    ],
)
def test_a_click_finds_its_tile(point: dict[str, object], tile: tuple[int, int]) -> None:
    assert clicked_tile(point, TileGrid(AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16), 4, 4)) == tile
