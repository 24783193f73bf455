"""What the form holds, in the session: filled by presets and by edits, in the order in which a person made them.

Each time the server fills the form it makes new widgets: a turn. What a browser sends before it has drawn them names
those of an earlier turn, every field of it. So an earlier turn's field counts only where it differs from what was last
known of it: then somebody changed it after the turn ended, and the change goes on top of what was filled in.
"""

from collections.abc import Callable, Mapping
from typing import TypedDict

import streamlit as st

from app.presets import fill, plain

MOST_TURNS = 16  # that a browser can be behind


class Options(TypedDict):
    """What a widget of the form is made with: its key, and what hears of its changes."""

    key: str
    on_change: Callable[..., None]
    args: tuple[object, ...]


def begin(filled: Mapping[str, object]) -> None:
    """Fill the form of a fresh session, and again with what it held where the server forgot its widgets.

    It does so when a page sends the browser to another one. Without effect at all other times.
    """
    if "form-turn" not in st.session_state:
        st.session_state["form-turn"] = 0
        st.session_state["form-known"] = {}
        put(filled)
    elif filled.keys() - values().keys():
        known = st.session_state["form-known"][_turn()]
        put({name: known[name] for name in filled})


def values() -> dict[str, object]:
    """What the form holds now, by field name."""
    start = key_of("")
    found = {str(key): value for key, value in st.session_state.items()}
    return {key.removeprefix(start): value for key, value in found.items() if key.startswith(start)}


def key_of(field: str) -> str:
    """The session's key of a field's widget in this turn."""
    return _key(_turn(), field)


def put(filled: Mapping[str, object]) -> None:
    """Begin a turn: fill these fields, and the others with what they hold."""
    whole = values() | dict(filled)
    st.session_state["form-turn"] = turn = _turn() + 1
    for name, value in whole.items():
        st.session_state[_key(turn, name)] = value
    known = st.session_state["form-known"]
    known[turn] = whole
    known.pop(turn - MOST_TURNS, None)


def options(field: str) -> Options:
    """The options of a field's widget."""
    return {"key": key_of(field), "on_change": _changed, "args": (_turn(), field)}


def preset_options(name: str, default: str) -> Options:
    """The options of the choice of a preset that stands on `name`; `default` is the device that presets fill in.

    An edit that leaves the preset makes another widget of it, so its key holds the name too.
    """
    key = f"preset.{key_of(name)}"
    return {"key": key, "on_change": _chosen, "args": (key, _turn(), name, default)}


def _changed(turn: int, field: str) -> None:
    """A browser tells of a field; of an earlier turn it tells again and again."""
    value, known = st.session_state[_key(turn, field)], st.session_state["form-known"].get(turn)
    if known is None or plain(known[field]) == plain(value):
        return
    known[field] = value
    if turn != _turn():
        put({field: value})


def _chosen(key: str, turn: int, name: str, default: str) -> None:
    known = st.session_state["form-known"].get(turn)
    chosen = st.session_state[key]
    if known is None or known.get(key, name) == chosen:
        return
    known[key] = chosen
    put(fill(chosen, default))


def _turn() -> int:
    turn: int = st.session_state["form-turn"]
    return turn


def _key(turn: int, field: str) -> str:
    return f"form.{turn}.{field}"
