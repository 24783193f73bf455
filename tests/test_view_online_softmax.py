"""The online softmax page: the article's example worked out by hand, gaps, damaged traces, and the page itself."""

from dataclasses import replace
from math import log

import numpy as np
import pytest
from numpy.typing import NDArray
from streamlit.testing.v1 import AppTest

from app import run_again, session, softmax_asked, softmax_differences, softmax_pages
from app.picture import Picture, Table
from app.softmax_asked import Asked
from app.softmax_chart import over_rows, row_panels
from app.softmax_recording import Recording, recording
from app.softmax_state import is_whole, pooled
from app.softmax_traced import traced
from app.style import DARK, LIGHT
from app.views import online_softmax
from kernels.problem import AttentionProblem, TileConfig
from kernels.row_walk import RowWalk
from kernels.tile_grid import TileGrid
from profiler.codec import PackedArray
from profiler.run import Run, SoftmaxTrace
from profiler.workload import TraceRequest, Workload
from tests import fake_runs
from tests.softmax_traces import packed, recorded, walk_of

NAN, INF = np.nan, np.inf


def trace_of(m: list[list[float]], l: list[list[float]], alpha: list[list[float]]) -> SoftmaxTrace:  # noqa: E741
    """A trace whose exact values equal the kernel's, rows from 4 on, tiles of two keys."""
    m_, l_, alpha_ = (PackedArray.pack(np.array(part, dtype=np.float32)) for part in (m, l, alpha))
    acc = PackedArray.pack(np.ones((1, 2, 3), dtype=np.float32))
    return SoftmaxTrace(
        0, 0, 4, 4 + len(m), 2, m_, l_, alpha_, l_, m_, l_, l_, acc, acc_tile=2, acc_start=0, acc_stride=1
    )


def forward(trace: SoftmaxTrace) -> Recording:
    """The trace of programs of one Q tile each that meet the tiles in rising order."""
    keys = 2 * trace.m.shape[1]
    grid = TileGrid(AttentionProblem(1, 1, 1, trace.row_stop, keys, 3, "float32"), 2, 2)
    return Recording(trace, RowWalk.whole_rows(grid, {}))


def articles_row() -> SoftmaxTrace:
    """S = [0, 0, ln 2, ln 2] in tiles of two: m goes from 0 to ln 2, l from 2 to 3, and α is exp(0 − ln 2) = 1/2."""
    return trace_of([[0, log(2)]], [[2, 3]], [[0, 0.5]])


def test_the_articles_row() -> None:
    state = forward(articles_row()).row(4)
    assert state.moves.tolist() == [1]
    np.testing.assert_array_equal(state.rescale, [NAN, 0.5])
    found = state.difference("l")
    assert found is not None and (found.absolute, found.relative) == (0, 0)


def test_differences_are_absolute_and_relative() -> None:
    exact = PackedArray.pack(np.array([[2, 4]], dtype=np.float32))
    found = forward(replace(articles_row(), exact_l=exact)).row(4).difference("l")
    assert found is not None and (found.absolute, found.relative) == (1, 0.25)


def test_skipped_tiles_are_gaps_and_a_first_finite_maximum_is_not_a_move() -> None:
    """A window: tile 0 skipped; in tile 1 the row sees nothing (m = −∞); then 1, 1, 3."""
    state = forward(trace_of([[NAN, -INF, 1, 1, 3]], [[NAN, 0, 2, 4, 5]], [[NAN, 0, 0, 1, 0.1]])).row(4)
    assert state.visited.tolist() == [1, 2, 3, 4]
    assert (state.moves.tolist(), state.rescalable) == ([4], 2)
    np.testing.assert_allclose(state.rescale, [NAN, NAN, NAN, 1, 0.1])
    points = next(trace for trace in row_panels(state, None, LIGHT).data if trace.mode == "markers")
    assert points.x[:2].tolist() == [1, 2] and np.isnan(points.y[0]) and points.y[1] == 1


def test_a_row_that_sees_nothing_says_so() -> None:
    found = forward(trace_of([[NAN, NAN]], [[NAN, NAN]], [[NAN, NAN]]))
    state, run = found.row(4), fake_runs.cpu_run()
    assert state.difference("l") is None
    assert "hides every key" in softmax_pages.headline(run, found, state).sentence
    assert all(figure.value in ("–", "0 of 0") for figure in softmax_pages.figures(run, found, state))
    assert row_panels(state, 1, DARK).data


def test_pooling_keeps_the_extremes_and_the_gaps() -> None:
    values = np.array([[1, 2, NAN, NAN, 5], [3, 0, NAN, NAN, 4], [7, 7, 1, NAN, NAN]])
    smallest, height, width = pooled(values, 2, 3, largest=False)
    assert (height, width) == (2, 2)
    np.testing.assert_array_equal(smallest, [[0, NAN, 4], [7, 1, NAN]])
    largest, _, _ = pooled(values, 2, 3, largest=True)
    np.testing.assert_array_equal(largest, [[3, NAN, 5], [7, 1, NAN]])


@pytest.mark.parametrize("name", ["alpha", "m"])
def test_large_maps_stay_small(name: str) -> None:
    values: NDArray[np.float64] = np.random.default_rng(0).random((3000, 4000))
    figure = over_rows(values, name, 100, (150, 7), LIGHT)
    assert figure.data[0].z.shape == (250, 500)
    assert len(figure.to_json()) < 2_000_000


def test_headline_states_the_difference_and_the_moves() -> None:
    run, about = traced_run(fake_runs.flash_run())
    state = about.row(8191)
    found, moves = state.difference("l"), len(state.moves)
    assert found is not None and 0 < found.relative < 5e-6
    words = softmax_pages.headline(run, about, state)
    assert words.sentence.startswith("Row 8,191: the running kernel's l differs from the exact prefix by at most ")
    assert words.sentence.endswith(f"the maximum moved {moves} times.")
    recorded = "Rows 7,936 to 8,191 of batch 0, head 0 (1 of 16 kept) were recorded after every KV tile of 64 keys."
    assert words.detail.startswith(recorded)


def traced_run(run: Run) -> tuple[Run, Recording]:
    found = recording(run)
    assert found is not None
    return run, found


def test_an_exact_row_is_called_so() -> None:
    words = softmax_pages.headline(fake_runs.cpu_run(), forward(articles_row()), forward(articles_row()).row(4))
    assert (
        words.sentence == "Row 4: the running kernel's l equals the exact prefix at every tile; the maximum moved once."
    )


def test_the_accumulator_is_shown_where_it_was_recorded() -> None:
    _, found = traced_run(fake_runs.cpu_run())
    # The traced Q tile is the last of four, and causal: it visits all four KV tiles.
    assert softmax_pages.recorded_tiles(found.trace) == (0, 1, 2, 3)
    picture = softmax_pages.whole_acc(found, 2, 50, LIGHT)
    assert picture.chart.data[0].z.shape == (16, 16) and picture.chart.data[0].y0 == 48
    assert picture.caption.endswith("kept every tile. After the last tile, divided by l, it is O.")


def test_the_last_tile_is_kept_and_its_acc_divided_by_l_is_o() -> None:
    """128 KV tiles, every 16th kept, the last of them: 15, 31, …, 127."""
    _, found = traced_run(fake_runs.flash_run())
    assert softmax_pages.recorded_tiles(found.trace) == tuple(range(15, 128, 16))
    assert softmax_pages.last_recorded(found) == 127
    picture = softmax_pages.whole_acc(found, 127, 7936, LIGHT)
    words = "This is the last tile: divided by l, it is O. Row 7,936 lies in Q tile 62, whose acc was not kept."
    assert picture.caption.endswith(words)
    np.testing.assert_array_equal(picture.chart.data[0].z, found.trace.acc.numpy()[-1])


def test_damaged_traces_are_left_out() -> None:
    good = articles_row()
    assert is_whole(good)
    assert not is_whole(replace(good, l=PackedArray.pack(np.zeros((1, 3), np.float32))))
    assert not is_whole(replace(good, acc_start=-1))
    assert not is_whole(replace(good, alpha=PackedArray((1, 2), "float32", "AAAA")))
    assert not is_whole(replace(good, scores=PackedArray((1, 4), "float32", "AAAA")))
    damaged = replace(fake_runs.flash_run(), softmax=replace(good, row_stop=4))
    assert online_softmax.sheet((damaged,), LIGHT).missing


def test_sheet_of_the_last_recorded_row() -> None:
    shown = online_softmax.sheet((fake_runs.naive_run(), fake_runs.flash_run()), LIGHT)
    titles = [
        "Row 8,191, tile by tile",
        "α of all recorded rows",
        "How often the maximum moved",
        "Against the exact prefix",
        "The accumulator",
    ]
    assert [item.title for item in shown.items] == titles
    assert all(len(item.chart.to_json()) < 2_000_000 for item in shown.items if isinstance(item, Picture))
    assert online_softmax.sheet((fake_runs.naive_run(),), LIGHT).missing
    assert online_softmax.sheet((), LIGHT).missing


def _page() -> None:
    import streamlit as st

    from app.views import online_softmax as view

    view.render(st.session_state.runs)


def test_choosing_a_row_moves_the_program_along() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = (fake_runs.cpu_run(),)
    app.run()
    assert not app.exception
    app.number_input(key="softmax.row").set_value(20).run()
    # Row 20 lies in the second tile of 16 rows.
    assert (app.session_state["row"], app.session_state["program"]) == (20, 1)
    assert not app.exception


def test_a_row_out_of_range_is_clamped_and_said() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = (fake_runs.cpu_run(),)
    app.run()
    app.number_input(key="softmax.row").set_value(500).run()
    assert app.session_state["row"] == 63
    assert [caption.value for caption in app.caption if "500" in caption.value] == [
        "Row 500 does not exist here, 0 to 63 do: this is Row 63."
    ]
    app.run()
    assert not any("500" in caption.value for caption in app.caption), "said once"


def test_the_link_to_the_tiles_brings_kernel_and_program_along() -> None:
    def script() -> None:
        import streamlit as st

        from app.views import online_softmax as view

        st.session_state["pages"] = {"tile_schedule": st.Page(lambda: None, title="Tile schedule", url_path="tiles")}
        st.navigation([*st.session_state["pages"].values(), st.Page(lambda: view.render(st.session_state.runs))])
        view.render(st.session_state.runs)

    app = AppTest.from_function(script, default_timeout=30)
    app.session_state["runs"], app.session_state["tile.kernel"] = (fake_runs.cpu_run(),), "naive"
    app.session_state["row"] = 20
    app.run()
    app.button(key="go-tile_schedule").click().run()
    assert (app.session_state["tile.kernel"], app.session_state["program"]) == ("flash", 1)


@pytest.mark.parametrize(
    ("chosen", "sentence"),
    [
        (
            {"row": 5},
            "Row 5 of head 0, chosen elsewhere, was not recorded; rows 7,936 to 8,191 of head 0 were: this is row "
            "7,936 of head 0.",
        ),
        (
            {"row": 8000, "head": 5},
            "Row 8,000 of head 5, chosen elsewhere, was not recorded; rows 7,936 to 8,191 of head 0 were: this is row "
            "8,000 of head 0.",
        ),
        (
            {"row": 9000, "head": 5},
            "Row 9,000 of head 5, chosen elsewhere, does not exist in this problem: this is row 8,191 of head 0.",
        ),
    ],
)
def test_a_row_that_was_not_recorded_is_named(chosen: dict[str, int], sentence: str) -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = (fake_runs.flash_run(),)
    for name, value in chosen.items():
        app.session_state[name] = value
    app.run()
    assert not app.exception
    assert sentence in [caption.value for caption in app.caption]
    buttons = [button for button in app.button if button.key == "softmax.run-row"]
    if "exist" in sentence:
        assert not buttons
    else:
        assert buttons[0].disabled, "this machine is not the H200 of the Run"
        assert any("This Run was made on NVIDIA H200" in html.proto.body for html in app.get("html"))


def test_the_row_of_another_head_can_be_recorded_on_the_machine_that_made_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fake machine runs at once: the Run that it makes holds head 1, and its row is shown without a remark."""
    run = fake_runs.cpu_run()
    started: list[Workload] = []
    monkeypatch.setattr(run_again, "devices", lambda: {"cpu": fake_runs.THIS_CPU})
    monkeypatch.setattr(run_again, "free_bytes", lambda device: 2**34)
    monkeypatch.setattr(session, "job", lambda: None)
    monkeypatch.setattr(session, "start", lambda workloads, timeout: started.extend(workloads))
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"], app.session_state["row"], app.session_state["head"] = (run,), 20, 1
    app.run()
    words = (
        "Row 20 of head 1, chosen elsewhere, was not recorded; rows 0 to 63 of head 0 were: this is row 20 of head 0."
    )
    assert words in [caption.value for caption in app.caption]
    button = app.button(key="softmax.run-row")
    assert (button.label, button.disabled) == ("Run again, recording row 20 of head 1", False)
    button.click().run()
    assert started == [replace(run.workload, trace=TraceRequest(0, 1, 20))]
    assert run.softmax is not None
    made = replace(run, id="fake-again", workload=started[0], softmax=replace(run.softmax, head=1))
    app.session_state["runs"] = (made,)
    app.run()
    assert not app.exception and not any("chosen elsewhere" in caption.value for caption in app.caption)
    assert app.number_input(key="softmax.row").value == 20 and app.session_state["head"] == 1


def test_a_row_recorded_elsewhere_is_asked_for_by_batch_too() -> None:
    """Batches are named where there are several, heads where there are several: here 2 batches of 1 head."""
    trace = replace(articles_row(), batch=1)
    grid = TileGrid(AttentionProblem(2, 1, 1, 5, 4, 3, "float32"), 2, 2)
    found = Recording(trace, RowWalk.whole_rows(grid, {}))
    assert softmax_asked.sentence(Asked(1, 0, 4), found, 4) == ""
    words = "Row 4 of batch 0, chosen elsewhere, was not recorded; row 4 of batch 1 was: this is row 4 of batch 1."
    assert softmax_asked.sentence(Asked(0, 0, 4), found, 4) == words


def test_page_without_a_trace_says_what_to_do() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = (fake_runs.naive_run(),)
    assert not app.run().exception


def short_run(run_id: str = "fake-short", rows: tuple[tuple[float, ...], ...] = ((0, 0, 2, 1), (3, 0, 0, 0))) -> Run:
    """Flash on 2 × 4 scores by hand, tiles of one row and two keys, all scores kept."""
    scores = [list(row) for row in rows]
    run = fake_runs.cpu_run(AttentionProblem(1, 1, 1, 2, 4, 1, "float32"), TileConfig(1, 2), run_id)
    return replace(run, softmax=recorded(scores, walk_of(scores, 2)).trace)


def test_every_score_of_a_short_row_is_printed() -> None:
    shown = online_softmax.sheet((short_run(),), LIGHT)
    assert "scores of rows 0 to 1" in (shown.headline.detail if shown.headline else "")
    tables = [item for item in shown.items if isinstance(item, Table) and item.title == "Every score"]
    assert [row[2] for row in tables[0].rows] == ["3.000", "0", "0", "0"]
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"], app.session_state["row"] = (short_run(),), 0
    assert not app.run().exception
    assert any("2.000" in html.proto.body for html in app.get("html"))
    assert app.button(key="softmax.hand-row").label == "The scores of row 0"
    app.button(key="softmax.hand-row").click().run()
    assert app.text_input(key="softmax.hand-scores.field").value == "0, 0, 2, 1"
    assert any("kernel&#x27;s m" in html.proto.body for html in app.get("html"))


def test_a_row_without_scores_says_how_to_get_them_and_leads_to_one_that_has() -> None:
    run = short_run()
    assert run.softmax is not None
    kept = replace(run.softmax, scores=packed([[3, 0, 0, 0]]), score_start=1)
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"], app.session_state["row"] = (replace(run, softmax=kept),), 0
    app.run()
    words = "Scores were kept of row 1 only; choose one of them, or run again with traced row 0."
    assert any(words in html.proto.body for html in app.get("html"))
    app.button(key="softmax.to-scores").click().run()
    assert app.session_state["row"] == 1 and not app.exception


def test_the_largest_difference_can_be_gone_to() -> None:
    run = short_run()
    assert run.softmax is not None
    off = replace(run.softmax, exact_l=packed([[2, 1.5], [1.1, 1.3]]))
    found = softmax_differences.places(Recording(off, walk_of([[0.0] * 4] * 2, 2)))["l"]
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"], app.session_state["row"] = (replace(run, softmax=off),), 1
    app.run()
    button = app.button(key="softmax.to-l")
    assert button.label == f"l: row {found.row}, KV tile {found.kv_tile}"
    button.click().run()
    assert (app.session_state["row"], app.session_state["key"] // 2) == (found.row, found.kv_tile)
    assert not app.exception


def test_the_run_chosen_elsewhere_is_the_one_shown() -> None:
    older = replace(short_run("fake-older"), created="2020-01-01T00:00:00Z")
    runs = (older, short_run(rows=((0, 0, 0, 0), (0, 0, 0, 0))))
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = runs
    app.run()
    names = [one.name for one in traced(runs)]
    assert app.selectbox(key="softmax.run").value == names[0]
    app.session_state["tile.kernel"] = names[1]
    app.run()
    assert app.selectbox(key="softmax.run").value == names[1]
    app.selectbox(key="softmax.run").set_value(names[0]).run()
    assert app.session_state["tile.kernel"] == names[0] and not app.exception
