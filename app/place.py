"""The place that the pages share: one program, one KV tile and one row, remembered for the browser session."""

import streamlit as st

from app.tile_moment import Moment
from kernels.schedule import TileGrid


def here(grid: TileGrid) -> Moment:
    """The moment that was chosen last, on any page and for any grid, clamped to this one."""
    start = Moment.opening(grid)
    program = int(st.session_state.get("program", start.program))
    kv_tile = int(st.session_state.get("kv_tile", start.kv_tile or 0))
    return Moment.at_tile(grid, program, kv_tile)


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
