"""Walk-through: why attention needs no score matrix, in eleven steps with a live figure each, in two languages."""

from dataclasses import replace
from html import escape
from pathlib import Path

import streamlit as st

from app import page
from app.lesson_steps import Step, headline, steps
from app.lesson_text_en import ENGLISH
from app.lesson_text_zh import CHINESE
from app.lesson_words import Words
from app.picture import Picture, Sheet, Translation
from app.style import Theme
from profiler.run import Run

TITLE = "Walk-through"
ICON = ":material/menu_book:"
ORDER = 80
LANGUAGES = {words.language: words for words in (ENGLISH, CHINESE)}
CSS = Path(__file__).parents[1] / "lesson.css"
CHOSEN, PICKER = "walk.language", "walk.picker"  # a widget's own value is gone once another page was drawn


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """All steps in English and in Chinese, each figure under its text."""
    return replace(_sheet(runs, theme, ENGLISH), translations=(_translation(runs, theme, CHINESE),))


def _sheet(runs: tuple[Run, ...], theme: Theme, words: Words) -> Sheet:
    return Sheet(headline(runs, words), (), tuple(step.printed for step in steps(runs, words, theme)))


def _translation(runs: tuple[Run, ...], theme: Theme, words: Words) -> Translation:
    return Translation(words.language, words.code, _sheet(runs, theme, words))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the steps one below the other in the chosen language."""
    st.html(f"<style>{CSS.read_text(encoding='utf-8')}</style>")
    words = _language()
    page.headline(headline(runs, words))
    found = steps(runs, words, page.theme())
    with st.container(horizontal=True, vertical_alignment="center", key="walk-head"):
        st.html(_index(found), width="stretch")
        st.session_state[PICKER] = words.language
        st.segmented_control(
            "Language", list(LANGUAGES), key=PICKER, on_change=_choose, label_visibility="collapsed", width="content"
        )
    for step in found:
        _draw(step, words.code)


def _language() -> Words:
    return LANGUAGES.get(str(st.session_state.get(CHOSEN)), ENGLISH)


def _choose() -> None:
    # A second press on the chosen language takes the choice away; the language stays.
    st.session_state[CHOSEN] = st.session_state[PICKER] or st.session_state.get(CHOSEN)


def _index(found: tuple[Step, ...]) -> str:
    links = (f'<a href="#{_anchor(step)}">{step.number} {escape(step.title)}</a>' for step in found)
    return f'<nav class="bs-walk-index">{"".join(links)}</nav>'


def _anchor(step: Step) -> str:
    return f"step-{step.number}"


def _draw(step: Step, language: str) -> None:
    with st.container(border=True, key=f"bs-card-step-{step.number}"):
        left, right = (st.container(), st.container()) if step.is_wide else st.columns([5, 6], gap="medium")
        with left:
            st.html(
                f'<section class="bs-walk" id="{_anchor(step)}" lang="{language}">'
                f'<div class="number">{step.number}</div>'
                f"<div><h2>{escape(step.title)}</h2><p>{escape(step.text)}</p></div></section>"
            )
            with st.container(key=f"walk-link-{step.number}"):
                page.link(step.view, step.link)
        with right, st.container(key=f"walk-figure-{step.number}", gap="xsmall"):
            _figure(step)


def _figure(step: Step) -> None:
    item = step.item
    if isinstance(item, Picture):
        sources = item.sources
        alt = f"{step.title}. {step.note}"
        st.plotly_chart(item.chart, key=f"walk.{step.number}", theme=None, config=page.CHART_CONFIG, alt=alt)
    else:
        sources = ()
        st.html(page.table_html(item))
    if item.figures:
        page.figures(item.figures)
    badges = "".join(f" {page.badge(source)}" for source in sources)
    st.html(f'<p class="bs-walk-note">{escape(step.note)}{badges}</p>')
