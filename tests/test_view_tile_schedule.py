"""The tile schedule: moments, cells and timelines against numbers worked out by hand, and the page itself."""

import numpy as np
import pytest
from streamlit.testing.v1 import AppTest

from app.picture import Picture
from app.style import DARK, LIGHT, Theme, ink_on
from app.subject import Subject
from app.tile_cells import around, whole
from app.tile_chart import tile_map
from app.tile_moment import Moment
from app.tile_pages import matrix
from app.tile_tables import launches_moved, moved
from app.timeline_chart import MOST_BARS, lanes, story, timeline
from app.views import tile_schedule
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from kernels.schedule import TileGrid
from profiler.codec import PackedArray
from profiler.run import ProgramTrace
from tests import fake_runs

ARTICLE = AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, dtype="float32")
GRIDS = [
    TileGrid(AttentionProblem(seq_len_q=100, seq_len_kv=130, head_dim=16, causal=True), 8, 4),
    TileGrid(AttentionProblem(seq_len_q=100, seq_len_kv=130, head_dim=16, window=20), 8, 4),
    TileGrid(AttentionProblem(seq_len_q=130, seq_len_kv=70, head_dim=16, causal=True, window=20), 4, 8),
]


def test_bytes_moved_so_far_in_the_articles_example() -> None:
    """Program 1 at its third KV tile: a tile is 4 rows × 16 × 4 B = 256 B, K is 1,024 B."""
    q, k, v, o, lse = Moment(TileGrid(ARTICLE, 4, 4), program=1, step=2).moved()
    assert (q.program_read, q.head_read) == (256, 2 * 256)
    assert (k.program_read, k.head_read, k.times) == (3 * 256, (4 + 3) * 256, 7 * 256 / 1024)
    assert (v.program_read, v.head_read, v.times) == (k.program_read, k.head_read, k.times)
    assert (o.program_written, o.head_written) == (0, 256)
    assert (lse.program_written, lse.head_written) == (0, 4 * 4)


def test_first_step_has_read_each_byte_once_and_written_nothing() -> None:
    q, k, _, o, _ = Moment(TileGrid(ARTICLE, 4, 4)).moved()
    assert (q.times, k.times, o.times) == (1.0, 1.0, None)
    assert (k.head_read, o.head_written) == (256, 0)


@pytest.mark.parametrize("grid", GRIDS, ids=["causal", "window", "blind rows"])
def test_end_of_the_head_has_moved_what_the_schedule_says(grid: TileGrid) -> None:
    end = Moment(grid, grid.q_tiles - 1, grid.kv_tiles)
    whole_head = grid.program_bytes()
    for part in end.moved():
        reads, writes = whole_head[part.tensor]
        assert (part.head_read, part.head_written) == (reads.sum(), writes.sum())


@pytest.mark.parametrize(
    ("theme", "words", "inks"),
    [(LIGHT, "Pale to strong", ["#000000", "#FFFFFF"]), (DARK, "Dark to pale", ["#FFFFFF", "#000000"])],
    ids=["light", "dark"],
)
def test_the_caption_names_the_colours_in_the_order_in_which_they_are_drawn(
    theme: Theme, words: str, inks: list[str]
) -> None:
    """Pale colours take black ink, dark ones white."""
    grid = TileGrid(ARTICLE, 4, 4)
    picture = matrix(Subject("flash", "flash", ARTICLE, TileConfig(4, 4)), Moment(grid), theme)
    assert f"{words}: order within a program." in picture.caption
    order = next(trace for trace in picture.chart.data if trace.type == "heatmap")
    colours = [colour for _, colour in order.colorscale]
    assert [ink_on(colours[0]), ink_on(colours[-1])] == inks


def test_steps_go_on_through_the_head_and_back() -> None:
    grid = TileGrid(AttentionProblem(heads=2, kv_heads=2, seq_len_q=16, seq_len_kv=16, head_dim=16, causal=True), 4, 4)
    moment, seen = Moment(grid, program=4), []
    for _ in range(1 + 2 + 3 + 4):
        seen.append((moment.q_tile, moment.kv_tile))
        moment = moment.after()
    assert seen == [(i, j) for i in range(4) for j in range(i + 1)]
    assert (moment.program, moment.step) == (4, 0), "the second head begins anew and is not left"
    for i, j in reversed(seen):
        moment = moment.before()
        assert (moment.q_tile, moment.kv_tile) == (i, j)


def test_a_program_that_sees_nothing_has_one_step_in_which_it_writes() -> None:
    grid = TileGrid(AttentionProblem(seq_len_q=8, seq_len_kv=4, head_dim=16, causal=True), 4, 4)
    moment = Moment.at_tile(grid, 0, 5)
    assert (moment.kv_tile, moment.steps) == (None, 1)
    assert [(part.tensor, part.program_written) for part in moment.moved()][3:] == [("o", 4 * 16 * 2), ("lse", 4 * 4)]
    assert tile_map(moment, whole(grid), LIGHT).data


def test_on_chip_pads_head_dim_and_keeps_the_state_in_float32() -> None:
    grid = TileGrid(AttentionProblem(seq_len_q=256, seq_len_kv=256, head_dim=80), 128, 64)
    held = {part.name: (part.shape, part.size) for part in Moment(grid).on_chip(TileConfig(128, 64, num_stages=3))}
    assert held["Q"] == ((128, 128), 128 * 128 * 2)
    assert held["K"] == held["V"] == ((64, 128), 64 * 128 * 2)
    assert held["S"] == ((128, 64), 128 * 64 * 4) and held["P"] == ((128, 64), 128 * 64 * 2)
    assert held["acc"] == ((128, 128), 128 * 128 * 4) and held["m"] == held["l"] == ((128,), 128 * 4)


@pytest.mark.parametrize("grid", GRIDS, ids=["causal", "window", "blind rows"])
@pytest.mark.parametrize("most", [96, 7])
def test_cells_add_up_the_masks_of_their_tiles(grid: TileGrid, most: int) -> None:
    cells = whole(grid, most)
    masks = np.array([[grid.mask_of(i, j) for j in range(grid.kv_tiles)] for i in range(grid.q_tiles)])
    for (row, column), share in np.ndenumerate(cells.visited):
        inside = masks[row * cells.q_step :][: cells.q_step, column * cells.kv_step :][:, : cells.kv_step]
        assert share == pytest.approx((inside != "skipped").mean())
        assert cells.partial[row, column] == ((inside != "skipped").any() and (inside != "full").any())
    assert np.isnan(cells.order).tolist() == (cells.visited == 0).tolist()


def test_order_counts_from_each_programs_first_tile() -> None:
    cells = whole(TileGrid(AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, causal=True, window=8), 4, 4))
    nan = np.nan
    expected = [[0, nan, nan, nan], [0, 1, nan, nan], [0, 1, 2, nan], [nan, 0, 1, 2]]
    np.testing.assert_array_equal(cells.order, expected)


def test_long_sequences_are_drawn_as_few_cells_around_a_zoom() -> None:
    grid = TileGrid(AttentionProblem(seq_len_q=131_072, seq_len_kv=131_072, head_dim=64, causal=True), 64, 64)
    moment = Moment(grid, 1000, 500)
    cells, near = whole(grid), around(grid, 1000, 500)
    assert cells.visited.shape == (94, 94) and cells.q_step == 22 and cells.cell_of(1000, 500) == (45, 22)
    assert near.visited.shape == (17, 17) and near.cell_of(1000, 500) == (8, 8)
    assert all(len(tile_map(moment, part, DARK).to_json()) < 200_000 for part in (cells, near))


def test_small_grids_name_their_tiles_and_can_be_clicked() -> None:
    figure = tile_map(Moment(TileGrid(ARTICLE, 4, 4), 1, 2), whole(TileGrid(ARTICLE, 4, 4)), LIGHT)
    labels = next(trace.text for trace in figure.data if trace.type == "scatter" and trace.mode == "text")
    assert list(labels)[:5] == ["0, 0", "0, 1", "0, 2", "0, 3", "1, 0"]
    targets = next(trace.customdata for trace in figure.data if trace.customdata is not None)
    assert targets[:5].tolist() == [[0, 0], [0, 1], [0, 2], [0, 3], [1, 0]]


def test_timeline_counts_waves_and_finds_a_program() -> None:
    """1,024 programs dealt to 132 SMs one at a time: 8 waves, program 500 is the fourth on SM 500 − 3 · 132."""
    found = lanes(fake_runs.timeline(1024, sms=132, program_ns=160_000))
    assert found is not None
    assert (found.at_once, found.waves, found.longest_queue, found.sms, found.slots) == (132, 8, 8, 132, 1)
    assert "ran on SM 104 from 480 µs to 640 µs, 3 programs before it in its lane" in story(found, 500)


def test_programs_that_share_an_sm_get_slots() -> None:
    trace = ProgramTrace(
        "flash",
        PackedArray.pack(np.zeros(4, np.int32)),
        PackedArray.pack(np.array([0, 0, 100, 150])),
        PackedArray.pack(np.array([100, 150, 200, 300])),
        32,
    )
    found = lanes(trace)
    assert found is not None
    assert found.slot.tolist() == [0, 1, 0, 1] and found.wave.tolist() == [0, 0, 1, 1]
    assert (found.at_once, found.waves) == (2, 2)


def test_few_programs_are_two_paths_and_each_has_its_name() -> None:
    """SM 0 runs program 0 and then 2, SM 1 runs program 1; of 400 moments over 400 µs, 2 runs at the last 200."""
    trace = ProgramTrace(
        "flash",
        PackedArray.pack(np.array([0, 1, 0], np.int32)),
        PackedArray.pack(np.array([0, 0, 200_000])),
        PackedArray.pack(np.array([200_000, 300_000, 400_000])),
        32,
    )
    found = lanes(trace)
    assert found is not None
    pale, strong, names, chosen = timeline(found, 1, LIGHT).data
    nan = np.nan
    np.testing.assert_array_equal(pale.x, [0, 200, 200, 0, nan, 0, 300, 300, 0, nan])
    np.testing.assert_array_equal(pale.y, [-0.5, -0.5, 0.5, 0.5, nan, 0.5, 0.5, 1.5, 1.5, nan])
    np.testing.assert_array_equal(strong.x, [200, 400, 400, 200, nan])
    np.testing.assert_array_equal(strong.y, [-0.5, -0.5, 0.5, 0.5, nan])
    assert (names.z[0, :200] == 0).all() and (names.z[0, 200:] == 2).all()
    assert (names.z[1, :300] == 1).all() and np.isnan(names.z[1, 300:]).all()
    assert names.customdata[0, [0, -1]].tolist() == [0, 1], "programs before each in its lane"
    assert (names.x0, names.dx, names.y0, names.dy) == (0.5, 1.0, 0.0, 1.0)
    assert chosen.zorder > 0, "bars lie below paths otherwise"
    assert (list(chosen.base), list(chosen.x), list(chosen.y), chosen.width) == ([0], [300], [1.0], 1.0)


def test_a_page_of_many_tiles_and_programs_is_few_nodes_for_a_browser() -> None:
    """64 × 64 tiles and 4,000 programs: points and bars are nodes of a page, paths and maps of any size are one."""
    grid = TileGrid(AttentionProblem(seq_len_q=4096, seq_len_kv=4096, head_dim=16), 64, 64)
    found = lanes(fake_runs.timeline(MOST_BARS, sms=132, program_ns=50_000))
    assert found is not None
    targets = next(trace for trace in tile_map(Moment(grid), whole(grid), LIGHT).data if trace.customdata is not None)
    assert (len(targets.x), targets.marker.maxdisplayed) == (64 * 64, 1)
    assert [trace.type for trace in timeline(found, 0, LIGHT).data] == ["scatter", "scatter", "heatmap", "bar"]
    assert len(timeline(found, 0, LIGHT).to_json()) < 1_000_000


def test_many_programs_are_drawn_by_how_long_they_took() -> None:
    found = lanes(fake_runs.timeline(MOST_BARS * 5, sms=132, program_ns=50_000))
    assert found is not None
    lanes_drawn, chosen = timeline(found, 9000, LIGHT).data
    assert lanes_drawn.type == "heatmap" and lanes_drawn.z.shape == (132, 400)
    # Each took 50 µs less the 320 ns between two programs.
    assert lanes_drawn.z[np.isfinite(lanes_drawn.z)] == pytest.approx(49.68)
    # 20,000 programs on 132 SMs: the last of 152 waves has 68, so SM 68 is idle during the last stretch.
    assert np.isnan(lanes_drawn.z[68, -1]) and np.isfinite(lanes_drawn.z[67, -1])
    assert list(chosen.base) == [pytest.approx(9000 // 132 * 0.05)]


def test_programs_that_share_an_sm_are_drawn_in_lanes_of_their_own() -> None:
    """Of 400 moments over 400 µs, a runs at the first 100, b all the time, c from 200 on."""
    trace = ProgramTrace(
        "flash",
        PackedArray.pack(np.zeros(MOST_BARS + 3, np.int32)),
        PackedArray.pack(np.array([0, 0, 200_000] + [400_000] * MOST_BARS)),
        PackedArray.pack(np.array([100_000, 400_000, 400_000] + [400_000] * MOST_BARS)),
        32,
    )
    found = lanes(trace)
    assert found is not None and found.slots == 2
    first, second = timeline(found, 0, LIGHT).data[0].z
    assert (first[:100] == 100).all() and np.isnan(first[100:200]).all() and (first[200:] == 200).all()
    assert (second == 400).all()


def test_broken_timelines_are_left_out() -> None:
    few, many = PackedArray.pack(np.zeros(2, np.int64)), PackedArray.pack(np.zeros(3, np.int64))
    assert lanes(ProgramTrace("flash", few, many, many, 32)) is None
    damaged = PackedArray((2,), "int64", "AAAA")
    assert lanes(ProgramTrace("flash", damaged, few, few, 32)) is None


def test_naive_steps_are_its_launches() -> None:
    schedule = all_kernels()["naive"].schedule(fake_runs.PROBLEM, TileConfig())
    rows = {row[0]: row[1:3] for row in launches_moved(schedule, 1).rows}
    assert rows["S"] == ("2.15 GB", "4.29 GB")  # written by QKᵀ, read and written by scale
    assert rows["P"] == ("0 B", "0 B")


def test_moved_table_says_how_often_k_was_asked_for() -> None:
    rows = {row[0]: row for row in moved(Moment(TileGrid(ARTICLE, 4, 4), 3, 3)).rows}
    assert rows["K"] == ("K", "read", "1.02 kB", "4.10 kB", "4.0×", "schedule")


def test_sheet_holds_every_measured_kernel() -> None:
    shown = tile_schedule.sheet((fake_runs.naive_run(), fake_runs.flash_run()), LIGHT)
    titles = [item.title for item in shown.items]
    assert titles == [
        "Score matrix, flash",
        "Neighbourhood, flash",
        "On chip now",
        "Asked for so far",
        "Programs on SMs, flash",
        "Launches, naive",
    ]
    assert shown.headline is not None and "64 Q tiles" in shown.headline.sentence
    assert all(len(item.chart.to_json()) < 2_000_000 for item in shown.items if isinstance(item, Picture))
    assert tile_schedule.sheet((), LIGHT).missing


def _page() -> None:
    import streamlit as st

    from app.views import tile_schedule as view

    view.render(st.session_state.get("runs", ()))


def test_page_needs_no_run_and_can_be_stepped() -> None:
    app = AppTest.from_function(_page, default_timeout=30).run()
    assert not app.exception
    app.button(key="tile.player.next").click().run()
    assert not app.exception
    # The page opens at program 2, tile 2 of the article's 4 × 4.
    assert (app.session_state["program"], app.session_state["kv_tile"], app.session_state["row"]) == (2, 3, 8)
    app.button(key="tile.player.next").click().run()
    assert (app.session_state["program"], app.session_state["kv_tile"], app.session_state["row"]) == (3, 0, 12)
    app.button(key="tile.player.back").click().run()
    assert (app.session_state["program"], app.session_state["kv_tile"]) == (2, 3)


def test_page_takes_the_forms_problem_and_clamps_what_was_chosen_before() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["problem"] = AttentionProblem(seq_len_q=64, seq_len_kv=64, head_dim=16, causal=True)
    app.session_state["tile"] = TileConfig(16, 16)
    app.session_state["program"], app.session_state["kv_tile"] = 5000, 99
    app.run()
    assert not app.exception
    assert app.slider(key="tile.player.slider").value == 3
    app.number_input(key="tile.Q tile").set_value(1).run()
    assert (app.session_state["program"], app.session_state["kv_tile"], app.session_state["row"]) == (1, 1, 16)


def test_page_plays_and_stops() -> None:
    app = AppTest.from_function(_page, default_timeout=30).run()
    app.button(key="tile.player.play").click().run()
    assert app.button(key="tile.player.play").label == "Stop"
    app.button(key="tile.player.play").click().run()
    assert app.button(key="tile.player.play").label == "Play"


def test_page_shows_naive_and_runs() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["runs"] = (fake_runs.naive_run(),)
    app.session_state["tile.kernel"] = "naive"
    app.run()
    assert not app.exception
    assert (app.slider[0].min, app.slider[0].value, app.slider[0].max) == (1, 4, 4)
    app.button(key="tile.launches.back").click().run()
    assert (app.session_state["tile.launch"], app.slider[0].value) == (2, 3)


def test_a_q_tile_out_of_range_is_clamped_and_said() -> None:
    app = AppTest.from_function(_page, default_timeout=30).run()
    app.number_input(key="tile.Q tile").set_value(500).run()
    assert app.session_state["program"] == 3
    assert app.caption[0].value == "Q tile 500 does not exist here, 0 to 3 do: this is Q tile 3."


def test_play_begins_at_the_first_step_where_the_program_has_ended() -> None:
    app = AppTest.from_function(_page, default_timeout=30)
    app.session_state["program"], app.session_state["kv_tile"] = 2, 3
    app.run()
    app.button(key="tile.player.play").click().run()
    assert (app.session_state["program"], app.session_state["kv_tile"]) == (2, 0)
