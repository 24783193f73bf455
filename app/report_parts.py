"""What the report's pages are made of, as HTML: cards, charts, tables whose reasons stand below as footnotes."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from app import page
from app.picture import Picture, Sheet, Table

# The report's Measurements hold the same rows, and more.
LISTED_AS_MEASUREMENTS = "Every measurement of traffic"
MOST_NARROW_COLUMNS, MOST_NARROW_CHARACTERS = 5, 110  # of a table in half a page's width


def sheet(shown: Sheet, group: str = "") -> str:
    """Everything one page says; in each of its languages if it has several, the one that `group`'s switch chooses.

    The switch is radio buttons and CSS, so that it works without a script; a group's name occurs once in a document.
    """
    if not shown.translations:
        return _said(shown)
    choices = [_choice("English", "en", shown, group, " checked")]
    choices += [_choice(other.language, other.code, other.sheet, group) for other in shown.translations]
    return f'<div class="languages">{"".join(choices)}</div>'


def _choice(language: str, code: str, shown: Sheet, group: str, checked: str = "") -> str:
    return (
        f'<label lang="{escape(code)}"><input type="radio" name="{escape(group)}"{checked}>{escape(language)}</label>'
        f'<div class="language" lang="{escape(code)}">{_said(shown)}</div>'
    )


def _said(shown: Sheet) -> str:
    headline = page.headline_html(shown.headline) if shown.headline else ""
    figures = page.figures_html(shown.figures) if shown.figures else ""
    missing = f'<p class="bs-empty">{escape(shown.missing)}</p>' if shown.missing else ""
    return headline + figures + missing + cards([i for i in shown.items if i.title != LISTED_AS_MEASUREMENTS])


def cards(items: Sequence[Picture | Table]) -> str:
    """Pictures and tables side by side where there is room."""
    return f'<div class="cards">{"".join(map(_card, items))}</div>' if items else ""


def box(content: str) -> str:
    """One card around HTML."""
    return f'<div class="cards"><div class="card">{content}</div></div>'


def folded(title: str, about: str, content: str, kind: str = "") -> str:
    """HTML that opens on a click; of kind `printed` it is open on paper."""
    summary = f"<summary>{escape(title)} <span>{escape(about)}</span></summary>"
    return f'<details class="{kind}">{summary}{content}</details>'


def table(item: Table) -> str:
    """A table; paper has no hover, so each reason is a footnote, once however many cells share it."""
    notes: dict[str, int] = {}

    def footnote(shown: str, reason: str) -> str:
        return f"{shown}<sup>[{notes.setdefault(reason, len(notes) + 1)}]</sup>"

    cells = page.table_html(item, footnote)
    below = "".join(f"<li>{escape(note)}</li>" for note in notes)
    return cells + (f'<ol class="notes">{below}</ol>' if below else "")


def _card(item: Picture | Table) -> str:
    if isinstance(item, Picture):
        kind, content = "card picture", _chart(item.title, item.chart)
        badges = "".join(f" {page.badge(source)}" for source in item.sources)
    else:
        kind, content, badges = "card wide" if _is_wide(item) else "card", table(item), ""
    figures = page.figures_html(item.figures) if item.figures else ""
    # Pages say where the mouse finds a reason; here tables of the same page and Measurements give it.
    caption = item.caption.replace(" on hover", " below")
    return (
        f'<figure class="{kind}"><p class="bs-card-title">{escape(item.title)}{badges}</p>'
        f'<p class="bs-caption">{escape(caption)}</p>{content}{figures}</figure>'
    )


def _is_wide(item: Table) -> bool:
    """True where half a page would break cells into a word a line."""
    longest = [max(len(row[column]) for row in (item.columns, *item.rows)) for column in range(len(item.columns))]
    return len(longest) > MOST_NARROW_COLUMNS or sum(longest) > MOST_NARROW_CHARACTERS


def _chart(title: str, chart: go.Figure) -> str:
    # "<" is the only character that could end the element early; JSON may spell it as an escape.
    data = chart.to_json().replace("<", "\\u003c")
    height = chart.layout.height or 450
    return (
        f'<div class="chart" role="img" aria-label="{escape(title)}" style="height:{height:.0f}px"></div>'
        f'<script type="application/json">{data}</script>'
    )
