"""The form's values where a browser still shows, and tells of, fields of an earlier turn."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from app import form_values
from app.form import OTHERS, check
from app.form_values import begin, options, preset_options, values
from app.presets import fill

SMALL, ARTICLE, CUSTOM = "Small, for a CPU", "Article, 16×16 in 4×4 tiles (CPU)", "Custom"
Field = Mapping[str, Any]


@pytest.fixture(autouse=True)
def session(monkeypatch: pytest.MonkeyPatch) -> dict[str, object]:
    """A session of its own, filled with the small preset."""
    state: dict[str, object] = {}
    monkeypatch.setattr(form_values, "st", SimpleNamespace(session_state=state))
    begin(fill(SMALL, "cpu") | OTHERS)
    return state


def tell(session: dict[str, object], told: list[tuple[Field, object]]) -> None:
    """One message of a browser: all that it shows, in order, each with its value."""
    for widget, value in told:
        session[widget["key"]] = value
    for widget, _ in told:
        widget["on_change"](*widget["args"])


def shape() -> tuple[object, ...]:
    """(seq_len_q, heads, head_dim): 512, 2, 64 in the small preset, 16, 1, 16 in the article's."""
    return tuple(values()[name] for name in ("seq_len_q", "heads", "head_dim"))


def test_a_value_typed_in_the_old_form_goes_on_top_of_the_preset(session: dict[str, object]) -> None:
    preset, heads, length = preset_options(SMALL, "cpu"), options("heads"), options("seq_len_q")
    tell(session, [(preset, ARTICLE), (heads, 2), (length, 512)])
    assert shape() == (16, 1, 16)
    tell(session, [(preset, ARTICLE), (heads, 3), (length, 512)])
    assert shape() == (16, 3, 16)
    # A click on Run tells of everything once more.
    tell(session, [(preset, ARTICLE), (heads, 3), (length, 512)])
    assert shape() == (16, 3, 16)


def test_what_was_typed_survives_a_server_that_forgets_its_widgets(session: dict[str, object]) -> None:
    preset, heads = preset_options(SMALL, "cpu"), options("heads")
    tell(session, [(preset, SMALL), (heads, 7)])
    for key in [key for key in session if key.startswith(("form.", "preset."))]:
        del session[key]
    begin(fill(SMALL, "cpu") | OTHERS)
    assert shape() == (512, 7, 64)


def test_of_a_value_and_presets_the_last_counts(session: dict[str, object]) -> None:
    preset, heads = preset_options(SMALL, "cpu"), options("heads")
    tell(session, [(preset, ARTICLE), (heads, 2)])
    tell(session, [(preset, ARTICLE), (heads, 3)])
    tell(session, [(preset, SMALL), (heads, 3)])
    assert shape() == (512, 2, 64)
    tell(session, [(preset, ARTICLE), (heads, 3)])
    assert shape() == (16, 1, 16)


def test_a_value_typed_before_the_preset_was_chosen_gives_way(session: dict[str, object]) -> None:
    preset, heads = preset_options(SMALL, "cpu"), options("heads")
    tell(session, [(preset, SMALL), (heads, 3)])
    assert shape() == (512, 3, 64)
    tell(session, [(preset, ARTICLE), (heads, 3)])
    assert shape() == (16, 1, 16)


def test_each_turn_that_a_browser_shows_late_is_held_against_itself(session: dict[str, object]) -> None:
    preset, heads = preset_options(SMALL, "cpu"), options("heads")
    tell(session, [(preset, ARTICLE), (heads, 2)])
    first = options("heads"), options("seq_len_q")
    tell(session, [(preset, ARTICLE), (heads, 3)])
    # The browser draws the article's form as it was filled; the 3 is still on its way to it.
    tell(session, [(first[0], 1), (first[1], 16)])
    assert shape() == (16, 3, 16)
    tell(session, [(first[0], 1), (first[1], 32)])
    assert shape() == (32, 3, 16)


def test_a_turn_too_old_for_any_line_is_left_alone(session: dict[str, object]) -> None:
    heads = options("heads")
    for _ in range(form_values.MOST_TURNS):
        form_values.put({"heads": 4})
    tell(session, [(heads, 3)])
    assert shape() == (512, 4, 64)


def test_kernels_told_in_another_order_are_the_same(session: dict[str, object]) -> None:
    kernels = options("kernels")
    form_values.put({"kernels": ["flash"]})
    tell(session, [(kernels, ["naive", "flash"])])
    assert values()["kernels"] == ["flash"]
    assert [workload.kernel for workload in check(values())[0]] == ["flash"]
