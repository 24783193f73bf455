"""The timeline page: one program for all pages, and a sheet for the report."""

import dataclasses
import re

import pytest
from streamlit.testing.v1 import AppTest

from app.picture import Picture
from app.program_card import chosen
from app.spread import Spread
from app.style import LIGHT
from app.subject import schedule_of
from app.timeline_headline import headline, span_decides
from app.timeline_pages import timed
from app.views import timeline as view
from kernels.problem import PERSISTENT, TileConfig
from profiler.run import Measurement, Run
from tests import fake_runs
from tests.test_spread import spread_of


def _page() -> None:
    import streamlit as st

    from app.views import timeline as view

    view.render(st.session_state.get("runs", ()))


def two_orders() -> tuple[Run, Run]:
    """Flash in linear order and, newer, in sawtooth, on a GPU that holds 132 programs at once."""
    run = fake_runs.flash_run()
    at_once = Measurement("programs_at_once", 132, "1", "model")
    run = dataclasses.replace(run, id="fake-linear", measurements=(*run.measurements, at_once))
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


def test_the_second_wave_of_a_sawtooth_goes_backwards() -> None:
    walk = schedule_of(two_orders()[1]).walk
    assert walk is not None
    assert [walk.tile_of(program, 0)[1] for program in (0, 131, 132, 263, 264)] == [0, 0, 127, 127, 0]


def test_a_persistent_grid_says_what_is_called_a_program() -> None:
    linear = two_orders()[0]
    tile = TileConfig(128, 128, 8, 2, PERSISTENT)
    work = dataclasses.replace(linear.workload, kernel="flash_ws", tile=tile)
    said = [view.sheet((run,), LIGHT).items[0] for run in (linear, dataclasses.replace(linear, workload=work))]
    assert ["is one Q tile of one that stays" in item.caption for item in said if isinstance(item, Picture)] == [0, 1]


def test_runs_stand_side_by_side_on_the_same_axes() -> None:
    runs = two_orders()
    sheet = view.sheet(runs, LIGHT)
    pictures = [item for item in sheet.items if isinstance(item, Picture)]
    assert [item.title for item in pictures] == [
        "Programs on SMs, flash sawtooth",
        "How far apart on K and V, flash sawtooth",
        "How far apart on K and V, flash linear",
        "How long ago K and V were last read",
    ]
    left, right = (item.chart.layout for item in pictures[1:3])
    assert (left.xaxis.range, left.yaxis2.range) == (right.xaxis.range, right.yaxis2.range)
    assert all(len(item.chart.to_json()) < 2_000_000 for item in pictures)
    app = page(*runs)
    app.segmented_control(key="timeline.run").set_value("flash linear").run()
    assert app.session_state["tile.kernel"] == "flash linear" and "Programs on SMs, flash linear" in shown(app)


def test_headline_and_figures_of_equal_programs() -> None:
    """132 equal programs at once are all at the same KV tile of 64 keys: 64 · 512 B for each of the 2 or 3 heads.

    The last of 8 waves has 100 programs: 32 of 132 lanes are idle for 160 of 1,280 µs. Only heads that begin in one
    wave and end in the next are read again: after all of their own 4 MiB of K and V, the rest of those of two heads of
    the first wave, and as much as was not left of two of the next: 12 MiB.
    """
    sheet = view.sheet((fake_runs.flash_run(),), LIGHT)
    assert sheet.headline is not None
    assert sheet.headline.sentence == (
        "Half of the re-reads of K and V come within 12.0 MiB with flash; L2 holds 60.0 MiB."
    )
    values = {figure.label: (figure.value, figure.source) for figure in sheet.figures}
    assert values == {
        "waves": ("8", "globaltimer"),
        "tail idle": ("3.0%", "globaltimer"),
        "imbalance": ("1.00×", "globaltimer"),
        "K and V spanned": ("96.0 KiB", "model"),
        "re-read distance": ("12.0 MiB", "model"),
        "HBM read": ("101 MB", "cupti-range"),
    }


def test_without_a_timeline_the_page_says_what_to_do() -> None:
    missing = view.sheet((fake_runs.naive_run(),), LIGHT).missing
    assert missing.startswith("Naive has no timeline, since its programs do not note when they start and end: run ")
    assert missing in shown(page(fake_runs.naive_run()))


def test_the_headline_says_which_of_both_tells_the_runs_apart() -> None:
    """Equal programs are in step in either order. Where one Run's wave is drawn apart over a head, the span decides."""
    linear, sawtooth = two_orders()
    sheet = view.sheet((linear, sawtooth), LIGHT)
    assert sheet.headline is not None
    assert re.fullmatch(
        r"Half of the re-reads of K and V come within [\d.]+ MiB with flash sawtooth, 12.0 MiB with flash linear; "
        "L2 holds 60.0 MiB.",
        sheet.headline.sentence,
    )
    small = dataclasses.replace(linear.device, l2_bytes=2**18)
    at_quarter = [timed((dataclasses.replace(linear, device=small, id="fake-small"),))[0]]
    assert headline(at_quarter[0], []).sentence.startswith("Half of the re-reads")  # nothing differs: one Run
    apart = Spread(**{**vars(spread_of(linear)), "spanned": 3 * spread_of(linear).spanned})
    assert span_decides([spread_of(linear), apart], 2**20) and not span_decides([spread_of(linear), apart], 2**21)
    assert not span_decides([spread_of(linear), spread_of(linear)], 2**18)


def test_the_chosen_program_shows_the_state_it_left() -> None:
    """Rows 7,936 to 8,191 of head 0 are recorded: of Q tiles 62 and 63; the last of 128 KV tiles is 127."""
    run = fake_runs.flash_run()
    assert run.softmax is not None
    one = timed((run,))[0]
    table = chosen(one, 62)
    state = {row[0]: row[1:] for row in table.rows[-3:]}
    expected = {"m": run.softmax.m, "l": run.softmax.l, "|acc|": run.softmax.acc_norm}
    assert {name: float(value.replace(",", "")) for name, (value, _) in state.items()} == {
        name: pytest.approx(float(part.numpy()[0, 127]), rel=1e-3) for name, part in expected.items()
    }
    assert {source for _, source in state.values()} == {"interpreter"} and "of row 7,936" in table.caption
    for program in (61, 64 + 62):  # rows before those, and another head
        rows, reasons = chosen(one, program).rows[-3:], chosen(one, program).reasons[-3:]
        assert [row[1:] for row in rows] == [("–", "")] * 3
        assert {reason[1] for reason in reasons} == {"recorded: rows 7,936 to 8,191 of batch 0, head 0"}
