"""The place that the pages share: kernel, program, KV tile and row, remembered for the browser session."""

import streamlit as st

from app.tile_moment import Moment
from kernels.schedule import TileGrid

_KERNEL = "tile.kernel"


def here(grid: TileGrid) -> Moment:
    """The moment that was chosen last, on any page and for any grid, clamped to this one."""
    start = Moment.opening(grid)
    program = int(st.session_state.get("program", start.program))
    kv_tile = int(st.session_state.get("kv_tile", start.kv_tile or 0))
    return Moment.at_tile(grid, program, kv_tile)


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
    """Choose a moment; the row follows into its Q tile, to the tile's first row if it is not there already."""
    st.session_state["program"] = moment.program
    st.session_state["kv_tile"] = moment.kv_tile or 0
    first, stop = moment.rows
    if not first <= st.session_state.get("row", -1) < stop:
        st.session_state["row"] = first


def go_to_row(grid: TileGrid, batch: int, head: int, row: int) -> None:
    """Choose a row of one (batch, head); the program that owns it follows, the KV tile stays."""
    st.session_state["row"] = row
    program = (batch * grid.problem.heads + head) * grid.q_tiles + row // grid.BLOCK_M
    st.session_state["program"] = program
    st.session_state.setdefault("kv_tile", Moment(grid, program).kv_tile or 0)
