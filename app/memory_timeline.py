"""The allocations of one pass as stacked areas, a chart for each Run, on one axis or each on its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import plotly.graph_objects as go

from app.memory_bars import memory_colour
from app.memory_steps import Step, few, steps, title
from app.picture import Picture
from app.stack_chart import FACTORS
from app.style import Theme, capacity, ink_on, template
from profiler.run import Run

TITLE = "Allocations of one pass"
MOST_STEPS, MOST_TENSORS = 400, 12  # of a panel
MOST_LABELS = 14  # steps that are named below the axis
LABELLED = 0.07  # of the axis: lower areas have their name on hover alone
ROOM = 1.06  # the axis ends that much above the peak


@dataclass(frozen=True)
class Panel:
    """One Run's plot; `top` is the bytes at which its axis ends."""

    name: str
    steps: Sequence[Step]
    top: int

    @property
    def unit(self) -> str:
        """The unit of its axis."""
        return capacity(self.top).rpartition(" ")[2] or "B"

    @property
    def factor(self) -> float:
        """Bytes of that unit."""
        return FACTORS.get(self.unit, 1.0)


def timelines(named: Sequence[tuple[str, Run]], theme: Theme, is_common: bool = True) -> tuple[Picture, ...]:
    """What each allocation and free of a pass left allocated, a picture for each Run that has a history."""
    found = [(name, few(steps(run.memory), MOST_STEPS, MOST_TENSORS)) for name, run in named if run.memory is not None]
    tops = [max(step.total for step in shown) for _, shown in found]
    caption = (
        "Each step is one allocation or free that the host asked for, in order; the launch it happened in is below. "
        "Bytes as asked for, inputs at the bottom."
    )
    if len(found) > 1:
        caption += " One axis for all." if is_common else " Each on its own axis."
    return tuple(
        Picture(
            TITLE if len(found) == 1 else f"{TITLE}, {name}",
            caption,
            _chart(Panel(name, shown, max(tops) if is_common else own), theme),
            ("torch",),
        )
        for (name, shown), own in zip(found, tops, strict=True)
    )


def _chart(panel: Panel, theme: Theme) -> go.Figure:
    chart = go.Figure(layout={"template": template(theme), "height": 340, "showlegend": False, "margin": {"t": 24}})
    _areas(chart, panel, theme)
    _axes(chart, panel)
    _name(chart, panel, theme)
    return chart


def _areas(chart: go.Figure, panel: Panel, theme: Theme) -> None:
    """One area for each tensor, on each other in the order in which they came."""
    below = [0] * len(panel.steps)
    for tensor in dict.fromkeys(tensor for step in panel.steps for tensor in step.alive):
        sizes = [step.alive.get(tensor, 0) for step in panel.steps]
        colour, heights = memory_colour(tensor, theme), [size / panel.factor for size in sizes]
        words = [
            f"{escape(step.what)}: {escape(title(tensor))} {capacity(size)}"
            for step, size in zip(panel.steps, sizes, strict=True)
        ]
        # A level ends where the next one begins, and the last at the end of the axis.
        chart.add_scatter(
            x=list(range(len(sizes) + 1)), y=[*heights, heights[-1]], hovertext=[*words, words[-1]], hoverinfo="text",
            mode="lines", line={"shape": "hv", "width": 0.5, "color": colour}, fillcolor=colour,
            stackgroup="tensors", name=escape(title(tensor)),
        )  # fmt: skip
        _label_area(chart, panel, tensor, sizes, below, ink_on(colour))
        below = [under + size for under, size in zip(below, sizes, strict=True)]


def _label_area(
    chart: go.Figure, panel: Panel, tensor: str, sizes: Sequence[int], below: Sequence[int], ink: str
) -> None:
    """A tensor's name in the middle of its area, where that is high enough."""
    first = max(range(len(sizes)), key=lambda i: sizes[i])
    if sizes[first] < LABELLED * panel.top:
        return
    stays = _stays(sizes[first:], below[first:])
    chart.add_annotation(
        x=first + stays / 2, y=(below[first] + sizes[first] / 2) / panel.factor, showarrow=False,
        font={"color": ink, "size": 12}, text=f"{escape(title(tensor))} {capacity(sizes[first])}",
    )  # fmt: skip


def _stays(sizes: Sequence[int], below: Sequence[int]) -> int:
    """For how many steps an area keeps its height and its place."""
    moves = (i for i in range(len(sizes)) if sizes[i] != sizes[0] or abs(below[i] - below[0]) > sizes[0] / 2)
    return next(moves, len(sizes))


def _axes(chart: go.Figure, panel: Panel) -> None:
    count = len(panel.steps)
    is_named = count <= MOST_LABELS
    x_axis: dict[str, object] = {
        "range": [0, count], "fixedrange": True, "showgrid": False, "autotickangles": [0, 90],
        "title": {"text": "" if is_named else "allocations and frees"},
    }  # fmt: skip
    if is_named:
        words = [f"{escape(step.what)}<br>{escape(step.launch)}" for step in panel.steps]
        x_axis |= {"tickvals": [i + 0.5 for i in range(count)], "ticktext": words}
    y_axis = {
        "range": [0, ROOM * panel.top / panel.factor], "fixedrange": True, "zeroline": False,
        "title": {"text": f"allocated, {panel.unit}"},
    }  # fmt: skip
    chart.update_layout(xaxis=x_axis, yaxis=y_axis)


def _name(chart: go.Figure, panel: Panel, theme: Theme) -> None:
    peak = max(step.total for step in panel.steps)
    chart.add_annotation(
        x=0, y=1, xref="x domain", yref="y domain", xanchor="left", yanchor="bottom",
        text=f"<b>{escape(panel.name)}</b>, peak {capacity(peak)}", font={"color": theme.ink, "size": 13},
        showarrow=False,
    )  # fmt: skip
