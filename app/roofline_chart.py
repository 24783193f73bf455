"""Draws a roofline: FLOP/s over arithmetic intensity, both logarithmic, with the roofs of one GPU."""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any

import plotly.graph_objects as go

from app.level_table import percent
from app.roofline_labels import Box, Frame, Line, Place, beside, places
from app.roofline_work import Work
from app.roofs import COMPUTE, HBM, L2, Roof
from app.style import Theme, bandwidth, flop_rate, kernel_colour, significant, template
from profiler.roofline import ridge

HEIGHT, FRAME_HEIGHT = 460, 390
WIDE, NARROW = 620, 270  # pixels that the frame has at least, on a desk and on a phone
ROOM = 0.35  # decades left free around what is drawn
L2_LABEL_AT = 0.8  # of its line from the left: a label there stands in the corner above all roofs, which is empty


@dataclass(frozen=True)
class Mark:
    """A point: some Work at the intensity of a memory level; its label, empty where another mark has it."""

    work: Work
    level: str
    at: Place
    text: str


@dataclass(frozen=True)
class Name:
    """A roof's name, where it begins, and the pixels that it takes."""

    text: str
    at: Place
    box: Box


def roofline(found: Sequence[Work], roofs: Sequence[Roof], theme: Theme) -> go.Figure:
    """Roofs as lines, solid where measured; a Run filled at its HBM intensity and open at L2's, launches small."""
    known = _drawn(roofs)
    marks = _marks(found)
    frame = _frame(marks, known)
    figure = go.Figure(layout={"template": template(theme), "height": HEIGHT, "showlegend": False})
    _lines(figure, known, frame, theme)
    joints = _joints(figure, found, theme)
    for size in (replace(frame, width=NARROW), frame):
        kept = _hbm_name(known, size, marks, joints)
        beside_it = [] if kept is None else [kept.box]
        lines = [*(_ends(roof, known, size) for roof in known), *joints]
        chosen = places([mark.at for mark in marks], [mark.text for mark in marks], size, lines, beside_it)
        if all(place or not mark.text for place, mark in zip(chosen, marks, strict=True)):
            break
    if kept is not None:
        _words(figure, kept.text, kept.at, "left", "middle", theme)
    # Runs at HBM come first in the choice of places, and last on the canvas: above the larger diamonds.
    for mark, place in reversed(list(zip(marks, chosen, strict=True))):
        _draw(figure, mark, place, theme)
    figure.update_layout(
        hovermode="closest", dragmode=False, margin={"l": 8, "r": 12, "t": 8, "b": 8},
        hoverlabel={"bgcolor": theme.card, "bordercolor": theme.grid, "font": {"color": theme.ink}, "align": "left"},
    )  # fmt: skip
    figure.update_xaxes(title="arithmetic intensity, FLOP/B, log axis", **_axis(frame.x, lambda at: f"{at:,g}"))
    figure.update_yaxes(title="FLOP/s, log axis", **_axis(frame.y, lambda at: re.sub(r"\.0+ ", " ", flop_rate(at))))
    return figure


def _drawn(roofs: Sequence[Roof]) -> list[Roof]:
    """Those that are known; of L2 the one that counts."""
    known = [roof for roof in roofs if roof.rate is not None]
    within_l2 = [roof for roof in known if roof.level == L2]
    return [roof for roof in known if roof.level != L2 or roof is within_l2[0]]


def _marks(found: Sequence[Work]) -> list[Mark]:
    """Runs, then launches, at their HBM intensity; then Runs at L2's, named only where they have no other.

    Of several Runs' launches those of the last are named: the same name twice would not say whose it is.
    """
    works = sorted((work for work in found if work.reached), key=lambda work: work.launch is not None)
    split = works[-1].run if works and works[-1].launch else None
    marks = []
    for level in (HBM, L2):
        for work in works:
            at, reached = work.intensity(level), work.reached
            if at and reached and (level == HBM or work.launch is None):
                is_named = work.run is split if work.launch else level == HBM or not work.intensity(HBM)
                marks.append(Mark(work, level, (at, reached), work.title if is_named else ""))
    return marks


def _hbm_name(roofs: Sequence[Roof], frame: Frame, marks: Sequence[Mark], joints: Sequence[Line]) -> Name | None:
    """One name for both roofs of HBM, which lie close together, below the lower one; None where none is known."""
    hbm = [roof for roof in roofs if roof.level == HBM]
    if not hbm:
        return None
    text = ", ".join(f"{roof.name} {bandwidth(roof.rate)}" for roof in hbm).replace(", HBM", ",")
    lowest = _ends(min(hbm, key=lambda roof: roof.rate or 0.0), roofs, frame)
    return Name(text, *beside(lowest, text, frame, [mark.at for mark in marks], joints))


def _axis(ends: tuple[float, float], spell: Callable[[float], str]) -> dict[str, Any]:
    """Ticks at the decades, or at 1, 2 and 5 of each where fewer than two of them are on the axis."""
    exponents = range(math.floor(ends[0]), math.ceil(ends[1]) + 1)
    for steps in (1,), (1, 2, 5):
        places = [step * 10.0**exponent for exponent in exponents for step in steps]
        places = [place for place in places if ends[0] <= math.log10(place) <= ends[1]]
        if len(places) > 1:
            break
    ticks = {"tickvals": places, "ticktext": [spell(place) for place in places]}
    return {"type": "log", "range": list(ends), "fixedrange": True, "zeroline": False, **ticks}


def _frame(marks: Sequence[Mark], roofs: Sequence[Roof]) -> Frame:
    """Room for every point, and for where the slowest memory meets the highest peak."""
    across, up = [mark.at[0] for mark in marks], [mark.at[1] for mark in marks]
    memory, peaks = _rates(roofs, is_compute=False), _rates(roofs, is_compute=True)
    if memory and peaks:
        across += [max(peaks) / min(memory), min(peaks) / max(memory)]
    across = across or [1.0]
    left, right = math.log10(min(across)) - ROOM, math.log10(max(across)) + 2 * ROOM
    up += peaks
    up += [10**left * min(memory)] if memory else []
    up = up or [1e12]
    return Frame((left, right), (math.log10(min(up)) - ROOM, math.log10(max(up)) + ROOM), WIDE, FRAME_HEIGHT)


def _rates(roofs: Sequence[Roof], is_compute: bool) -> list[float]:
    return [roof.rate for roof in roofs if roof.rate is not None and (roof.level == COMPUTE) == is_compute]


def _lines(figure: go.Figure, roofs: Sequence[Roof], frame: Frame, theme: Theme) -> None:
    """The roofs; names of peaks stand above them, that of L2 in the corner above all, where nothing can be."""
    for roof in roofs:
        (x0, y0), (x1, y1) = _ends(roof, roofs, frame)
        colour = theme.muted if roof.level == L2 else theme.ink
        figure.add_scatter(
            x=[x0, x1], y=[y0, y1], mode="lines", name=roof.name, hoverinfo="skip",
            line={"color": colour, "width": 1.5, "dash": "solid" if roof.is_measured else "dash"},
        )  # fmt: skip
        if roof.level == COMPUTE:
            _words(figure, f"{roof.name} {flop_rate(roof.rate)}", (x1, y1), "right", "bottom", theme)
        if roof.level == L2:
            at = x0 ** (1 - L2_LABEL_AT) * x1**L2_LABEL_AT
            _words(figure, f"{roof.name} {bandwidth(roof.rate)}", (at, at * y0 / x0), "right", "bottom", theme)


def _ends(roof: Roof, roofs: Sequence[Roof], frame: Frame) -> tuple[Place, Place]:
    """A memory roof goes up to the highest peak; a peak begins where the fastest memory meets it."""
    assert roof.rate is not None
    left, right = (10.0**end for end in frame.x)
    memory, peaks = _rates(roofs, is_compute=False), _rates(roofs, is_compute=True)
    if roof.level == COMPUTE:
        start = max(left, ridge(max(memory), roof.rate)) if memory else left
        return (start, roof.rate), (right, roof.rate)
    end = min(right, ridge(roof.rate, max(peaks))) if peaks else right
    return (left, left * roof.rate), (end, end * roof.rate)


def _words(figure: go.Figure, text: str, at: tuple[float, float], side: str, height: str, theme: Theme) -> None:
    """A roof's name beside its line; annotations on logarithmic axes stand at exponents."""
    figure.add_annotation(
        x=math.log10(at[0]), y=math.log10(at[1]), text=escape(text), showarrow=False, xanchor=side, yanchor=height,
        xshift=16 if side == "left" else -4, font={"size": 12, "color": theme.muted},
    )  # fmt: skip


def _joints(figure: go.Figure, found: Sequence[Work], theme: Theme) -> list[Line]:
    """A thin line between the two intensities of each Run."""
    lines = []
    for work in found:
        left, right, reached = work.intensity(L2), work.intensity(HBM), work.reached
        if work.launch is None and left and right and reached:
            lines.append(((left, reached), (right, reached)))
            figure.add_scatter(
                x=[left, right], y=[reached, reached], mode="lines", hoverinfo="skip", name=f"{work.name}, L2 to HBM",
                line={"color": kernel_colour(work.run.workload.kernel, theme), "width": 1},
            )  # fmt: skip
    return lines


def _draw(figure: go.Figure, mark: Mark, place: str, theme: Theme) -> None:
    work, is_open = mark.work, mark.level == L2
    colour = kernel_colour(work.run.workload.kernel, theme)
    marker = {
        "color": theme.card if is_open else colour,
        "size": 12 if is_open else 6 if work.launch else 9,
        "symbol": "diamond" if is_open else "circle",
        "line": {"color": colour, "width": 2 if is_open else 0},
    }
    figure.add_scatter(
        x=[mark.at[0]], y=[mark.at[1]], mode="markers+text" if place else "markers", marker=marker, cliponaxis=False,
        text=[_padded(escape(mark.text), place)] if place else None, textposition=place or None,
        textfont={"color": theme.muted if work.launch else theme.ink, "size": 12},
        hovertext=[_told(work, mark.level)], hoverinfo="text", name=f"{work.title}, {mark.level}",
    )  # fmt: skip


def _padded(text: str, place: str) -> str:
    """Plotly keeps a label clear of its own marker; a space keeps it clear of a diamond around that too."""
    return f"\u00a0{text}" if "right" in place else f"{text}\u00a0" if "left" in place else text


def _told(work: Work, level: str) -> str:
    """What a point says under the mouse."""
    at = work.intensity(level) or 0.0
    title = work.name if work.launch is None else f"{work.name}, {work.title}"
    lines = [f"<b>{escape(title)}</b>", flop_rate(work.reached), f"{significant(at)} FLOP/B of {level} bytes"]
    if work.limited is not None:
        roof, share = work.limited
        lines.append(f"{percent(share)} of {escape(roof.in_words)}, which limits it")
    return "<br>".join(lines)
