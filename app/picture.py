"""What a page shows and the report repeats: a picture or a table with title, caption and sources; pure data."""

from dataclasses import dataclass

import plotly.graph_objects as go


@dataclass(frozen=True)
class Headline:
    """The answer as a sentence, and the line below it that says of what and how it was measured."""

    sentence: str
    detail: str


@dataclass(frozen=True)
class Figure:
    """One number at the top of a page; `source` is a Measurement's source, `reason` says why a dash is a dash."""

    label: str
    value: str
    source: str
    detail: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Picture:
    """A chart that answers one question: title is its noun, caption how it was obtained and how to read it.

    `sources` are the Measurements' sources of what it draws; each becomes a badge beside the title. `figures` are
    single numbers that belong to it, shown below it.
    """

    title: str
    caption: str
    chart: go.Figure
    sources: tuple[str, ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Table:
    """Rows of text under column names; a missing number is a dash, and `reasons` [row][column] may say why.

    `sources` [row][column] names a cell's own source where the columns of a row have different ones. `fills`
    [row][column] is a share that is drawn as a bar below the text, where it is not None. `figures` are single numbers
    that belong to it, shown below it.
    """

    title: str
    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    reasons: tuple[tuple[str, ...], ...] = ()
    sources: tuple[tuple[str, ...], ...] = ()
    fills: tuple[tuple[float | None, ...], ...] = ()
    figures: tuple[Figure, ...] = ()


@dataclass(frozen=True)
class Sheet:
    """Everything one page says about some Runs; empty where the Runs hold nothing for it (`missing` says why).

    `translations` say the same in other languages; the sheet itself is English.
    """

    headline: Headline | None = None
    figures: tuple[Figure, ...] = ()
    items: tuple[Picture | Table, ...] = ()
    missing: str = ""
    translations: tuple["Translation", ...] = ()


@dataclass(frozen=True)
class Translation:
    """A sheet in another language: the language's own name for itself, its BCP 47 code, and the sheet."""

    language: str
    code: str
    sheet: Sheet
