"""Bytes of each launch as upright bars, read and written on top of each other."""

from html import escape

import plotly.graph_objects as go

from app.stack_chart import HATCH
from app.style import DIRECTION, Theme, ink_on, template, traffic

ROOM = 0.12  # share of the tallest bar from which a piece has room for its own name

MOST_LARGE = 6  # bars whose totals have room in the usual size


def launch_stacks(
    parts: dict[str, dict[str, float]], axis_title: str, is_measured: bool, theme: Theme, height: int = 250
) -> go.Figure:
    """parts: direction, then launch, then bytes. Pieces name their direction; a legend does where none has room."""
    names = list(dict.fromkeys(name for part in parts.values() for name in part))
    shown = [escape(name) for name in names]  # Plotly reads a subset of HTML
    totals = [sum(part.get(name, 0.0) for part in parts.values()) for name in names]
    tallest = max(totals, default=0.0)
    unit = traffic(tallest).rpartition(" ")[2]
    factor = {"TB": 1e12, "GB": 1e9, "MB": 1e6, "kB": 1e3}.get(unit, 1.0)
    figure = go.Figure()
    for direction, part in parts.items():
        colour = DIRECTION[direction]
        marker: dict[str, object] = {"color": colour, "line": {"width": 1, "color": colour}}
        if not is_measured:
            marker["pattern"] = HATCH | {"bgcolor": theme.card}
        sizes = [part.get(name, 0.0) for name in names]
        labels = [direction if size >= ROOM * tallest and is_measured else "" for size in sizes]
        figure.add_bar(
            name=direction,
            x=shown,
            y=[size / factor for size in sizes],
            marker=marker,
            text=labels,
            textposition="inside",
            insidetextanchor="middle",
            textangle=0,
            textfont={"color": ink_on(colour), "size": 12},
            hovertext=[f"{escape(name)}, {direction} {traffic(part.get(name))}" for name in names],
            hoverinfo="text",
            showlegend=not any(labels),
        )
    figure.add_scatter(
        x=shown,
        y=[total / factor for total in totals],
        text=[traffic(total) for total in totals],
        mode="text",
        textfont={"size": 12 if len(names) <= MOST_LARGE else 10},
        textposition="top center",
        hoverinfo="skip",
        showlegend=False,
        cliponaxis=False,
    )
    figure.update_layout(template=template(theme), barmode="stack", height=height, margin={"t": 30, "b": 8})
    figure.update_yaxes(title=f"{axis_title}, {unit}", rangemode="tozero", fixedrange=True)
    figure.update_xaxes(showgrid=False, fixedrange=True, tickfont={"color": theme.ink})
    return figure
