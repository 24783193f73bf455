"""Bandwidths of several Runs above one time axis: HBM of each with its launches marked, L2↔SM of all below."""

import re
from collections.abc import Sequence
from html import escape, unescape

import plotly.graph_objects as go

from app.bandwidth_panel import DASHES, MS, Panel, Row, pale
from app.bandwidth_scale import Scale, hbm_scales
from app.launch_chart import launch_title
from app.sampled import Drawn, Sampled, drawn
from app.style import DIRECTION, Theme, bandwidth, kernel_colour, ratio, seconds, significant, template
from profiler.run import LaunchSpan

TITLE_PIXELS, STRIP_PIXELS, HBM_PIXELS, L2_PIXELS, GAP_PIXELS, AXIS_PIXELS = 21, 22, 112, 92, 14, 42
LINE_LETTERS = 48  # that a title's line takes on a phone
EDGE = 0.01  # share of the shown time left free at both ends
RIGHT_PIXELS = 38  # for the name of a drain that ends the picture


class _Layout:
    """Puts axes below each other, from the top; pixels become shares of the height once all are known."""

    def __init__(self) -> None:
        self.top = 0.0
        self._axes: list[tuple[float, float, dict[str, object]]] = []
        self._titles: list[tuple[float, str]] = []

    def title(self, words: Sequence[str]) -> None:
        """A line of words, or more where a phone has no room for them."""
        lines = [""]
        for word in words:
            together = f"{lines[-1]}   {word}" if lines[-1] else word
            is_short = len(unescape(re.sub("<[^>]*>", "", together))) <= LINE_LETTERS
            lines = [*lines[:-1], together] if is_short or not lines[-1] else [*lines, word]
        self._titles.append((self.top, "<br>".join(lines)))
        self.top += TITLE_PIXELS * len(lines)

    def axis(self, pixels: float, **options: object) -> str:
        """The name of a new y axis."""
        self._axes.append((self.top, self.top + pixels, options))
        self.top += pixels
        return self.last

    @property
    def last(self) -> str:
        """The name of the lowest y axis."""
        return "y" if len(self._axes) == 1 else f"y{len(self._axes)}"

    def apply(self, figure: go.Figure) -> None:
        """Give the figure its height, axes and titles."""
        figure.update_layout(height=self.top + AXIS_PIXELS)
        for index, (top, bottom, options) in enumerate(self._axes):
            domain = [max(0.0, 1 - bottom / self.top), 1 - top / self.top]
            figure.update_layout(
                {f"yaxis{index + 1 if index else ''}": {"domain": domain, "fixedrange": True, **options}}
            )
        for top, text in self._titles:
            figure.add_annotation(
                text=text, x=0, xref="x domain", xanchor="left", y=1 - top / self.top, yref="paper", yanchor="top",
                align="left", showarrow=False, font={"size": 13}, borderpad=0,
            )  # fmt: skip


def over_time(rows: Sequence[Row], theme: Theme) -> go.Figure:
    """HBM of each Run, the first on top, a low one magnified; below them L2↔SM where it was sampled."""
    parts = [drawn(row.samples) for row in rows]
    figure = go.Figure(layout={"template": template(theme), "showlegend": False})
    figure.update_layout(
        margin={"l": 8, "r": RIGHT_PIXELS, "t": 0, "b": AXIS_PIXELS}, hovermode="x", barmode="overlay",
        uniformtext={"mode": "hide", "minsize": 11},
        hoverlabel={"bgcolor": theme.card, "bordercolor": theme.grid, "font": {"color": theme.ink}, "align": "left"},
    )  # fmt: skip
    layout = _Layout()
    windows = [row.samples.window() for row in rows]
    start, end = min(start for start, _ in windows), max(end for _, end in windows)
    named: set[tuple[float | None, str]] = set()
    for row, part, scale in zip(rows, parts, hbm_scales([row.samples for row in rows]), strict=True):
        magnified = "" if scale.magnified is None else f", magnified {ratio(scale.magnified)}"
        axis = f"HBM, {scale.unit}{magnified}"
        layout.title([_head(row.name, axis, theme), *([_key(parts, theme)] if row is rows[0] else [])])
        is_marked = bool(row.samples.launches or row.samples.drain)
        strip = layout.axis(STRIP_PIXELS, visible=False, range=[0, 1]) if is_marked else ""
        panel = Panel(figure, layout.axis(HBM_PIXELS, range=[0, scale.top], nticks=4), scale, theme)
        layout.top += GAP_PIXELS
        panel.hbm(row, part)
        if is_marked:
            _launches(panel, row.samples, strip)
        is_named = (row.samples.peak, row.peak_source) not in named
        if row.samples.peak is not None and row.samples.peak > scale.rate:
            _peak_beyond(panel, row, is_named, (start + end) / 2)
        else:
            _peak(panel, row, is_named)
        named.add((row.samples.peak, row.peak_source))
    _crossing(figure, layout, list(zip(rows, parts, strict=True)), theme)
    layout.apply(figure)
    free = EDGE * (end - start)
    figure.update_xaxes(
        title_text="ms after the first launch", range=[(start - free) * MS, (end + free) * MS], anchor=layout.last,
        fixedrange=True, zeroline=False, hoverformat=".3f", nticks=9, title_standoff=8,
    )  # fmt: skip
    return figure


def _head(name: str, axis: str, theme: Theme) -> str:
    return f'<b>{escape(name)}</b>  <span style="color:{theme.muted};font-size:12px">{axis}</span>'


def _colour(colour: str, text: str, theme: Theme, sign: str = "■") -> str:
    return f'<span style="color:{colour}">{sign}</span> <span style="color:{theme.muted};font-size:12px">{text}</span>'


def _key(parts: Sequence[Drawn], theme: Theme) -> str:
    """What the colours of the first row mean; they mean the same in the others."""
    words = [_colour(DIRECTION[direction], direction, theme) for direction in ("read", "write")]
    is_thinned = any(part.is_thinned for part in parts)
    return "   ".join([*words, _colour(pale(theme), "highest", theme)] if is_thinned else words)


def _launches(panel: Panel, found: Sampled, strip: str) -> None:
    """A strip of launches above the panel, named where there is room, and lines where they begin; the drain is pale."""
    theme, spans = panel.theme, found.launches
    if spans:
        _strip(panel, found, spans, strip)
    if found.drain is not None:
        spans = (*spans, found.drain)
        _strip(panel, found, (found.drain,), strip)
        panel.figure.add_shape(
            type="rect", x0=found.drain.start * MS, x1=found.drain.end * MS, y0=0, y1=1, yref=f"{panel.axis} domain",
            fillcolor=theme.card, opacity=0.5, line_width=0,
        )  # fmt: skip
    moments = sorted({moment * MS for span in spans for moment in (span.start, span.end)})
    panel.figure.add_scatter(
        x=[x for moment in moments for x in (moment, moment, None)], y=[0, panel.scale.top, None] * len(moments),
        yaxis=panel.axis, mode="lines", line={"color": theme.muted, "width": 1, "dash": "dot"}, opacity=0.6,
        hoverinfo="skip", name="launches begin",
    )  # fmt: skip


def _strip(panel: Panel, found: Sampled, spans: tuple[LaunchSpan, ...], axis: str) -> None:
    theme, is_drain = panel.theme, spans == (found.drain,)
    hatch = {"shape": "/", "size": 4, "solidity": 0.3, "fgcolor": theme.muted, "bgcolor": theme.card}
    marker: dict[str, object] = {"pattern": hatch} if is_drain else {"color": theme.grid}
    panel.figure.add_bar(
        base=[span.start * MS for span in spans],
        x=[(span.end - span.start) * MS for span in spans],
        y=[0.5] * len(spans),
        width=1,
        orientation="h",
        yaxis=axis,
        marker={"line": {"color": theme.card, "width": 1}, **marker},
        text=[escape(launch_title(span.launch)) for span in spans],
        textposition="outside" if is_drain else "inside",
        textangle=0,
        insidetextanchor="middle",
        textfont={"size": 11, "color": theme.muted if is_drain else theme.ink},
        cliponaxis=False,
        hovertext=[_told(found, span, panel.scale) for span in spans],
        hoverinfo="text",
        name="drain" if is_drain else "launches",
    )


def _told(found: Sampled, span: LaunchSpan, scale: Scale) -> str:
    name, took = escape(launch_title(span.launch)), span.end - span.start
    if took <= 0:
        return name
    read, write = (found.average(values, span.start, span.end) for values in (found.read, found.write))
    if read is None or write is None:
        average = "not sampled"
    elif found.peak is not None and read + write > found.peak:
        average = "on average above the peak, so not told"
    else:
        rates = (significant(rate / scale.factor) for rate in (read, write))
        average = "on average read {}, write {} {}".format(*rates, scale.unit)
        if missing := found.missing(span.start, span.end):
            average += f", without {missing:,} missing sample{'' if missing == 1 else 's'}"
    return f"{name}, {seconds(took)}<br>{average}"


def _peak(panel: Panel, row: Row, is_named: bool) -> None:
    if row.samples.peak is None:
        return
    at, theme = row.samples.peak / panel.scale.factor, panel.theme
    panel.figure.add_shape(
        type="line", xref="x domain", x0=0, x1=1, yref=panel.axis, y0=at, y1=at,
        line={"color": theme.ink, "width": 1, "dash": "dash"},
    )  # fmt: skip
    if is_named:
        source = f" ({escape(row.peak_source)})" if row.peak_source else ""
        panel.figure.add_annotation(
            text=f"peak {bandwidth(row.samples.peak)}{source}", xref="x domain", x=1, xanchor="right", yref=panel.axis,
            y=at, yanchor="bottom", showarrow=False, font={"size": 11, "color": theme.muted}, borderpad=1,
            bgcolor=theme.card,
        )  # fmt: skip


def _peak_beyond(panel: Panel, row: Row, is_sourced: bool, middle: float) -> None:
    """The peak in words where it lies beyond the scale, at the right; left of a drain that is right of `middle`."""
    peak, drain, one_pass = row.samples.peak, row.samples.drain, row.samples.one_pass
    if peak is None:
        return
    lines = [f"peak {bandwidth(peak)}, {ratio(peak / panel.scale.rate)} this scale"]
    if is_sourced and row.peak_source:
        lines.append(f"({escape(row.peak_source)})")
    moments = [] if drain is None else [drain.start, *(one_pass or ())]
    beside = min((moment * MS for moment in moments if moment > middle), default=None)
    panel.figure.add_annotation(
        text="<br>".join(lines), xref="x domain" if beside is None else "x", x=1 if beside is None else beside,
        xanchor="right", yref=f"{panel.axis} domain", y=1, yanchor="top", align="right", showarrow=False,
        font={"size": 11, "color": panel.theme.muted}, borderpad=1, xshift=0 if beside is None else -4,
    )  # fmt: skip


def _crossing(figure: go.Figure, layout: _Layout, rows: Sequence[tuple[Row, Drawn]], theme: Theme) -> None:
    """One panel for all Runs whose L2↔SM was sampled; Runs of one kernel differ by their dashes."""
    highest = [float(part.l2_sm_highest.max()) for _, part in rows if part.l2_sm_highest is not None]
    if not highest:
        layout.top -= GAP_PIXELS
        return
    shown = [(row, part) for row, part in rows if part.l2_sm is not None]
    kernels = [row.kernel for row, _ in shown]
    scale = Scale.up_to(max(highest), 1.1)
    dashes = [list(DASHES)[kernels[:index].count(kernel) % len(DASHES)] for index, kernel in enumerate(kernels)]
    words = [
        _colour(kernel_colour(row.kernel, theme), escape(row.name), theme, f"<b>{DASHES[dash]}</b>")
        for (row, _), dash in zip(shown, dashes, strict=True)
    ]
    layout.title([_head("L2↔SM", scale.unit, theme), *words])
    panel = Panel(figure, layout.axis(L2_PIXELS, range=[0, scale.top], nticks=4), scale, theme)
    for (row, part), dash in zip(shown, dashes, strict=True):
        panel.l2_sm(row, part, dash)
