"""The pages' parts as HTML: sources visible, reasons told, text from a Run inert."""

from app.page import badge, figures_html, headline_html, item_html, table_html, variables
from app.picture import Figure, Headline, Table
from app.style import DARK, LIGHT

HOSTILE = '<img src=x onerror="alert(1)">'


def test_badges_tell_measured_from_derived() -> None:
    assert badge("cupti-range") == '<span class="bs-badge measured">counter</span>'
    assert badge("interpreter") == '<span class="bs-badge measured">trace</span>'
    assert badge("schedule") == '<span class="bs-badge derived">schedule</span>'
    assert badge("") == ""


def test_a_dash_shows_its_reason_and_no_badge() -> None:
    html = figures_html((Figure("HBM bytes", "–", "cupti-range", reason="no GPU here"),))
    assert "no GPU here" in html and "bs-badge" not in html


def test_hostile_text_stays_text() -> None:
    parts = (
        headline_html(Headline(HOSTILE, HOSTILE)),
        figures_html((Figure(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),)),
        table_html(Table("", "", (HOSTILE,), ((HOSTILE,),), ((HOSTILE,),))),
        item_html(HOSTILE, HOSTILE),
    )
    for html in parts:
        assert "<img" not in html and 'onerror="' not in html


def test_table_aligns_numbers_and_badges_sources() -> None:
    table = Table(
        "t",
        "",
        ("run", "HBM", "source"),
        (("flash", "0.135 GB", "ncu"), ("naive", "–", "")),
        (("", "", ""), ("", "why", "")),
    )
    html = table_html(table)
    assert html.count('class="number"') == 3, "one heading and two cells"
    assert badge("ncu") in html
    assert 'title="why"' in html


def test_both_themes_name_the_same_colours() -> None:
    names = [[part.split(":")[0] for part in variables(theme).split(";")] for theme in (LIGHT, DARK)]
    assert names[0] == names[1] and LIGHT.ink in variables(LIGHT)
