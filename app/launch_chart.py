"""Draws the launches of a kernel as a table of bytes: a row for each launch, a column for each tensor."""

import plotly.graph_objects as go

from app.style import DIRECTION, TENSOR, Theme, ink_on, template, tensor_colour, traffic
from app.tensor_names import tensor_title
from kernels.schedule import Launch, Schedule

TITLES = {"qk": "QKᵀ", "pv": "PV", "scale_ds": "scale dS"}
TITLES |= {name: tensor_title(name) for name in ("dv", "dp", "ds", "dq", "dk")}


def launch_title(name: str, kernel: str = "") -> str:
    """A launch's name as people write it; beside its `kernel`'s, of which it is one of several, it has not the same."""
    return "forward" if name == kernel else TITLES.get(name, name.replace("_", " "))


def launch_steps(schedule: Schedule, current: int, theme: Theme, height: int = 470) -> go.Figure:
    """Each launch's requested bytes by tensor; read and written in their colours, later launches pale."""
    launches = schedule.launches
    tensors = list(schedule.by_tensor)
    figure = go.Figure(layout={"template": template(theme), "height": height, "showlegend": False})
    for row, launch in enumerate(launches):
        for column, tensor in enumerate(tensors):
            _cell(figure, launch, tensor, (column, row), row <= current)
    figure.add_shape(
        type="rect", x0=-0.5, x1=len(tensors) - 0.5, y0=current - 0.5, y1=current + 0.5,
        line={"color": TENSOR["p"], "width": 2}, fillcolor="rgba(0,0,0,0)",
    )  # fmt: skip
    figure.update_xaxes(
        side="top", tickmode="array", tickvals=list(range(len(tensors))), range=[-0.5, len(tensors) - 0.5],
        ticktext=[f'<span style="color:{tensor_colour(t)}">■</span> {tensor_title(t)}' for t in tensors],
        tickfont_color=theme.ink, showgrid=False, zeroline=False, fixedrange=True,
    )  # fmt: skip
    figure.update_yaxes(
        tickmode="array", tickvals=list(range(len(launches))), range=[len(launches) - 0.5, -0.5],
        ticktext=[f"{i + 1} {launch_title(launch.name)}" for i, launch in enumerate(launches)],
        tickfont_color=theme.ink, showgrid=False, zeroline=False, fixedrange=True,
    )  # fmt: skip
    return figure


def _cell(figure: go.Figure, launch: Launch, tensor: str, place: tuple[int, int], done: bool) -> None:
    both = (("read", launch.reads), ("write", launch.writes))
    parts = [(verb, part[tensor]) for verb, part in both if tensor in part]
    column, row = place
    for index, (verb, size) in enumerate(parts):
        half = 0.8 / len(parts)
        top = row - 0.4 + index * half
        ink = ink_on(DIRECTION[verb]) if done else None
        figure.add_shape(
            type="rect", x0=column - 0.44, x1=column + 0.44, y0=top + 0.02, y1=top + half - 0.02, line_width=0,
            fillcolor=DIRECTION[verb], opacity=0.9 if done else 0.3,
            label={"text": f"{verb}<br>{traffic(size)}", "font": {"color": ink, "size": 11}},
        )  # fmt: skip
