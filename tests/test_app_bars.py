"""Bars: solid and hatched, dashes, and room for the numbers."""

import math

import pytest

from app.bars import Axis, Bar, Group, bars
from app.style import DARK, LIGHT


def bar(value: float | None, **changes: object) -> Bar:
    return Bar(**{"name": "flash", "value": value, "text": "1 GB", "colour": "#000000", "is_measured": True, **changes})  # type: ignore[arg-type]


def test_measured_is_solid_and_derived_is_hatched() -> None:
    chart = bars([Group("HBM", (bar(1.0), bar(2.0, is_measured=False)))], Axis("bytes"), LIGHT)
    solid, hatched = chart.data[:2]
    assert solid.marker.pattern.shape is None
    assert hatched.marker.pattern.shape == "/"


def test_a_missing_value_is_text_with_its_reason_and_no_bar() -> None:
    chart = bars([Group("HBM", (bar(None, text="–", reason="no GPU here"),))], Axis("bytes", is_log=True), DARK)
    assert [trace.type for trace in chart.data] == ["scatter"]
    (dash,) = chart.layout.annotations
    assert (dash.text, dash.hovertext) == ("flash –", "no GPU here")
    # At the edge of the paper: log10(1000) is a little below 3 in a browser, and a point there would be off the axis.
    assert (dash.xref, dash.x) == ("x domain", 0)


@pytest.mark.parametrize("value", [0.0, -3.0])
def test_what_a_logarithmic_axis_cannot_show_is_no_bar(value: float) -> None:
    chart = bars([Group("HBM", (bar(value),))], Axis("bytes", is_log=True), LIGHT)
    assert [trace.type for trace in chart.data] == ["scatter"]


def test_logarithmic_axis_spans_the_values_with_room() -> None:
    chart = bars([Group("HBM", (bar(134e6), bar(13e9)))], Axis("bytes", is_log=True), LIGHT)
    low, high = chart.layout.xaxis.range
    assert low == 8 and high > math.log10(13e9) + 0.5
    assert tuple(chart.layout.xaxis.ticktext)[:3] == ("100 MB", "1 GB", "10 GB")


def test_what_was_there_before_is_a_paler_piece_of_the_same_bar() -> None:
    chart = bars([Group("flash", (bar(10.0, lead=4.0),))], Axis("GiB", factor=2.0), LIGHT)
    before, rest = chart.data[:2]
    assert (before.x[0], rest.x[0], before.opacity) == (2.0, 3.0, 0.4)


def test_whiskers_reach_to_the_percentiles() -> None:
    chart = bars([Group("flash", (bar(2.0, spread=(1.5, 3.0)),))], Axis("ms"), LIGHT)
    assert (chart.data[0].error_x.array[0], chart.data[0].error_x.arrayminus[0]) == (1.0, 0.5)
    assert tuple(chart.data[-1].x) == (3.0,), "the number stands after the whisker"


def test_the_chart_grows_with_its_bars() -> None:
    few, many = (bars([Group("HBM", (bar(1.0),) * count)], Axis("B"), LIGHT).layout.height for count in (1, 5))
    assert many - few == 4 * 24
