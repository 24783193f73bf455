"""The allocations of one pass as stacked areas, a panel for each Run, on one axis or each on its own."""

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
GAP = 0.06  # of the width, between panels
MOST_STEPS, MOST_TENSORS = 400, 12  # of a panel
MOST_LABELS = 14  # steps that are named below the axis
LABELLED = 0.07  # of the axis: lower areas have their name on hover alone
ROOM = 1.06  # the axis ends that much above the peak


@dataclass(frozen=True)
class Panel:
    """One Run's plot. `top` is the bytes at which its axis ends, `number` what Plotly adds to its axes' names.

    has_scale tells whether it shows the bytes of its axis, or shares those of the first one.
    """

    name: str
    steps: Sequence[Step]
    top: int
    number: str
    domain: tuple[float, float]
    has_scale: bool

    @property
    def unit(self) -> str:
        """The unit of its axis."""
        return capacity(self.top).rpartition(" ")[2] or "B"

    @property
    def factor(self) -> float:
        """Bytes of that unit."""
        return FACTORS.get(self.unit, 1.0)


def timeline(named: Sequence[tuple[str, Run]], theme: Theme, is_common: bool = True) -> Picture | None:
    """What each allocation and free of a pass left allocated; None where no Run has a history."""
    found = [(name, few(steps(run.memory), MOST_STEPS, MOST_TENSORS)) for name, run in named if run.memory is not None]
    if not found:
        return None
    tops = [max(step.total for step in shown) for _, shown in found]
    width = (1 - GAP * (len(found) - 1)) / len(found)
    chart = go.Figure(layout={"template": template(theme), "height": 340, "showlegend": False, "margin": {"t": 24}})
    for index, ((name, shown), own) in enumerate(zip(found, tops, strict=True)):
        left, number = index * (width + GAP), "" if index == 0 else str(index + 1)
        top = max(tops) if is_common else own
        panel = Panel(name, shown, top, number, (left, left + width), index == 0 or not is_common)
        _areas(chart, panel, theme)
        _axes(chart, panel)
        _name(chart, panel, theme)
    caption = (
        "Each step is one allocation or free that the host asked for, in order; the launch it happened in is below. "
        "Bytes as asked for, inputs at the bottom. " + ("One axis for all." if is_common else "Each on its own axis.")
    )
    return Picture(TITLE, caption, chart, ("torch",))


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
            stackgroup=f"run{panel.number}", xaxis=f"x{panel.number}", yaxis=f"y{panel.number}",
            name=escape(title(tensor)),
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
        x=first + stays / 2, y=(below[first] + sizes[first] / 2) / panel.factor, xref=f"x{panel.number}",
        yref=f"y{panel.number}", showarrow=False, font={"color": ink, "size": 12},
        text=f"{escape(title(tensor))} {capacity(sizes[first])}",
    )  # fmt: skip


def _stays(sizes: Sequence[int], below: Sequence[int]) -> int:
    """For how many steps an area keeps its height and its place."""
    moves = (i for i in range(len(sizes)) if sizes[i] != sizes[0] or abs(below[i] - below[0]) > sizes[0] / 2)
    return next(moves, len(sizes))


def _axes(chart: go.Figure, panel: Panel) -> None:
    count = len(panel.steps)
    is_named = count <= MOST_LABELS
    x_axis: dict[str, object] = {
        "domain": panel.domain, "anchor": f"y{panel.number}", "range": [0, count], "fixedrange": True,
        "showgrid": False, "autotickangles": [0, 90], "title": {"text": "" if is_named else "allocations and frees"},
    }  # fmt: skip
    if is_named:
        words = [f"{escape(step.what)}<br>{escape(step.launch)}" for step in panel.steps]
        x_axis |= {"tickvals": [i + 0.5 for i in range(count)], "ticktext": words}
    y_axis = {
        "anchor": f"x{panel.number}", "range": [0, ROOM * panel.top / panel.factor], "fixedrange": True,
        "zeroline": False, "showticklabels": panel.has_scale,
        "title": {"text": f"allocated, {panel.unit}" if panel.has_scale else ""},
    }  # fmt: skip
    chart.update_layout({f"xaxis{panel.number}": x_axis, f"yaxis{panel.number}": y_axis})


def _name(chart: go.Figure, panel: Panel, theme: Theme) -> None:
    peak = max(step.total for step in panel.steps)
    chart.add_annotation(
        x=0, y=1, xref=f"x{panel.number} domain", yref=f"y{panel.number} domain", xanchor="left", yanchor="bottom",
        text=f"<b>{escape(panel.name)}</b>, peak {capacity(peak)}", font={"color": theme.ink, "size": 13},
        showarrow=False,
    )  # fmt: skip
