"""The card that holds float16, bfloat16 and float32 side by side, and starts what is missing of them."""

import streamlit as st

from app import page, run_again
from app.softmax_dtypes import DTYPES, alike, chart, table, wanted
from app.style import Theme
from profiler.run import Run


def draw(run: Run, runs: tuple[Run, ...], theme: Theme) -> None:
    """Table and bars of the Runs that differ from `run` only in dtype, and the button that makes them."""
    found = alike(run, runs)
    shown = table(found)
    with page.card(shown.title, shown.caption, stretch=False):
        if len(found) > 1:
            left, right = st.columns([6, 5])
            with right:
                st.plotly_chart(chart(found, theme), key="softmax.dtypes", theme=None, config=page.CHART_CONFIG)
        else:
            left = st.container()
        with left:
            st.html(page.table_html(shown))
            if len(found) < len(DTYPES):
                run_again.button(f"Run in {DTYPES[0]}, {DTYPES[1]} and {DTYPES[2]}", "softmax.run-dtypes", run, wanted)
