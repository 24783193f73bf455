"""Cells of one or more tiles, and how they are drawn, against masks and orders tile by tile."""

import json
import time

import numpy as np
import plotly.graph_objects as go
import pytest

from app.level_table import levels
from app.style import DARK, LIGHT, Theme, ink_on
from app.tile_cells import Cells, around, whole
from app.tile_chart import tile_map
from app.tile_moment import Moment
from app.tile_pages import matrix, neighbourhood
from app.tile_shades import TO_COME, code_scale, order_shade, shade_codes
from app.tile_tables import moved
from kernels.problem import AttentionProblem, TileConfig
from kernels.walk import Walk
from tests.test_tile_moment import ARTICLE, ODD, WALKED, subject, walk

LONG = AttentionProblem(seq_len_q=131_072, seq_len_kv=131_072, head_dim=64, causal=True)
NAN = np.nan


def drawn(figure: go.Figure, kind: str) -> list[go.Heatmap | go.Scatter]:
    return [trace for trace in figure.data if trace.type == kind]


def texts(figure: go.Figure) -> list[str]:
    return list(next(trace.text for trace in figure.data if trace.type == "scatter" and trace.mode == "text"))


@pytest.mark.parametrize("problem", ODD.values(), ids=ODD)
@pytest.mark.parametrize("most", [96, 7])
def test_cells_add_up_the_masks_of_their_tiles(problem: AttentionProblem, most: int) -> None:
    found = walk("flash", problem)
    grid, cells = found.grid, whole(found, 0, most)
    masks = np.array([[grid.mask_of(i, j) for j in range(grid.kv_tiles)] for i in range(grid.q_tiles)])
    for (row, column), share in np.ndenumerate(cells.visited):
        inside = masks[row * cells.q_step :][: cells.q_step, column * cells.kv_step :][:, : cells.kv_step]
        assert share == pytest.approx((inside != "skipped").mean())
        assert cells.partial[row, column] == ((inside != "skipped").any() and (inside != "full").any())
    assert np.isnan(cells.order).tolist() == (cells.visited == 0).tolist()


@pytest.mark.parametrize("problem", [*ODD.values(), ARTICLE], ids=[*ODD, "article"])
@pytest.mark.parametrize("kernel", WALKED)
def test_head_order_is_the_step_at_which_a_tile_comes_first(kernel: str, problem: AttentionProblem) -> None:
    found = walk(kernel, problem)
    cells, first = whole(found), {}
    for at in range(int(found.steps.sum())):
        first.setdefault(Moment.of_head(found, 0, at).tile, at)
    expected = [[first.get((i, j), NAN) for j in range(found.grid.kv_tiles)] for i in range(found.grid.q_tiles)]
    np.testing.assert_array_equal(cells.head_order, expected)


def test_order_counts_from_each_programs_first_tile() -> None:
    found = walk("flash", AttentionProblem(seq_len_q=16, seq_len_kv=16, head_dim=16, causal=True, window=8))
    expected = [[0, NAN, NAN, NAN], [0, 1, NAN, NAN], [0, 1, 2, NAN], [NAN, 0, 1, 2]]
    np.testing.assert_array_equal(whole(found).order, expected)


def test_longest_first_launches_the_last_q_tile_first() -> None:
    problem = AttentionProblem(seq_len_q=8, seq_len_kv=8, head_dim=16, causal=True)
    found = walk("flash", problem, TileConfig(4, 4, order="longest_first"))
    np.testing.assert_array_equal(whole(found).head_order, [[2, NAN], [0, 1]])


def test_the_last_cell_ends_with_the_sequence() -> None:
    """50 rows and 65 keys in tiles of 4: the last tiles hold 2 rows and 1 key."""
    cells = whole(walk("flash", ODD["causal"]))
    assert cells.rows[-2:].tolist() == [48, 50] and cells.keys[-2:].tolist() == [64, 65]


def test_long_sequences_are_drawn_as_few_cells_around_a_zoom() -> None:
    found = walk("flash", LONG, TileConfig(64, 64))
    cells, near = whole(found), around(found, 0, 1000, 500)
    assert cells.visited.shape == (94, 94) and cells.q_step == 22 and cells.cell_of(1000, 500) == (45, 22)
    assert near.visited.shape == (17, 17) and near.cell_of(1000, 500) == (8, 8)


@pytest.mark.parametrize("kernel", WALKED)
def test_what_is_sent_of_a_long_sequence_is_small(kernel: str) -> None:
    found = walk(kernel, LONG, TileConfig(64, 64))
    moment = Moment.opening(found)
    picture = matrix(subject(kernel, LONG, TileConfig(64, 64)), moment, LIGHT)
    near = tile_map(moment, around(found, 0, moment.q_tile, moment.kv_tile or 0), DARK)
    assert len(picture.chart.to_json()) + len(near.to_json()) < 300_000


@pytest.mark.parametrize("kernel", WALKED)
def test_a_step_of_a_long_sequence_is_drawn_in_time(kernel: str) -> None:
    """Half of the 0.5 s that a redraw may take is the browser's."""
    found, shown = walk(kernel, LONG, TileConfig(64, 64)), subject(kernel, LONG, TileConfig(64, 64))
    moment = Moment.opening(found)
    whole(found)  # once a kernel
    start = time.process_time()
    moment = moment.further(1)
    matrix(shown, moment, LIGHT).chart.to_json()
    neighbourhood(shown, moment, LIGHT)
    moved(shown, moment)
    levels(shown, moment)
    assert time.process_time() - start < 0.25


@pytest.mark.parametrize(
    ("theme", "words", "inks"),
    [(LIGHT, "Pale to strong", ["#000000", "#FFFFFF"]), (DARK, "Dark to pale", ["#FFFFFF", "#000000"])],
    ids=["light", "dark"],
)
def test_the_caption_names_the_colours_in_the_order_in_which_they_are_drawn(
    theme: Theme, words: str, inks: list[str]
) -> None:
    """Pale colours take black ink, dark ones white."""
    picture = matrix(subject("flash", ARTICLE), Moment(walk("flash", ARTICLE)), theme)
    assert f"{words}: order within a program." in picture.caption
    colours = [colour for _, colour in drawn(picture.chart, "heatmap")[0].colorscale]
    assert [ink_on(colours[0]), ink_on(colours[2])] == inks, "of the tiles that were reached"


def article_map(kernel: str, at: int) -> tuple[Walk, Cells, go.Figure]:
    found = walk(kernel, ARTICLE)
    cells = whole(found)
    return found, cells, tile_map(Moment.of_head(found, 0, at), cells, LIGHT, most_reads=4)


def test_small_grids_number_their_tiles_in_the_order_of_the_head_and_can_be_clicked() -> None:
    _, _, rows = article_map("flash", 6)
    _, _, columns = article_map("flash_kv_outer", 6)
    assert texts(rows)[:6] == ["1", "2", "3", "4", "5", "6"]
    assert texts(columns)[:6] == ["1", "5", "9", "13", "2", "6"]
    targets = next(trace.customdata for trace in rows.data if trace.customdata is not None)
    assert targets[:5].tolist() == [[0, 0, 0], [0, 1, 1], [0, 2, 2], [0, 3, 3], [1, 0, 0]]


def test_what_is_still_to_come_is_washed_out() -> None:
    """After 7 of 16 steps, 9 tiles are: row by row for flash, column by column for flash_kv_outer."""
    maps = [drawn(article_map(kernel, 6)[2], "heatmap")[0].z for kernel in ("flash", "flash_kv_outer")]
    by_row, by_column = ((TO_COME[0] <= part) & (part <= TO_COME[1]) for part in maps)
    assert by_row.tolist() == [[0, 0, 0, 0], [0, 0, 0, 1], [1, 1, 1, 1], [1, 1, 1, 1]]
    assert by_column.tolist() == [[0, 0, 1, 1], [0, 0, 1, 1], [0, 0, 1, 1], [0, 1, 1, 1]]


def test_codes_hold_order_and_what_is_to_come_and_the_scale_gives_them_their_colours() -> None:
    codes = shade_codes(np.array([0.0, 0.5, 1.0, 0.0, 1.0, NAN]), np.array([0, 0, 0, 1, 1, 0], dtype=bool))
    assert codes.tolist() == [0, 60, 120, 128, 248, 255]
    stops = {round(255 * place): colour for place, colour in code_scale(LIGHT)}
    assert [stops[code] for code in (0, 60, 120)] == [order_shade(share, LIGHT) for share in (0.0, 0.5, 1.0)]
    # 0.4 of #0B7A75 and 0.6 of white: 0.4 · 11 + 153 = 157, 0.4 · 122 + 153 = 202, 0.4 · 117 + 153 = 200.
    assert (stops[248], stops[255]) == ("#9DCAC8", "rgba(0,0,0,0)")


def test_the_strip_below_counts_how_often_k_was_read() -> None:
    reads = next(trace for trace in article_map("flash", 6)[2].data if trace.yaxis == "y2")
    assert reads.x.tolist() == [0, 4, 8, 12, 16] and reads.y.tolist() == [2, 2, 2, 1, 1]


def test_axes_count_rows_and_keys_whatever_the_tiles_are() -> None:
    def axes(kernel: str, tile: TileConfig) -> list[object]:
        layout = tile_map(Moment(walk(kernel, LONG, tile)), whole(walk(kernel, LONG, tile)), LIGHT).layout
        return [layout.xaxis.range, layout.yaxis.range, layout.xaxis.ticktext]

    assert axes("flash", TileConfig(128, 64)) == axes("row_streaming", TileConfig(64, 64))


def test_a_page_of_many_tiles_is_few_nodes_for_a_browser() -> None:
    """64 × 64 tiles: points and bars are nodes of a page, paths and maps of any size are one."""
    found = walk("flash", AttentionProblem(seq_len_q=4096, seq_len_kv=4096, head_dim=16), TileConfig(64, 64))
    figure = tile_map(Moment(found), whole(found), LIGHT)
    targets = next(trace for trace in figure.data if trace.customdata is not None)
    assert (len(targets.x), targets.marker.maxdisplayed) == (64 * 64, 1)
    assert len(json.loads(figure.to_json())["layout"]["shapes"]) < 20


def test_every_kernel_that_is_cut_into_tiles_is_drawn() -> None:
    assert {"row_streaming", "query_tiled", "flash_kv_outer", "flash", "split_kv"} <= set(WALKED)
