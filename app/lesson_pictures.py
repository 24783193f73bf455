"""The walk-through's charts: round trips, requested bytes, two ways to cut 16 × 16, what fits on chip, acc."""

import numpy as np
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from app.bars import Axis, Bar, Group, bars
from app.four_kinds import l2_sm
from app.launch_chart import launch_title
from app.lesson_numbers import (
    BLOCK,
    SMALL,
    SMALL_TILES,
    kv_bytes,
    rescales,
    small_schedule,
)
from app.lesson_subject import ARTICLE, Shown
from app.lesson_words import Words
from app.peak_check import possible_hbm
from app.softmax_state import RowState
from app.stack_chart import Part, Stack, stacks
from app.style import DIRECTION, LIBRARY, STATE, TENSOR, Theme, capacity, kernel_colour, shade, template, traffic
from kernels.gpu_limits import REGISTER_FILE_BYTES
from kernels.problem import FLOAT32_BYTES
from kernels.schedule import Schedule
from profiler.device import GPUS, find_spec
from profiler.run import Run

PANEL_PIXELS = 230


def counted_trips(run: Run | None) -> list[Stack]:
    """HBM bytes of each launch of a naive Run; empty where one of them is not known."""
    launches = [] if run is None else [m.launch for m in run.launches("hbm_read_bytes") if m.launch]
    rows = []
    for launch in dict.fromkeys(launches):
        assert run is not None
        ends = [run.value(f"hbm_{direction}_bytes", launch) for direction in DIRECTION]
        if None in ends or possible_hbm(run, launch).value is None:
            return []
        rows.append(_trip(launch, [float(end or 0) for end in ends], True))
    return rows


def requested_trips(naive: Schedule) -> list[Stack]:
    """The same as the schedule has it."""
    both = [(launch.name, [sum(launch.reads.values()), sum(launch.writes.values())]) for launch in naive.launches]
    return [_trip(name, [float(end) for end in ends], False) for name, ends in both]


def _trip(launch: str, ends: list[float], is_measured: bool) -> Stack:
    parts = zip(DIRECTION.items(), ends, strict=True)
    return Stack(
        launch_title(launch), tuple(Part(name, end, colour) for (name, colour), end in parts), is_measured=is_measured
    )


def round_trips(rows: list[Stack], words: Words, theme: Theme) -> go.Figure:
    """A bar for each launch, what it reads and what it writes."""
    axis = words.labels["hbm_axis" if rows[0].is_measured else "requested_axis"]
    return stacks(rows, axis, theme)


def asked_for(kernels: tuple[str, ...], shown: Shown, words: Words, theme: Theme) -> go.Figure:
    """Compulsory bytes, and what each kernel requests; beside it what crossed L2↔SM where a Run counted it."""
    least = shown.problem.compulsory_bytes
    groups = [Group(words.labels["compulsory"], (Bar("", least, traffic(least), LIBRARY, False),))]
    for kernel in kernels:
        schedule, run = shown.schedule(kernel), shown.runs.get(kernel)
        asked = None if schedule is None else schedule.requested_read_bytes + schedule.requested_write_bytes
        reason = "" if schedule is not None else words.labels["missing_kernel"].format(kernel=kernel)
        colour = kernel_colour(kernel, theme)
        row = [Bar("", asked, traffic(asked), colour, False, reason)]
        if run is not None:
            crossed = l2_sm(run)
            row.append(
                Bar(
                    "", crossed.value, traffic(crossed.value), colour, crossed.is_measured, words.quoted(crossed.reason)
                )
            )
        groups.append(Group(kernel, tuple(row)))
    return bars(groups, Axis(words.labels["bytes_axis"], is_log=True), theme)


def two_cuts(words: Words, theme: Theme) -> go.Figure:
    """16 × 16 scores in tiles of 4 × 16 and of 4 × 4, each tile with its place in its program."""
    titles = [_cut_title(index, words) for index in range(len(SMALL_TILES))]
    figure = make_subplots(rows=1, cols=2, subplot_titles=titles, horizontal_spacing=0.09)
    for column, tile in enumerate(SMALL_TILES, start=1):
        rows, keys = SMALL.seq_len_q // tile.BLOCK_M, SMALL.seq_len_kv // tile.BLOCK_N
        order = np.tile(np.arange(keys), (rows, 1))
        heat = go.Heatmap(
            z=order, x0=tile.BLOCK_N / 2, dx=tile.BLOCK_N, y0=tile.BLOCK_M / 2, dy=tile.BLOCK_M, zmin=-1, zmax=6,
            colorscale=[[0, theme.card], [1, TENSOR["s"]]], showscale=False, xgap=2, ygap=2, text=order + 1,
            texttemplate="%{text}", textfont={"color": theme.ink, "size": 13}, hoverinfo="skip",
        )  # fmt: skip
        figure.add_trace(heat, row=1, col=column)
    figure.update_layout(template=template(theme), height=PANEL_PIXELS + 80, margin={"l": 8, "r": 8, "t": 44, "b": 8})
    figure.update_annotations(font={"size": 12, "color": theme.ink})
    ends = {"tickvals": [0, 4, 8, 12, 16], "showgrid": False, "zeroline": False, "fixedrange": True}
    figure.update_xaxes(range=[0, 16], title_text=words.labels["keys"], constrain="domain", **ends)
    figure.update_yaxes(range=[16, 0], constrain="domain", constraintoward="top", **ends)
    figure.update_yaxes(title_text=words.labels["queries"], col=1)
    figure.update_yaxes(showticklabels=False, col=2)
    for axis in ("", "2"):
        figure.update_layout({f"yaxis{axis}": {"scaleanchor": f"x{axis}"}})
    return figure


def _cut_title(index: int, words: Words) -> str:
    tile = SMALL_TILES[index]
    schedule = small_schedule(tile)
    steps = (SMALL.seq_len_q // tile.BLOCK_M) * (SMALL.seq_len_kv // tile.BLOCK_N)
    kv = words.labels["kv_bytes"].format(bytes=traffic(kv_bytes(schedule)))
    told = words.labels["tile_steps"].format(steps=steps, rescales=rescales(tile))
    return f"<b>{tile.BLOCK_M} × {tile.BLOCK_N}</b>  {kv}<br>{told}"


def on_chip(shown: Shown, words: Words, theme: Theme) -> go.Figure:
    """Scores of a row block and of a tile beside the registers and the shared memory of an SM."""
    label = words.labels
    blocks = [(BLOCK, ARTICLE.seq_len_kv), (BLOCK, BLOCK)]
    here = (shown.tile.BLOCK_M, shown.problem.seq_len_kv)
    if here not in blocks:
        blocks.insert(0, here)
    scores = [
        _size(label["row_block"].format(rows=rows, keys=f"{keys:,}"), rows * keys * FLOAT32_BYTES, TENSOR["s"])
        for rows, keys in blocks
    ]
    specs = [GPUS["a100"], GPUS["h100"]]
    found = [find_spec(run.device.name) for run in shown.runs.values()]
    specs += [spec for spec in dict.fromkeys(found) if spec is not None and spec not in specs]
    room = [_size(label["registers"], REGISTER_FILE_BYTES, LIBRARY)]
    room += [_size(label["shared"].format(gpu=spec.title), spec.shared_memory_per_sm, LIBRARY) for spec in specs]
    return bars([*scores, *room], Axis(label["chip_axis"], factor=2**10), theme)


def _size(name: str, size: int, colour: str) -> Group:
    return Group(name, (Bar("", size, capacity(size), colour, False),))


def growing_acc(state: RowState, words: Words, theme: Theme) -> go.Figure:
    """|acc| of one row after each KV tile, as the kernel wrote it, on the exact values."""
    tiles = state.visited
    figure = go.Figure(layout={"template": template(theme), "height": 250, "showlegend": False})
    exact = {"color": STATE["exact"], "width": 1}
    points = {"color": shade(STATE["acc"], theme), "size": 6 if len(tiles) <= 64 else 4}
    figure.add_scatter(x=tiles, y=state.exact_acc_norm[tiles], mode="lines", line=exact, hoverinfo="skip")
    figure.add_scatter(x=tiles, y=state.acc_norm[tiles], mode="markers", marker=points)
    figure.update_traces(hovertemplate=f"{words.labels['kv_tile']} %{{x}}: %{{y:.6g}}<extra></extra>", selector=1)
    figure.update_xaxes(title_text=words.labels["kv_tile"], fixedrange=True, tickformat=",d")
    figure.update_yaxes(title_text="|acc|", rangemode="tozero", fixedrange=True)
    return figure
