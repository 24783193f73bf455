"""Memory over sequence length: a dashed curve for each kernel, marks where it was measured and where a GPU is full."""

import math
from collections.abc import Mapping, Sequence
from html import escape

import plotly.graph_objects as go

from app.memory_growth import Measured, full_at, is_square, lengths, need
from app.picture import Picture
from app.style import Theme, capacity, kernel_colour, ratio, significant, template
from app.unpredicted import why_unpredicted
from profiler.run import DeviceInfo, Run

TITLE = "How memory grows with S"
ABOVE = 60  # of the limit, where the axis ends: room for the names
MOST_TICKS = 7
LABEL_WIDTH, LABEL_HEIGHT = 0.6, 15  # of the axis on a phone, and pixels


def growth(named: Sequence[tuple[str, Run]], measured: Sequence[Measured], theme: Theme) -> Picture:
    """The curves of some Runs of one problem, and points of that problem at other lengths."""
    (_, first), *_ = named
    problem, device = first.workload.problem, _largest_device(named)
    limit = None if device is None else device.memory_bytes
    ends = {name: None if limit is None else full_at(run.workload, limit) for name, run in named}
    drawn = lengths([problem.seq_len_kv, *(point.seq_len for point in measured)], list(ends.values()))
    chart = go.Figure(layout={"template": template(theme), "height": 310, "showlegend": False})
    for name, run in named:
        _curve(chart, name, run, drawn, theme)
    curves = bool(chart.data)
    untold = [name for name, run in named if why_unpredicted(run.workload.kernel)]
    for kernel in dict.fromkeys(point.kernel for point in measured):
        _points(chart, [point for point in measured if point.kernel == kernel], theme)
    if limit is not None and device is not None:
        _limit(chart, limit, device.name, theme)
        _full(chart, {name: (run, end) for name, run in named if (end := ends[name]) is not None}, limit, drawn, theme)
    what = "S, queries and keys" if is_square(problem) else f"keys and values, {problem.seq_len_q:,} queries"
    chart.update_xaxes(title_text=f"{what} (log)", type="log", fixedrange=True, **_powers(drawn))
    chart.update_yaxes(title_text="memory at the peak (log)", type="log", fixedrange=True, **_sizes(chart, limit))
    words = []
    if curves:
        words.append(f"Dashed: the tensors alive at the peak, from their sizes{_doubling(named, drawn[-1] // 2)}.")
    words.append("Dots: measured." if measured else "Nothing measured yet.")
    if untold:
        words.append(f"{', '.join(untold)}: from measured lengths alone, joined by lines; no closed form is known.")
    if device is not None and any(ends.values()):
        words.append(f"Diamonds: where they alone fill {device.name}; context and workspaces fill it a little sooner.")
    sources = (*(("model",) if curves else ()), *(("torch",) if measured else ()))
    return Picture(TITLE, " ".join(words), chart, sources)


def _largest_device(named: Sequence[tuple[str, Run]]) -> DeviceInfo | None:
    known = [run.device for _, run in named if run.device.memory_bytes is not None]
    return max(known, key=lambda device: device.memory_bytes or 0, default=None)


def _doubling(named: Sequence[tuple[str, Run]], length: int) -> str:
    """What twice the length costs, where curves are straight."""
    found = {}
    for name, run in named:
        short, long = need(run.workload, length), need(run.workload, 2 * length)
        if short and long:
            found[name] = ratio(long / short)
    return f"; twice the length takes {', '.join(f'{name} {times}' for name, times in found.items())}" if found else ""


def _curve(chart: go.Figure, name: str, run: Run, drawn: Sequence[int], theme: Theme) -> None:
    sizes = [(length, size) for length in drawn if (size := need(run.workload, length)) is not None]
    if not sizes:
        return
    colour = kernel_colour(run.workload.kernel, theme)
    chart.add_scatter(
        x=[length for length, _ in sizes], y=[size for _, size in sizes], mode="lines", name=escape(name),
        line={"color": colour, "width": 2, "dash": "dash"}, hoverinfo="text",
        hovertext=[f"{escape(name)}, S = {length:,}: {capacity(size)} predicted" for length, size in sizes],
    )  # fmt: skip


def _points(chart: go.Figure, points: Sequence[Measured], theme: Theme) -> None:
    colour = kernel_colour(points[0].kernel, theme)
    chart.add_scatter(
        x=[point.seq_len for point in points], y=[point.allocated for point in points],
        mode="lines+markers" if why_unpredicted(points[0].kernel) else "markers", line={"color": colour, "width": 1},
        marker={"color": colour, "size": 8, "line": {"width": 1, "color": theme.card}}, hoverinfo="text",
        name=f"{escape(points[0].kernel)}, measured",
        hovertext=[
            f"{escape(one.kernel)}, S = {one.seq_len:,}: {capacity(one.allocated)} measured, {escape(one.where)}"
            for one in points
        ],
    )  # fmt: skip


def _limit(chart: go.Figure, limit: float, name: str, theme: Theme) -> None:
    chart.add_hline(y=limit, line={"color": theme.ink, "width": 1, "dash": "dot"})
    chart.add_annotation(
        x=0, xref="x domain", y=math.log10(limit), yref="y", xanchor="left", yanchor="top", showarrow=False,
        text=f"{escape(name.removeprefix('NVIDIA '))}, {capacity(limit)}", font={"color": theme.ink, "size": 12},
    )  # fmt: skip


def _full(
    chart: go.Figure, ends: Mapping[str, tuple[Run, int]], limit: float, drawn: Sequence[int], theme: Theme
) -> None:
    """A diamond on the limit for each kernel, and its name above, one higher where it would meet its neighbour's."""
    width, level, before = math.log10(drawn[-1] / drawn[0]), 0, 0.0
    for name, (run, end) in sorted(ends.items(), key=lambda item: item[1][1]):
        colour, x = kernel_colour(run.workload.kernel, theme), math.log10(end)
        words = f"{escape(name)} full at {end:,}"
        chart.add_scatter(
            x=[end], y=[limit], mode="markers", hoverinfo="text", hovertext=words, name=words,
            marker={"symbol": "diamond-open", "size": 11, "color": colour, "line": {"width": 2}},
        )  # fmt: skip
        level = level + 1 if before and x - before < LABEL_WIDTH * width else 0
        before = x
        chart.add_annotation(
            x=x, y=math.log10(limit), xanchor="right", yanchor="bottom", xshift=4, yshift=8 + LABEL_HEIGHT * level,
            showarrow=False, text=words, font={"color": colour, "size": 12},
        )  # fmt: skip


def tokens(length: int) -> str:
    """A sequence length in the spelling of the field, where K is 1024: 512, 8K, 1M. For powers of two."""
    for factor, unit in ((2**20, "M"), (2**10, "K")):
        if length >= factor:
            return f"{significant(length / factor)}{unit}"
    return f"{length}"


def _powers(drawn: Sequence[int]) -> dict[str, object]:
    """Ticks at powers of two, at most eight of them."""
    low, high = drawn[0].bit_length(), drawn[-1].bit_length()
    step = max(1, -(-(high - low) // 8))
    ticks = [1 << power for power in range(low, high + 1, step) if drawn[0] <= 1 << power <= drawn[-1]]
    return {"tickvals": ticks, "ticktext": [tokens(tick).replace(".00", "").replace(".0", "") for tick in ticks]}


def _sizes(chart: go.Figure, limit: float | None) -> dict[str, object]:
    """Ticks at powers of two, and a range that ends a little above the limit: nobody has the memory beyond."""
    found = [size for trace in chart.data for size in trace.y if size > 0]  # a log axis has no 0
    low, high = min(found, default=1), max(found, default=2) if limit is None else ABOVE * limit
    powers = range(math.ceil(math.log2(low)), math.floor(math.log2(high)) + 1)
    step = max(1, -(-len(powers) // MOST_TICKS))
    ticks = [2.0**power for power in powers if power % step == 0]
    return {
        "tickvals": ticks,
        "ticktext": [capacity(tick).replace(".00", "").replace(".0", "") for tick in ticks],
        "range": [math.log10(low / 1.5), math.log10(high)],
    }
