"""Labels beside points: none covers another, a point or a kept box, and lines only where there is no other way."""

import pytest

from app.roofline_labels import ASIDE, LETTER, LINE, REACH, Frame, beside, places

# A decade is 100 pixels both ways.
FRAME = Frame((0.0, 4.0), (0.0, 4.0), 400.0, 400.0)


def test_pixels_of_a_logarithmic_chart() -> None:
    assert FRAME.pixels(1, 1) == (0, 0)
    assert FRAME.pixels(100, 1000) == pytest.approx((200, 300))


def test_a_label_goes_to_the_right_of_a_lone_point_and_to_the_left_at_the_edge() -> None:
    """9,000 stands 5 pixels from the right edge."""
    assert places([(100, 100)], ["flash"], FRAME) == ["middle right"]
    assert places([(9000, 100)], ["flash"], FRAME) == ["middle left"]


def test_a_label_gives_way_to_a_point_and_to_an_earlier_label() -> None:
    """20 pixels to the right stands another point, where the first one's name would be; both names go elsewhere."""
    near = 100 * 10**0.2
    assert places([(100, 100), (near, 100)], ["naive", ""], FRAME) == ["top center", ""]
    # 16 pixels above: clear of the first one's name, but its own name may not cover the first point.
    assert places([(100, 100), (100, 100 * 10**0.16)], ["naive", "flash"], FRAME) == ["middle right", "middle right"]
    # 8 pixels above, the second name would cover the first.
    assert places([(100, 100), (100, 100 * 10**0.08)], ["naive", "flash"], FRAME) == ["middle right", "top center"]


def test_without_room_there_is_no_label() -> None:
    tiny = Frame((0.0, 4.0), (0.0, 4.0), 30.0, 30.0)
    assert places([(100, 100)], ["a long name"], tiny) == [""]


def test_a_line_is_crossed_only_where_there_is_no_other_place() -> None:
    level = ((100.0, 100.0), (10_000.0, 100.0))
    assert places([(100, 100)], ["flash"], FRAME, [level]) == ["top center"]
    grid = [((1.0, 10.0**i), (10_000.0, 10.0**i)) for i in (1.7, 1.8, 1.9, 2.0, 2.1, 2.2, 2.3)]
    assert places([(100, 100)], ["flash"], FRAME, grid) == ["middle right"]


def test_nothing_goes_into_a_kept_box() -> None:
    kept = (200 + REACH, 300.0, 200 - LINE, 200 + LINE)
    assert places([(100, 100)], ["flash"], FRAME, kept=[kept])[0] != "middle right"


def test_a_roofs_name_stands_right_of_it_where_no_point_is() -> None:
    line = ((1.0, 1.0), (10_000.0, 10_000.0))
    text = "HBM"
    spot, box = beside(line, text, FRAME, [], [])
    assert spot == pytest.approx((10**0.4, 10**0.4)), "at the left end itself it would leave the chart below"
    assert box == pytest.approx((40 + ASIDE, 40 + ASIDE + 3 * LETTER, 40 - LINE / 2, 40 + LINE / 2))
    in_the_way = [(10**0.7, 10**0.4)]
    assert beside(line, text, FRAME, in_the_way, [])[0] == pytest.approx((10**0.8, 10**0.8))
    joint = ((10**0.5, 10**0.4), (10**3, 10**0.4))
    assert beside(line, text, FRAME, [], [joint])[0] == pytest.approx((10**0.8, 10**0.8))
