"""Draws a roofline: FLOP/s over arithmetic intensity, both logarithmic, with the roofs of one GPU."""

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from app.level_table import percent
from app.roofline_labels import Frame, places
from app.roofline_work import Work
from app.roofs import COMPUTE, HBM, L2, Roof
from app.style import Theme, bandwidth, flop_rate, kernel_colour, significant, template
from profiler.roofline import ridge

HEIGHT, FRAME_HEIGHT = 460, 390
WIDE, NARROW = 620, 270  # pixels that the frame has at least, on a desk and on a phone
ROOM = 0.35  # decades left free around what is drawn
L2_LABEL_AT = 0.8  # of its line from the left: a label there stands in the corner above all roofs, which is empty


def roofline(found: Sequence[Work], roofs: Sequence[Roof], theme: Theme) -> go.Figure:
    """Roofs as lines, solid where measured; a Run filled at its HBM intensity and open at L2's, launches small."""
    points = [work for work in found if work.reached]
    known = [roof for roof in roofs if roof.rate is not None]
    frame = _frame(points, known)
    figure = go.Figure(layout={"template": template(theme), "height": HEIGHT, "showlegend": False})
    _lines(figure, known, frame, theme)
    _joints(figure, points, theme)
    _points(figure, points, frame, theme)
    figure.update_layout(
        hovermode="closest", dragmode=False, margin={"l": 8, "r": 12, "t": 8, "b": 8},
        hoverlabel={"bgcolor": theme.card, "bordercolor": theme.grid, "font": {"color": theme.ink}, "align": "left"},
    )  # fmt: skip
    figure.update_xaxes(title="arithmetic intensity, FLOP/B, log axis", **_axis(frame.x, lambda at: f"{at:,g}"))
    figure.update_yaxes(title="FLOP/s, log axis", **_axis(frame.y, lambda at: flop_rate(at).replace(".00", "")))
    return figure


def _axis(ends: tuple[float, float], spell: Any) -> dict[str, Any]:
    decades = [10.0**exponent for exponent in range(math.ceil(ends[0]), math.floor(ends[1]) + 1)]
    ticks = {"tickvals": decades, "ticktext": [spell(decade) for decade in decades]}
    return {"type": "log", "range": list(ends), "fixedrange": True, "zeroline": False, **ticks}


def _frame(points: Sequence[Work], roofs: Sequence[Roof]) -> Frame:
    """Room for every point, and for where the slowest memory meets the highest peak."""
    across = [at for work in points for level in (HBM, L2) if (at := work.intensity(level))]
    up = [work.reached for work in points if work.reached]
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
    """Memory roofs up to the highest peak; peaks from where the fastest memory meets them."""
    left, right = (10.0**end for end in frame.x)
    memory, peaks = _rates(roofs, is_compute=False), _rates(roofs, is_compute=True)
    for roof in roofs:
        assert roof.rate is not None
        if roof.level == COMPUTE:
            x = (max(left, ridge(max(memory), roof.rate)) if memory else left, right)
            y = (roof.rate, roof.rate)
        else:
            x = (left, min(right, ridge(roof.rate, max(peaks))) if peaks else right)
            y = (x[0] * roof.rate, x[1] * roof.rate)
        colour = theme.muted if roof.level == L2 else theme.ink
        figure.add_scatter(
            x=x, y=y, mode="lines", name=roof.name, hoverinfo="skip",
            line={"color": colour, "width": 1.5, "dash": "solid" if roof.is_measured else "dash"},
        )  # fmt: skip
        if roof.level == COMPUTE:
            _words(figure, f"{roof.name} {flop_rate(roof.rate)}", (x[1], y[1]), "right", "bottom", theme)
        if roof.level == L2:
            at = x[0] ** (1 - L2_LABEL_AT) * x[1] ** L2_LABEL_AT
            _words(figure, f"{roof.name} {bandwidth(roof.rate)}", (at, at * roof.rate), "right", "bottom", theme)
    hbm = [roof for roof in roofs if roof.level == HBM]
    if hbm:
        lowest = min(roof.rate or 0.0 for roof in hbm)
        text = ", ".join(f"{roof.name} {bandwidth(roof.rate)}" for roof in hbm).replace(", HBM", ",")
        _words(figure, text, (left, left * lowest), "left", "middle", theme)


def _words(figure: go.Figure, text: str, at: tuple[float, float], side: str, height: str, theme: Theme) -> None:
    """A roof's name beside its line; annotations on logarithmic axes stand at exponents."""
    figure.add_annotation(
        x=math.log10(at[0]), y=math.log10(at[1]), text=escape(text), showarrow=False, xanchor=side, yanchor=height,
        xshift=16 if side == "left" else -4, font={"size": 12, "color": theme.muted},
    )  # fmt: skip


def _joints(figure: go.Figure, points: Sequence[Work], theme: Theme) -> None:
    """A thin line between the two intensities of one Run."""
    for work in points:
        ends = [at for level in (L2, HBM) if (at := work.intensity(level))]
        if work.launch is None and len(ends) == 2:
            figure.add_scatter(
                x=ends, y=[work.reached] * 2, mode="lines", hoverinfo="skip", name=f"{work.name}, L2 to HBM",
                line={"color": kernel_colour(work.run.workload.kernel, theme), "width": 1},
            )  # fmt: skip


def _points(figure: go.Figure, points: Sequence[Work], frame: Frame, theme: Theme) -> None:
    """Runs before launches, since they choose the place of their label first."""
    ordered = sorted(points, key=lambda work: work.launch is not None)
    marks = [(work, level) for level in (HBM, L2) for work in ordered if work.launch is None or level == HBM]
    marks = [(work, level) for work, level in marks if work.intensity(level)]
    where = [(work.intensity(level) or 1.0, work.reached or 1.0) for work, level in marks]
    named = {(id(work)) for work, level in marks if level == HBM}
    texts = [work.title if level == HBM or id(work) not in named else "" for work, level in marks]
    narrow = Frame(frame.x, frame.y, NARROW, frame.height)
    chosen = places(where, texts, narrow)
    if any(text and not place for text, place in zip(texts, chosen, strict=True)):
        chosen = places(where, texts, frame)
    for (work, level), (x, y), text, place in zip(marks, where, texts, chosen, strict=True):
        colour = kernel_colour(work.run.workload.kernel, theme)
        is_open = level == L2
        marker = {
            "color": theme.card if is_open else colour,
            "size": 6 if work.launch else 11,
            "symbol": "diamond" if is_open else "circle",
            "line": {"color": colour, "width": 2 if is_open else 0},
        }
        figure.add_scatter(
            x=[x], y=[y], mode="markers+text" if place else "markers", marker=marker, cliponaxis=False,
            text=[escape(text)] if place else None, textposition=place or None,
            textfont={"color": theme.muted if work.launch else theme.ink, "size": 12},
            hovertext=[_told(work, level)], hoverinfo="text", name=f"{work.title}, {level}",
        )  # fmt: skip


def _told(work: Work, level: str) -> str:
    """What a point says under the mouse."""
    at = work.intensity(level) or 0.0
    title = work.name if work.launch is None else f"{work.name}, {work.title}"
    lines = [f"<b>{escape(title)}</b>", flop_rate(work.reached), f"{significant(at)} FLOP/B of {level} bytes"]
    if work.limited is not None:
        roof, share = work.limited
        lines.append(f"{percent(share)} of the {escape(roof.name)}, which limits it")
    return "<br>".join(lines)
