"""The place that the pages share: kernel, (batch, head), Q row and KV position, remembered for the browser session.

It does not depend on how a kernel cuts the problem, so another kernel is shown at the same place. Program and step are
remembered beside it, for walks that come to one place more than once.
"""

import streamlit as st

from app.tile_moment import Moment
from kernels.walk import Walk

_KERNEL = "tile.kernel"


def here(walk: Walk) -> Moment:
    """The moment at which a walk is at the place that was chosen last, clamped to its problem."""
    state, problem, grid = st.session_state, walk.grid.unpacked, walk.grid
    if "row" not in state:
        return Moment.opening(walk)
    sizes = {"batch": problem.batch, "head": problem.heads, "row": problem.seq_len_q, "key": problem.seq_len_kv}
    batch, head, query, key = (min(max(int(state.get(name, 0)), 0), size - 1) for name, size in sizes.items())
    batch_head, row = grid.place_of(batch, head, query)
    q_tile, kv_tile = row // grid.BLOCK_M, key // grid.BLOCK_N
    chosen = Moment(walk, int(state.get("program", 0)), int(state.get("step", 0)))
    if chosen.head == batch_head and chosen.q_tile == q_tile and chosen.kv_tile in (kv_tile, None):
        return chosen
    return Moment.at_tile(walk, batch_head, q_tile, kv_tile)


def kv_tile(block_n: int) -> int | None:
    """The KV tile of `block_n` keys that holds the chosen KV position; None before one is chosen."""
    key = st.session_state.get("key")
    return None if key is None else int(key) // block_n


def kernel() -> str | None:
    """The name of the kernel or Run whose schedule was looked at last."""
    found: str | None = st.session_state.get(_KERNEL)
    return found


def choose_kernel(name: str) -> None:
    """Look at the schedule of this kernel or Run from now on."""
    st.session_state[_KERNEL] = name


def remark(words: str) -> None:
    """Keep a sentence for the page that is drawn next, such as what became of a number out of range."""
    st.session_state["place.remark"] = words


def take_remark() -> str:
    """The sentence that was kept, once; empty where there is none."""
    return str(st.session_state.pop("place.remark", ""))


def clamped(label: str, asked: int | None, low: int, high: int) -> int:
    """`asked`, or the nearest number from `low` to `high`, and then a remark says so; `low` for an empty field."""
    if asked is None or low <= asked <= high:
        return low if asked is None else asked
    nearest = min(max(asked, low), high)
    remark(f"{label} {asked:,} does not exist here, {low:,} to {high:,} do: this is {label} {nearest:,}.")
    return nearest


def go_to(moment: Moment) -> None:
    """Choose a moment; row and key follow into its tiles, to their first ones if they are not there already."""
    state, grid, (first, stop), keys = st.session_state, moment.walk.grid, moment.rows, moment.keys
    _, row = grid.place_of(state.get("batch", 0), state.get("head", 0), state.get("row", -1))
    there = grid.query_of(moment.head, row if first <= row < stop else first)
    state["batch"], state["head"], state["row"] = there
    state["program"], state["step"] = moment.program, moment.step
    if keys is not None and not keys[0] <= state.get("key", -1) < keys[1]:
        state["key"] = keys[0]


def go_to_row(walk: Walk, batch: int, head: int, row: int) -> None:
    """Choose a row of one (batch, head); the KV position stays, or the nearest one that the row's tile visits."""
    grid, state = walk.grid, st.session_state
    state["batch"], state["head"], state["row"] = batch, head, row
    kv_tile = int(state.get("key", grid.problem.seq_len_kv - 1)) // grid.BLOCK_N
    batch_head, at = grid.place_of(batch, head, row)
    go_to(Moment.at_tile(walk, batch_head, at // grid.BLOCK_M, kv_tile))
