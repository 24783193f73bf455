"""The timeline page: one program for all pages, and a sheet for the report."""

import dataclasses

import pytest
from streamlit.testing.v1 import AppTest

from app.picture import Picture
from app.style import LIGHT
from app.views import timeline as view
from profiler.run import Run
from tests import fake_runs


def _page() -> None:
    import streamlit as st

    from app.views import timeline as view

    view.render(st.session_state.get("runs", ()))


def two_orders() -> tuple[Run, Run]:
    run = fake_runs.flash_run()
    tile = run.workload.tile
    assert tile is not None
    other = dataclasses.replace(run.workload, tile=dataclasses.replace(tile, order="sawtooth"))
    return run, dataclasses.replace(run, id="fake-saw", created="2026-11-29T12:00:09Z", workload=other)


def page(*runs: Run) -> AppTest:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = runs
    app.session_state["program"] = 69  # of head 1, Q tile 5
    return app.run()


def shown(app: AppTest) -> str:
    return " ".join(part.proto.body for part in app.get("html"))


def test_page_shows_the_program_that_was_chosen_elsewhere() -> None:
    """Program 69 is the first on SM 69: from 0 to 160 µs less 320 ns."""
    app = page(fake_runs.flash_run())
    assert not app.exception
    html = shown(app)
    assert "Program 69" in html and "<td>0, 1</td>" in html and "0 to 127" in html and "160 µs" in html
    assert app.number_input(key="timeline.program").value == 69


def test_a_program_chosen_here_is_every_pages() -> None:
    app = page(fake_runs.flash_run())
    app.number_input(key="timeline.program").set_value(130).run()
    state = app.session_state
    # Q tile 2 of 128 rows of head 2.
    assert (state["program"], state["row"], state["tile.kernel"]) == (130, 256, "flash")
    app.number_input(key="timeline.program").set_value(5000).run()
    assert state["program"] == 1023
    assert "Program 5,000 does not exist here" in app.caption[0].value


@pytest.mark.parametrize("shade", ["wave", "head", "time"])
def test_lanes_can_be_coloured(shade: str) -> None:
    app = page(fake_runs.flash_run())
    app.segmented_control(key=view.SHADE).set_value(shade).run()
    assert not app.exception
    words = {"wave": "from wave to wave", "head": "16 heads take turns", "time": "from 160 µs to 160 µs"}
    assert words[shade] in shown(app)


def test_runs_stand_side_by_side_on_the_same_axes() -> None:
    runs = two_orders()
    sheet = view.sheet(runs, LIGHT)
    pictures = [item for item in sheet.items if isinstance(item, Picture)]
    assert [item.title for item in pictures] == [
        "Programs on SMs, flash sawtooth",
        "How far apart on K and V, flash sawtooth",
        "How far apart on K and V, flash linear",
    ]
    left, right = (item.chart.layout for item in pictures[1:])
    assert (left.xaxis.range, left.yaxis2.range) == (right.xaxis.range, right.yaxis2.range)
    assert all(len(item.chart.to_json()) < 2_000_000 for item in pictures)
    app = page(*runs)
    app.segmented_control(key="timeline.run").set_value("flash linear").run()
    assert app.session_state["tile.kernel"] == "flash linear" and "Programs on SMs, flash linear" in shown(app)


def test_headline_and_figures_of_equal_programs() -> None:
    """132 equal programs at once are all at the same KV tile of 64 keys: 64 · 512 B for each of the 2 or 3 heads.

    The last of 8 waves has 100 programs: 32 of 132 lanes are idle for 160 of 1,280 µs.
    """
    sheet = view.sheet((fake_runs.flash_run(),), LIGHT)
    assert sheet.headline is not None
    assert sheet.headline.sentence == (
        "In the median moment the running programs spanned 96.0 KiB of K and V and 96.0 KiB at most; L2 holds 60.0 MiB."
    )
    values = {figure.label: (figure.value, figure.source) for figure in sheet.figures}
    assert values == {
        "waves": ("8", "globaltimer"),
        "tail idle": ("3.0%", "globaltimer"),
        "imbalance": ("1.00×", "globaltimer"),
        "K and V spanned": ("96.0 KiB", "model"),
        "HBM read": ("101 MB", "cupti-range"),
    }


def test_without_a_timeline_the_page_says_what_to_do() -> None:
    assert view.sheet((fake_runs.naive_run(),), LIGHT).missing == view.MISSING
    assert view.MISSING.split(":")[0] in shown(page(fake_runs.naive_run()))
