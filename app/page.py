"""What every page is built from: headline, figures, badge, card, picture, table, empty state."""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from html import escape
from pathlib import Path

import streamlit as st

from app.picture import Figure, Headline, Picture, Sheet, Table
from app.style import DARK, LIGHT, SOURCE_BADGE, Theme
from profiler.run import MEASURED

CSS = Path(__file__).with_name("page.css")
# Measured, but not by a counter or a clock: an estimate from utilisation, and what an interpreter saw.
OBSERVED = frozenset({"nvml-gpm", "interpreter"})
# Measured, but no Measurement's source: what a timeline is read from.
CLOCKS = frozenset({"globaltimer"})
CHART_CONFIG = {"displaylogo": False, "displayModeBar": False, "responsive": True}
_NUMBER = re.compile(r"–|[-+−≈<]?\d[\d.,]*(e[-+]?\d+)?\s?\S{0,8}")


def theme() -> Theme:
    """The theme that the browser shows now."""
    return DARK if st.context.theme.type == "dark" else LIGHT


def style_sheet() -> None:
    """Put the pages' CSS and this theme's colours into the page; once a run, by the frame."""
    st.html(f"<style>{variables(theme())}\n{CSS.read_text(encoding='utf-8')}</style>")


def variables(colours: Theme) -> str:
    """CSS that gives page.css the colours of a theme."""
    measured, measured_ink = ("#123F3C", "#7FD6CF") if colours is DARK else ("#D5EFEC", "#0A5F5B")
    names = {
        "paper": colours.paper,
        "ink": colours.ink,
        "muted": colours.muted,
        "grid": colours.grid,
        "card": colours.card,
        "measured": measured,
        "measured-ink": measured_ink,
    }
    return f":root {{{''.join(f'--bs-{name}: {value};' for name, value in names.items())}}}"


def headline(words: Headline) -> None:
    """The answer as the page's heading, and below it of what and how it was measured."""
    st.html(headline_html(words))


def headline_html(words: Headline) -> str:
    """The headline alone, as HTML."""
    return f'<div class="bs-headline"><h1>{escape(words.sentence)}</h1><p>{escape(words.detail)}</p></div>'


def badge(source: str) -> str:
    """HTML of a source's badge: filled where measured, outlined where observed but not counted, dashed where derived.

    Empty without a source.
    """
    if not source:
        return ""
    kind = "observed" if source in OBSERVED else "measured" if source in CLOCKS.union(MEASURED) else "derived"
    return f'<span class="bs-badge {kind}">{escape(SOURCE_BADGE.get(source, source))}</span>'


def figures(row: tuple[Figure, ...]) -> None:
    """A row of numbers, each with its badge; a dash carries its reason."""
    st.html(figures_html(row))


def figures_html(row: tuple[Figure, ...]) -> str:
    """The row of numbers alone, as HTML."""
    return f'<div class="bs-figures">{"".join(map(_figure, row))}</div>'


def _figure(figure: Figure) -> str:
    source = "" if figure.reason else badge(figure.source)
    return (
        f'<div class="bs-figure"><div class="label">{escape(figure.label)} {source}</div>'
        f'<div class="value" title="{escape(figure.reason)}">{escape(figure.value)}</div>'
        f'<div class="detail">{escape(figure.reason or figure.detail)}</div></div>'
    )


@contextmanager
def card(title: str, caption: str = "", stretch: bool = True, sources: tuple[str, ...] = ()) -> Iterator[None]:
    """A box that answers one question, as high as its neighbours if it may stretch; titles are unique on a page."""
    badges = "".join(f" {badge(source)}" for source in sources)
    slug = re.sub(r"\W+", "-", title.lower())
    with st.container(border=True, height="stretch" if stretch else "content", gap="xsmall", key=f"bs-card-{slug}"):
        heading = f'<p class="bs-card-title" role="heading" aria-level="2">{escape(title)}{badges}</p>' if title else ""
        below = f'<p class="bs-caption">{escape(caption)}</p>' if caption else ""
        if heading or below:
            st.html(heading + below)
        yield


def picture(item: Picture, key: str) -> None:
    """A chart in a card of its own."""
    with card(item.title, item.caption, sources=item.sources):
        st.plotly_chart(item.chart, key=key, theme=None, config=CHART_CONFIG, alt=f"{item.title}. {item.caption}")
        if item.figures:
            figures(item.figures)


def table(item: Table) -> None:
    """A table in a card of its own; a source that all rows share stands beside the title instead of in a column.

    Rows without one, whose cells have badges of their own, do not count.
    """
    shown, sources = _without_shared_source(item)
    with card(item.title, item.caption, sources=sources):
        st.html(table_html(shown))
        if item.figures:
            figures(item.figures)


def _without_shared_source(item: Table) -> tuple[Table, tuple[str, ...]]:
    found = {row[-1] for row in item.rows if row[-1]} if item.columns[-1:] == ("source",) else set()
    if len(found) != 1 or not found <= SOURCE_BADGE.keys():
        return item, ()
    shorter = replace(
        item,
        columns=item.columns[:-1],
        rows=tuple(row[:-1] for row in item.rows),
        reasons=tuple(row[:-1] for row in item.reasons),
        sources=tuple(row[:-1] for row in item.sources),
        fills=tuple(row[:-1] for row in item.fills),
    )
    return shorter, tuple(found)


def on_hover(shown: str, reason: str) -> str:
    """HTML of a cell that tells its reason under the mouse."""
    return f'<span title="{escape(reason)}">{shown}</span>'


def table_html(item: Table, explained: Callable[[str, str], str] = on_hover) -> str:
    """The table alone, as HTML; `explained` joins a cell's HTML and its reason."""
    numeric = [
        bool(item.rows) and all(_NUMBER.fullmatch(row[column].strip()) for row in item.rows)
        for column in range(len(item.columns))
    ]
    head = "".join(
        f"<th{_class(number)}>{escape(name)}</th>" for name, number in zip(item.columns, numeric, strict=True)
    )
    body = []
    for index, row in enumerate(item.rows):
        reasons = item.reasons[index] if index < len(item.reasons) else ("",) * len(row)
        sources = item.sources[index] if index < len(item.sources) else ("",) * len(row)
        fills = item.fills[index] if index < len(item.fills) else (None,) * len(row)
        shown = [_cell(*cell, explained) for cell in zip(item.columns, row, reasons, sources, fills, strict=True)]
        body.append(f"<tr>{''.join(map(_column, shown, numeric))}</tr>")
    return f'<div class="bs-table"><table><thead><tr>{head}</tr></thead><tbody>{"".join(body)}</tbody></table></div>'


def _column(cell: str, number: bool) -> str:
    return f"<td{_class(number)}>{cell}</td>"


def _cell(
    column: str, text: str, reason: str, source: str, fill: float | None, explained: Callable[[str, str], str]
) -> str:
    shown = badge(text) if column == "source" and text in SOURCE_BADGE else escape(text)
    if reason:
        shown = explained(shown, reason)
    if source:
        shown = f"{shown} {badge(source)}"
    if fill is not None:
        over = " over" if fill > 1 else ""
        shown += f'<i class="bs-fill{over}"><i style="width:{min(fill, 1.0):.1%}"></i></i>'
    return shown


def _class(number: bool) -> str:
    return ' class="number"' if number else ""


def item_html(title: str, detail: str) -> str:
    """One line of a list with a smaller line below it, as HTML."""
    return f'<p class="bs-item">{escape(title)}<small>{escape(detail)}</small></p>'


def message(kind: str, text: str) -> None:
    """One sentence of kind error or info; plain text, since it may quote a file that came from anywhere."""
    role = "alert" if kind == "error" else "status"
    st.html(f'<p class="bs-message {escape(kind)}" role="{role}">{escape(text)}</p>')


def empty(message: str) -> None:
    """What stands where a part of a page has nothing to show: one sentence that says what to do."""
    st.html(f'<div class="bs-empty">{escape(message)}</div>')


def sheet(shown: Sheet, key: str, rows: tuple[int, ...] = ()) -> None:
    """A whole page: headline, figures, then the items side by side, `rows` of them a row (one where it runs out)."""
    if shown.missing:
        headline(Headline(shown.missing, ""))
        return
    if shown.headline is not None:
        headline(shown.headline)
    if shown.figures:
        figures(shown.figures)
    items = list(enumerate(shown.items))
    widths = iter(rows)
    while items:
        width = next(widths, 1)
        row, items = items[:width], items[width:]
        for column, (index, item) in zip(st.columns(width), row, strict=False):
            with column:
                if isinstance(item, Picture):
                    picture(item, f"{key}-{index}")
                else:
                    table(item)


def go_button(view: str, label: str, prepare: Callable[[], None]) -> None:
    """Like `link`, for a page that must be told first what to show; `prepare` tells it."""
    target = st.session_state.get("pages", {}).get(view)
    if target is None:
        return
    if st.button(label, icon=":material/arrow_forward:", type="tertiary", key=f"go-{view}", on_click=prepare):
        st.switch_page(target)


def link(view: str, label: str, help: str = "") -> None:
    """A link to another page by the name of its module; nothing where that page does not exist."""
    target = st.session_state.get("pages", {}).get(view)
    if target is not None:
        st.page_link(target, label=label, icon=":material/arrow_forward:", help=help or None)


def plain(text: str) -> str:
    """Text of a Run for a place where Streamlit reads Markdown: every sign that could mean something is escaped.

    Names between colons and arrows become pictures after that, escaped or not: a word joiner keeps them apart.
    """
    text = re.sub(r":(?=[\w/+-]+:)|[<>=~!-](?=[<>=-])", "\\g<0>\u2060", text)
    return re.sub(r"([\\`*_{}\[\]()#+\-.!|~<>$:&])", r"\\\1", text)
