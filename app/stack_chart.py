"""Horizontal stacked bars: parts of a total in their colours, the total at the end, a line of words below."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from app.style import Theme, template, traffic

BAR_PIXELS, LINE_PIXELS, GAP_PIXELS, AXIS_PIXELS = 22, 17, 12, 52
HATCH = {"shape": "/", "fillmode": "replace", "size": 6, "solidity": 0.35}
NEAR = 0.3  # share of the longest bar that a number takes at most
NAME_LETTERS = 48  # of a row, beside its bar; the rest is on hover
FACTORS = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3, "TiB": 2.0**40, "GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10}
ROOM = 1.28  # the axis ends that much after the longest bar, so that its total fits

Spelling = Callable[[float | None], str]


@dataclass(frozen=True)
class Part:
    """One piece of a bar."""

    name: str
    value: float  # bytes
    colour: str


@dataclass(frozen=True)
class Stack:
    """One bar. `lines` are HTML below it; without parts it is a dash, and `reason` says why."""

    name: str
    parts: tuple[Part, ...]
    is_measured: bool = True
    lines: tuple[str, ...] = ()
    reason: str = ""
    mark: float | None = None  # bytes at which a tick stands, for comparison

    @property
    def total(self) -> float:
        """Bytes of all parts."""
        return sum(part.value for part in self.parts)


def stacks(rows: Sequence[Stack], axis_title: str, theme: Theme, spell: Spelling = traffic) -> go.Figure:
    """A chart of the rows, the first on top, on a linear axis from 0; `spell` writes bytes, traffic or capacity."""
    longest = max((max(row.total, row.mark or 0) for row in rows), default=0.0)
    unit = spell(longest).rpartition(" ")[2] or "B"
    factor = FACTORS.get(unit, 1.0)
    middles, top = [], GAP_PIXELS / 2
    for row in rows:
        middles.append(top + BAR_PIXELS / 2)
        top += BAR_PIXELS + len(row.lines) * LINE_PIXELS + GAP_PIXELS
    placed = list(zip(rows, middles, strict=True))
    # Plotly checks its whole input at each call, so everything is handed over at once.
    figure = go.Figure(_bars(placed, factor, theme, spell))
    figure.update_layout(
        template=template(theme), height=top + AXIS_PIXELS, barmode="stack", showlegend=False,
        margin={"l": 8, "r": 8, "t": 4, "b": 8},
        shapes=[_tick(row.mark / factor, middle, theme) for row, middle in placed if row.mark is not None],
        annotations=[note for row, middle in placed for note in _notes(row, middle, factor, longest, theme, spell)],
    )  # fmt: skip
    figure.update_xaxes(
        title_text=f"{axis_title}, {unit}",
        range=[0, ROOM * longest / factor or 1],
        fixedrange=True,
        zeroline=False,
        title_standoff=14,
    )
    figure.update_yaxes(
        tickvals=middles, ticktext=[escape(_short(row.name)) for row in rows], range=[top, 0], showgrid=False,
        zeroline=False, fixedrange=True, ticksuffix=" ", tickfont={"color": theme.ink, "size": 13},
    )  # fmt: skip
    return figure


def _short(name: str) -> str:
    return name if len(name) <= NAME_LETTERS else f"{name[: NAME_LETTERS - 1]}…"


def _bars(placed: Sequence[tuple[Stack, float]], factor: float, theme: Theme, spell: Spelling) -> list[go.Bar]:
    """A trace for the first part of all measured rows, one for their second, and so on; the same for derived rows."""
    bars = []
    for is_measured in (True, False):
        alike = [(row, middle) for row, middle in placed if row.is_measured == is_measured]
        for index in range(max((len(row.parts) for row, _ in alike), default=0)):
            found = [(row, row.parts[index], middle) for row, middle in alike if index < len(row.parts)]
            colours = [part.colour for _, part, _ in found]
            marker: dict[str, object] = {"color": colours, "line": {"width": 1, "color": theme.card}}
            if not is_measured:
                marker["line"] = {"width": 1, "color": colours}
                marker["pattern"] = {**HATCH, "fgcolor": colours, "bgcolor": theme.card}
            bar = go.Bar(
                x=[part.value / factor for _, part, _ in found],
                y=[middle for *_, middle in found],
                width=BAR_PIXELS,
                orientation="h",
                marker=marker,
                hovertext=[f"{escape(row.name)}: {part.name} {spell(part.value)}" for row, part, _ in found],
                hoverinfo="text",
            )
            bars.append(bar)
    return bars


def _tick(at: float, middle: float, theme: Theme) -> dict[str, object]:
    half = BAR_PIXELS / 2 + 2
    line = {"color": theme.ink, "width": 2, "dash": "dot"}
    return {"type": "line", "x0": at, "x1": at, "y0": middle - half, "y1": middle + half, "line": line}


def _notes(
    row: Stack, middle: float, factor: float, longest: float, theme: Theme, spell: Spelling
) -> list[dict[str, object]]:
    """The total at the end of a bar, and the lines below it."""
    # Beyond a tick that would stand in the middle of the number.
    end = row.mark if row.mark is not None and 0 <= row.mark - row.total < NEAR * longest else row.total
    total = f"<b>{spell(row.total)}</b>" if row.parts else "– not known"
    common = {"xanchor": "left", "showarrow": False}
    colour = theme.ink if row.parts else theme.muted
    notes: list[dict[str, object]] = [
        {**common, "x": end / factor, "y": middle, "xshift": 4, "text": total, "font": {"color": colour, "size": 12}}
    ]
    if row.reason:
        notes[0]["hovertext"] = escape(row.reason)
    for index, line in enumerate(row.lines):
        y = middle + BAR_PIXELS / 2 + (index + 0.55) * LINE_PIXELS
        font = {"color": theme.ink if index == 0 else theme.muted, "size": 12}
        notes.append({**common, "x": 0, "y": y, "text": line, "font": font, "align": "left"})
    return notes
