"""Step, slide and play: the controls of whatever is shown one step at a time."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import streamlit as st

PLAY_SECONDS = 0.7
SPEEDS = (1, 8)
MANY_STEPS = 16  # from there on one step a tick is slow
_PLAYING, _TICKED, _SPEED = "player.playing", "player.ticked", "player.speed"


@dataclass(frozen=True)
class Steps:
    """A position on a slider from `low` to `high`, and what moves it; `back` and `forward` may go beyond the slider."""

    label: str
    low: int
    high: int
    at: int
    move: Callable[[int], None]
    back: Callable[[], None]
    forward: Callable[[], None]
    help: str = ""


def is_playing() -> bool:
    """True between Play and Stop."""
    return bool(st.session_state.get(_PLAYING, False))


def stop() -> None:
    """Stop playing; the page must then be drawn anew to end the fragment's timer."""
    st.session_state[_PLAYING] = False


def ticks() -> bool:
    """True once every PLAY_SECONDS while playing, whatever else makes the page redraw."""
    now = time.monotonic()
    if not is_playing() or now - st.session_state.get(_TICKED, 0.0) < 0.8 * PLAY_SECONDS:
        return False
    st.session_state[_TICKED] = now
    return True


def speed() -> int:
    """How many steps a tick takes, as the reader chose."""
    return int(st.session_state.get(_SPEED) or SPEEDS[0])


def controls(steps: Steps, key: str) -> None:
    """Back, Play or Stop, Next, and the slider; for a horizontal container. Many steps can be played faster."""
    with st.container(horizontal=True, gap="small", width="content"):
        st.button("Back", icon=":material/skip_previous:", key=f"{key}.back", on_click=steps.back)
        word, icon = ("Stop", ":material/stop:") if is_playing() else ("Play", ":material/play_arrow:")
        st.button(word, icon=icon, key=f"{key}.play", on_click=_toggle, args=(steps,), type="primary")
        st.button("Next", icon=":material/skip_next:", key=f"{key}.next", on_click=steps.forward)
    if steps.high - steps.low >= MANY_STEPS:
        st.session_state[_SPEED] = speed()
        st.segmented_control("Speed", SPEEDS, key=_SPEED, format_func=lambda times: f"{times}×", required=True)
    if steps.high <= steps.low:
        st.caption(f"{steps.label}: {steps.at}, the only one")
        return
    name = f"{key}.slider"
    st.session_state[name] = steps.at
    st.slider(
        steps.label, steps.low, steps.high, key=name, help=steps.help or None,
        on_change=lambda: steps.move(int(st.session_state[name])),
    )  # fmt: skip


def _toggle(steps: Steps) -> None:
    """Play or stop; from the last step it plays from the first."""
    st.session_state[_PLAYING] = not is_playing()
    if is_playing() and steps.at >= steps.high:
        steps.move(steps.low)
    st.session_state[_TICKED] = time.monotonic()
