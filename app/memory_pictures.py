"""The peak of some Runs in parts, and how it came about, as charts."""

from collections.abc import Sequence
from html import escape

import plotly.graph_objects as go

from app.memory_split import (
    CACHED,
    CONTEXT,
    IN_PASS,
    INPUT_PART,
    OUTPUT_PART,
    ROUNDING,
    TEMPORARIES,
    Part,
    split,
)
from app.memory_steps import REST, Step, few, steps, title
from app.picture import Picture
from app.selection import Comparison
from app.stack_chart import FACTORS, Stack, stacks
from app.stack_chart import Part as Piece
from app.style import LIBRARY, STATE, TENSOR, Theme, capacity, shade, template, tensor_colour
from profiler.memory_names import EITHER
from profiler.memory_trace import OTHER, WORKSPACE
from profiler.run import Run

COLOURS = {
    INPUT_PART: TENSOR["q"],
    OUTPUT_PART: TENSOR["o"],
    TEMPORARIES: TENSOR["s"],
    IN_PASS: TENSOR["s"],
    WORKSPACE: TENSOR["k"],
    OTHER: TENSOR["p"],
    ROUNDING: STATE["m"],
    CACHED: TENSOR["mask"],
    CONTEXT: TENSOR["lse"],
}
IN_A_LINE = 2  # pieces named in one line below a bar: what a phone has room for
TOLD = 0.004  # of a bar: smaller pieces are told by the table alone
LABELLED = 0.07  # of the axis: lower areas have their name on hover alone
GAP = 0.06  # of the width, between the panels of a timeline
MOST_STEPS, MOST_TENSORS = 400, 12  # of a panel
MOST_LABELS = 14  # steps that are named below the axis


def peak_parts(found: Comparison, theme: Theme) -> Picture:
    """A bar for each Run as predicted, hatched, and one as measured, from the inputs to the CUDA context."""
    rows = []
    for name, run in zip(found.names, found.runs, strict=True):
        parts = [part for part in split(run) if part.name in COLOURS]
        told = [(part, part.predicted) for part in parts]
        seen = [(part, part.measured) for part in parts]
        rows.append(Stack(f"{name}, predicted", _pieces(told, theme), is_measured=False))
        reason = "" if _pieces(seen, theme) else parts[0].reason
        rows.append(Stack(f"{name}, measured", _pieces(seen, theme), lines=_lines(seen, theme), reason=reason))
    caption = (
        "Hatched: predicted from the tensors' sizes and the allocator's rules. Solid: torch's allocator in one pass "
        "after warm-up, and the CUDA context by NVML. The table below has every byte, and why the two differ."
    )
    has_context = any(run.value("context_bytes") is not None for run in found.runs)
    sources = ("model", "torch", *(("nvml",) if has_context else ()))
    return Picture("Peak memory, part by part", caption, stacks(rows, "memory", theme, capacity), sources)


def _pieces(values: Sequence[tuple[Part, float | None]], theme: Theme) -> tuple[Piece, ...]:
    named = ((part.label or part.name, value, shade(COLOURS[part.name], theme)) for part, value in values)
    return tuple(Piece(name, value, colour) for name, value, colour in named if value)


def _lines(values: Sequence[tuple[Part, float | None]], theme: Theme) -> tuple[str, ...]:
    """What the colours of a bar are, in their order."""
    pieces = _pieces(values, theme)
    total = sum(piece.value for piece in pieces)
    words = [
        f'<span style="color:{piece.colour}">■</span> {escape(piece.name)} {capacity(piece.value)}'
        for piece in pieces
        if piece.value >= TOLD * total
    ]
    return tuple("  ".join(words[i : i + IN_A_LINE]) for i in range(0, len(words), IN_A_LINE))


def timeline(named: Sequence[tuple[str, Run]], theme: Theme, is_common: bool = True) -> Picture | None:
    """What each allocation and free of a pass left allocated, a panel for each Run that has a history."""
    shown = [(name, few(steps(run.memory), MOST_STEPS, MOST_TENSORS)) for name, run in named if run.memory is not None]
    if not shown:
        return None
    tops = [max(step.total for step in found) for _, found in shown]
    chart = go.Figure(layout={"template": template(theme), "height": 340, "showlegend": False, "margin": {"t": 24}})
    width = (1 - GAP * (len(shown) - 1)) / len(shown)
    for index, ((name, found), own) in enumerate(zip(shown, tops, strict=True)):
        left = index * (width + GAP)
        _panel(chart, index, (left, left + width), name, found, max(tops) if is_common else own, theme, is_common)
    caption = (
        "Each step is one allocation or free that the host asked for, in order; the launch it happened in is below. "
        "Bytes as asked for, inputs at the bottom. " + ("One axis for all." if is_common else "Each on its own axis.")
    )
    return Picture("Allocations of one pass", caption, chart, ("torch",))


def _panel(
    chart: go.Figure, index: int, domain: tuple[float, float], name: str, found: Sequence[Step], top: float,
    theme: Theme, is_common: bool,
) -> None:  # fmt: skip
    """Areas on each other, one for each tensor, those that were there first at the bottom."""
    number = "" if index == 0 else str(index + 1)
    unit = capacity(top).rpartition(" ")[2] or "B"
    factor = FACTORS.get(unit, 1.0)
    tensors = list(dict.fromkeys(tensor for step in found for tensor in step.alive))
    below = [0.0] * len(found)
    for tensor in tensors:
        sizes = [step.alive.get(tensor, 0) for step in found]
        colour = shade(_colour(tensor), theme)
        words = [
            f"{escape(step.what)}: {escape(title(tensor))} {capacity(size)}"
            for step, size in zip(found, sizes, strict=True)
        ]
        edges = [*range(len(found)), len(found)]
        chart.add_scatter(
            x=edges, y=[*(size / factor for size in sizes), sizes[-1] / factor], mode="lines",
            stackgroup=f"run{number}", line={"shape": "hv", "width": 0.5, "color": colour}, fillcolor=colour,
            hoverinfo="text", hovertext=[*words, words[-1]], xaxis=f"x{number}", yaxis=f"y{number}",
            name=escape(title(tensor)),
        )  # fmt: skip
        largest = max(range(len(found)), key=lambda i: sizes[i])
        if sizes[largest] >= LABELLED * top:
            stays = _stays(sizes[largest:], below[largest:])
            chart.add_annotation(
                x=largest + stays / 2, y=(below[largest] + sizes[largest] / 2) / factor,
                xref=f"x{number}", yref=f"y{number}", showarrow=False, font={"color": "#000000", "size": 12},
                text=f"{escape(title(tensor))} {capacity(sizes[largest])}",
            )  # fmt: skip
        below = [under + size for under, size in zip(below, sizes, strict=True)]
    peak = max(below)
    chart.add_annotation(
        x=0, y=1, xref=f"x{number} domain", yref=f"y{number} domain", xanchor="left", yanchor="bottom", showarrow=False,
        text=f"<b>{escape(name)}</b>, peak {capacity(peak)}", font={"color": theme.ink, "size": 13},
    )  # fmt: skip
    labels = [_label(step) for step in found] if len(found) <= MOST_LABELS else None
    chart.update_layout(
        {
            f"xaxis{number}": {
                "domain": domain, "anchor": f"y{number}", "range": [0, len(found)], "fixedrange": True,
                "showgrid": False, "tickvals": [i + 0.5 for i in range(len(found))] if labels else None,
                "ticktext": labels, "autotickangles": [0, 90],
                "title": {"text": "" if labels else "allocations and frees"},
            },
            f"yaxis{number}": {
                "anchor": f"x{number}", "range": [0, 1.06 * top / factor], "fixedrange": True, "zeroline": False,
                "title": {"text": f"allocated, {unit}" if index == 0 or not is_common else ""},
                "showticklabels": index == 0 or not is_common,
            },
        }
    )  # fmt: skip


def _stays(sizes: Sequence[int], below: Sequence[float]) -> int:
    """For how many steps an area keeps its height and its place."""
    moves = (i for i in range(len(sizes)) if sizes[i] != sizes[0] or abs(below[i] - below[0]) > sizes[0] / 2)
    return next(moves, len(sizes))


def _label(step: Step) -> str:
    return f"{escape(step.what)}<br>{escape(step.launch)}"


def _colour(tensor: str) -> str:
    if tensor in (WORKSPACE, OTHER, REST, ""):
        return COLOURS.get(tensor, LIBRARY)
    return tensor_colour(tensor.partition(EITHER)[0])
