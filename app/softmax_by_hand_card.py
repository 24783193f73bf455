"""The card on which a reader works out an online softmax block by block: the article's row, or their own."""

import streamlit as st

from app import page
from app.softmax_by_hand import ARTICLE, ARTICLE_BLOCK, block_of, blocks, keys, parse, sentence, typed
from app.softmax_recording import Recording
from app.softmax_state import RowState
from kernels.problem import Refused

TITLE = "Two blocks by hand"
CAPTION = (
    "The article's row in two blocks, or up to 16 scores of your own, with commas between; ln 2 and -inf are "
    "understood. Computed in float64 as this page is drawn."
)
SCORES, BLOCK = "softmax.hand-scores", "softmax.hand-block"  # kept while other pages are drawn
FIELD = ".field"


def draw(found: Recording | None, state: RowState | None) -> None:
    """Fields, answer and tables; `found` and `state` are the row that the page shows, if it shows one."""
    row = None if found is None or state is None else typed(found, state)
    with page.card(TITLE, CAPTION, stretch=False, sources=("model",)):
        text, asked = _fields()
        with st.container(horizontal=True):
            st.button("The article's row", on_click=_fill, args=(ARTICLE, ARTICLE_BLOCK), key="softmax.hand-article")
            if row is not None and found is not None and state is not None:
                label = f"The scores of row {state.row:,}"
                st.button(label, on_click=_fill, args=(row, found.trace.BLOCK_N), key="softmax.hand-row")
        try:
            scores = parse(text)
            block = block_of(asked, scores)
        except Refused as refused:
            page.message("error", str(refused))
            return
        page.message("info", sentence(scores, block))
        is_row = row is not None and found is not None and (text, block) == (row, found.trace.BLOCK_N)
        left, right = st.columns(2)
        for column, table in ((left, blocks(scores, block, state if is_row else None)), (right, keys(scores, block))):
            with column:
                st.html(f'<p class="bs-card-title">{table.title}</p>{page.table_html(table)}')


def _fields() -> tuple[str, float | None]:
    st.session_state[SCORES + FIELD] = st.session_state.setdefault(SCORES, ARTICLE)
    st.session_state[BLOCK + FIELD] = st.session_state.setdefault(BLOCK, ARTICLE_BLOCK)
    left, right = st.columns([5, 1])
    text = left.text_input("Scores", key=SCORES + FIELD, on_change=_keep, args=(SCORES,), max_chars=1000)
    block = right.number_input("Block size", step=1, key=BLOCK + FIELD, on_change=_keep, args=(BLOCK,))
    return text, block


def _keep(name: str) -> None:
    st.session_state[name] = st.session_state[name + FIELD]


def _fill(scores: str, block: int) -> None:
    st.session_state[SCORES], st.session_state[BLOCK] = scores, block
