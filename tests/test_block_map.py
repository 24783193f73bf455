"""The heat maps and the scatter as data: which cell has which colour, text and reason, and what a click tells."""

import json
from collections.abc import Sequence

import plotly.graph_objects as go
import pytest

from app.block_board import Board, Cell
from app.block_map import SMALL, Panel, Scale, block_map, folded, shade
from app.block_quantities import ERROR, OCCUPANCY, QUANTITIES, REGISTERS, TIME
from app.block_scatter import points, scatter
from app.lane_shades import ramp
from app.style import DARK, LIGHT
from tests.fake_boards import cell, tile


def of(cells: Sequence[Cell], title: str = "H200") -> Board:
    return Board(title, tuple(cells))


FOUR = of(
    [cell(64, 32, gpu_time_seconds=1e-3), cell(64, 64, gpu_time_seconds=2e-3), cell(128, 32), cell(128, 64, "No.")]
)


def squares(chart: go.Figure, index: int = 0) -> dict[tuple[int, int], tuple[str, str]]:
    """Text and colour of each tile of one map."""
    heat, on_top = chart.data[2 * index], chart.data[2 * index + 1]
    colours = [colour for _, colour in heat.colorscale][: len(on_top.text)]
    pairs = zip(on_top.text, colours, strict=True)
    return dict(zip(map(tuple, on_top.customdata), pairs, strict=True))


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_less_time_has_the_stronger_colour(theme: type[LIGHT]) -> None:
    found = squares(block_map([Panel(FOUR, TIME, "", tile(64, 32))], theme, tile(64, 64)))
    weak, strong = ramp(theme, 101)[0], ramp(theme, 101)[-1]
    assert found == {
        (64, 32): ("<b>★<br>1.00 ms</b>", strong),
        (64, 64): ("2.00 ms", weak),
        (128, 32): ("–", theme.card),
        (128, 64): ("✕", theme.grid),
    }


def test_rows_rise_from_the_bottom_and_the_frame_is_on_the_chosen_tile() -> None:
    chart = block_map([Panel(FOUR, TIME, "")], LIGHT, tile(64, 64))
    assert chart.layout.yaxis.ticktext == ("128", "64") and chart.layout.xaxis.ticktext == ("32", "64")
    assert tuple(chart.layout.yaxis.range) == (1.5, -0.5)
    (frame,) = chart.layout.shapes
    assert (frame.x0, frame.x1, frame.y0, frame.y1) == (0.5, 1.5, 0.5, 1.5)
    assert not block_map([Panel(FOUR, TIME, "")], LIGHT, tile(256, 64)).layout.shapes


def test_boards_of_one_quantity_share_one_scale() -> None:
    other = of([cell(64, 32, gpu_time_seconds=3e-3)], "A100")
    chart = block_map([Panel(FOUR, TIME, "a"), Panel(other, TIME, "b")], LIGHT)
    assert squares(chart, 1)[64, 32][1] == ramp(LIGHT, 101)[0]
    assert squares(chart, 0)[64, 32][1] == ramp(LIGHT, 101)[-1]
    assert squares(chart, 0)[64, 64][1] not in (ramp(LIGHT, 101)[0], ramp(LIGHT, 101)[-1])
    assert [note.text for note in chart.layout.annotations] == ["a", "b"]


def test_small_maps_hold_bare_numbers() -> None:
    board = of([cell(64, 32, occupancy=0.125), cell(64, 64, occupancy=0.25)])
    chart = block_map([Panel(board, OCCUPANCY, "%", None, (0.01, "%"))], LIGHT, size=SMALL)
    assert [text for text, _ in squares(chart).values()] == ["12.5", "25"]


def test_what_a_compiler_told_of_a_tile_that_cannot_run_is_crossed() -> None:
    board = of([cell(64, 32, registers=255), cell(64, 64, "Too large.", registers=40)])
    assert [text for text, _ in squares(block_map([Panel(board, REGISTERS, "")], LIGHT)).values()] == ["255", "✕"]


def test_hover_gives_reasons_and_escapes_them() -> None:
    board = of([cell(64, 32, "A <b>program</b> needs 300 KB & more."), cell(64, 64)])
    crossed, missing = block_map([Panel(board, TIME, "")], LIGHT).data[1].hovertext
    assert "A &lt;b>program&lt;/b> needs 300 KB &amp; more." in crossed
    assert missing == "<b>64×64</b> on H200<br>Time: no gpu_time_seconds here"


def test_long_reasons_are_folded() -> None:
    lines = folded("word " * 40).split("<br>")
    assert len(lines) > 3 and max(map(len, lines)) <= 64


@pytest.mark.parametrize(
    ("values", "value", "place"),
    [
        ([1.0, 2.0], 1.5, 0.5),
        ([1.0, 100.0], 10.0, 0.5),  # two decades: the logarithm
        ([0.0, 10.0], 5.0, 0.5),  # a zero has none
        ([7.0, 7.0], 7.0, 0.5),
        ([None, 1.0, 2.0], 2.0, 1.0),
    ],
)
def test_a_scale(values: list[float | None], value: float, place: float) -> None:
    assert Scale(values).place(value) == pytest.approx(place)


def test_more_is_stronger_where_more_is_better_or_neither() -> None:
    for key in (OCCUPANCY, REGISTERS):
        assert shade(1.0, QUANTITIES[key], LIGHT) == ramp(LIGHT, 101)[-1]
    assert shade(1.0, QUANTITIES[TIME], LIGHT) == ramp(LIGHT, 101)[0]


def test_a_hundred_cells_on_four_gpus_stay_small() -> None:
    board = of([cell(2**m, 2**n, gpu_time_seconds=1e-3 * (m + n)) for m in range(10) for n in range(10)])
    chart = block_map([Panel(board, TIME, str(i)) for i in range(4)], LIGHT)
    assert len(json.dumps(chart.to_plotly_json(), default=list)) < 400_000


def test_the_scatter_names_the_front_and_rings_the_current_tile() -> None:
    cells = [
        cell(64, 32, gpu_time_seconds=1e-3, l2_sm_bytes=4e9),
        cell(128, 32, gpu_time_seconds=2e-3, l2_sm_bytes=2e9),
        cell(32, 32, gpu_time_seconds=3e-3, l2_sm_bytes=8e9),
    ]
    beaten, front, ring = scatter(points(cells), LIGHT, cells[2]).data
    assert (list(beaten.x), list(beaten.y)) == ([8.0], [3.0])
    assert list(zip(front.x, front.y, front.text, strict=True)) == [
        (2.0, 2.0, "128×32, 4 warps"),
        (4.0, 1.0, "64×32, 4 warps"),
    ]
    assert list(ring.x) == [8.0]


def test_the_scatter_is_logarithmic_where_tiles_are_far_apart() -> None:
    cells = [
        cell(64, 32, gpu_time_seconds=1e-3, l2_sm_bytes=1e9),
        cell(128, 32, gpu_time_seconds=9e-3, l2_sm_bytes=100e9),
    ]
    layout = scatter(points(cells), LIGHT).layout
    assert layout.yaxis.type is None and layout.yaxis.rangemode == "tozero"  # 9 times apart
    assert layout.xaxis.type == "log" and layout.xaxis.title.text == "L2↔SM, GB, log scale"
    assert list(layout.xaxis.range) == pytest.approx([-0.24, 2.08])  # 12% of two decades before 1, 4% behind 100


def test_an_error_is_spelled_in_the_power_of_ten_that_suits() -> None:
    assert QUANTITIES[ERROR].unit([2.30e-3, 2.31e-3]) == (1e-3, "10⁻³")
