"""The pages' parts as HTML: sources visible, reasons told, text from a Run inert."""

from streamlit.testing.v1 import AppTest

from app.page import badge, figures_html, headline_html, item_html, table_html, variables
from app.picture import Figure, Headline, Table
from app.style import DARK, LIGHT

HOSTILE = '<img src=x onerror="alert(1)">'


def test_badges_tell_measured_from_derived() -> None:
    assert badge("cupti-range") == '<span class="bs-badge measured">counter</span>'
    assert badge("interpreter") == '<span class="bs-badge observed">trace</span>'
    assert badge("nvml-gpm") == '<span class="bs-badge observed">GPM, estimate</span>'
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


def test_a_cell_can_have_a_source_of_its_own() -> None:
    html = table_html(Table("t", "", ("run", "HBM"), (("flash", "135 MB"),), sources=(("", "ncu"),)))
    assert f'<td class="number">135 MB {badge("ncu")}</td>' in html


def test_a_source_that_all_rows_share_stands_in_the_title() -> None:
    def script() -> None:
        from app import page
        from app.picture import Table

        page.table(Table("Same", "", ("tensor", "source"), (("Q", "schedule"), ("K", "schedule"))))
        page.table(Table("Mixed", "", ("run", "source"), (("a", "ncu"), ("b", "nvml-gpm"))))

    at = AppTest.from_function(script).run()
    assert not at.exception
    same_title, same, mixed_title, mixed = (element.proto.body for element in at.get("html"))
    assert badge("schedule") in same_title and "source" not in same
    assert "bs-badge" not in mixed_title and mixed.count("bs-badge") == 2


def test_both_themes_name_the_same_colours() -> None:
    names = [[part.split(":")[0] for part in variables(theme).split(";")] for theme in (LIGHT, DARK)]
    assert names[0] == names[1] and LIGHT.ink in variables(LIGHT)
