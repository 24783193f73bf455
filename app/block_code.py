"""The code of a compiled tile: TTGIR, PTX or SASS, to read and to download."""

from functools import lru_cache

import streamlit as st

from app import page
from app.block_board import Board
from kernels.problem import TileConfig
from profiler.compiled_code import KINDS, NoCode, code_of
from profiler.resources import LaunchResources, Resources

MOST_SHOWN = 200_000  # characters; the rest is in the download


def draw(boards: list[Board], tile: TileConfig) -> None:
    """A choice of GPU, launch and kind; nothing until one is chosen."""
    compiled = {
        f"{one.title}{'' if len(cell.resources.launches) == 1 else f', {launch.launch}'}": (cell.resources, launch)
        for one in boards
        for cell in one.cells
        if cell.tile == tile and cell.resources is not None
        for launch in cell.resources.launches
    }
    if not compiled:
        return
    with st.expander("Compiled code"):
        with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
            name = st.selectbox("Of", list(compiled), key="blocks.code-of")
            kind = st.segmented_control("Kind", KINDS, key="blocks.code-kind", format_func=str.upper)
        if kind is not None and name is not None:
            _show(*compiled[name], str(kind), tile)


def _show(found: Resources, launch: LaunchResources, kind: str, tile: TileConfig) -> None:
    try:
        text = _code(found, launch, kind)
    except NoCode as reason:
        page.message("error", str(reason))
        return
    cut = f"{tile.BLOCK_M}x{tile.BLOCK_N}_w{tile.num_warps}_s{tile.num_stages}"
    name = f"{launch.launch}_{cut}_sm{''.join(map(str, found.configuration.compute_capability))}"
    st.download_button(
        f"Download {kind.upper()}", text, f"{name}.{kind}", "text/plain", key="blocks.code-download", on_click="ignore"
    )
    if len(text) > MOST_SHOWN:
        st.caption(f"The first {MOST_SHOWN:,} of {len(text):,} characters.")
    st.code(text[:MOST_SHOWN], language=None, height=420)


@lru_cache(maxsize=8)
def _code(found: Resources, launch: LaunchResources, kind: str) -> str:
    return code_of(found, launch, kind)
