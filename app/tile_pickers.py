"""Which kernel the tile schedule shows, beside which other, and at which head and tile."""

from collections.abc import Sequence

import streamlit as st

from app import place, player
from app.packed_rows import head_title
from app.standing import Pair
from app.subject import Subject
from app.tile_moment import Moment

OTHER = "tile.other"  # the name of the kernel beside it
NONE = "nothing"


def other(found: Sequence[Subject], first: Subject) -> Subject | None:
    """The kernel or Run that was chosen to stand beside the first one; None where it is not there or is the first."""
    name = st.session_state.get(OTHER)
    return next((subject for subject in found if subject.name == name and subject.name != first.name), None)


def kernel_pickers(found: tuple[Subject, ...], pair: Pair) -> None:
    """The kernel or Run, and the one to compare it with; nothing where there is one only."""
    if len(found) < 2:
        return
    names = [subject.name for subject in found]
    first = pair.first.subject.name
    second = NONE if pair.second is None else pair.second.subject.name
    state = st.session_state
    state["tile.choice"], state["tile.compare"] = first, second
    st.selectbox("Kernel", names, key="tile.choice", width=190, on_change=lambda: _choose(state["tile.choice"]))
    others = (NONE, *(name for name in names if name != first))
    st.selectbox(
        "Compare with", others, key="tile.compare", width=190,
        on_change=lambda: _compare(pair, found, state["tile.compare"]),
        help="Both on one slider; where they have different numbers of steps, both stand at the same share of theirs",
    )  # fmt: skip


def _choose(name: str) -> None:
    if name == st.session_state.get(OTHER):
        st.session_state[OTHER] = place.kernel()
    place.choose_kernel(name)
    player.stop()


def _compare(pair: Pair, found: tuple[Subject, ...], name: str) -> None:
    """Stand another kernel beside the one that is looked at, which stays where it is."""
    second = next((subject for subject in found if subject.name == name), None)
    st.session_state[OTHER] = None if second is None else name
    then = Pair(pair.first) if second is None else Pair.beside(pair.first, second)
    then.leader.go()
    player.stop()


def tile_pickers(moment: Moment) -> None:
    """Batch, head (of K/V where query heads are rows), Q tile and KV tile; what has only one choice is left out."""
    grid = moment.walk.grid
    (batch, head), problem, title = moment.batch_head, grid.problem, head_title(grid)
    choices = (
        ("Batch", batch, problem.batch),
        (title[0].upper() + title[1:], head, problem.heads),
        ("Q tile", moment.q_tile, grid.q_tiles),
        ("KV tile", moment.kv_tile or 0, grid.kv_tiles),
    )
    for label, value, count in choices:
        if count > 1:
            key = f"tile.{label}"
            st.session_state[key] = value
            words = f"{label}, 0 to {count - 1:,}"
            st.number_input(words, step=1, key=key, on_change=_picked, args=(moment, choices), width=136)


def _picked(moment: Moment, choices: tuple[tuple[str, int, int], ...]) -> None:
    batch, head, q_tile, kv_tile = (
        place.clamped(label, st.session_state.get(f"tile.{label}", value), 0, count - 1)
        for label, value, count in choices
    )
    walk = moment.walk
    then = Moment.at_tile(walk, batch * walk.grid.problem.heads + head, q_tile, kv_tile)
    if then.kv_tile != kv_tile and kv_tile != moment.kv_tile:
        place.remark(f"KV tile {kv_tile:,} is masked for Q tile {q_tile:,}: {_nearest(then)}.")
    place.go_to(then)


def _nearest(then: Moment) -> str:
    return "so are all others" if then.kv_tile is None else f"this is KV tile {then.kv_tile:,}, the nearest visited"
