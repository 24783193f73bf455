"""Memory: where the peak came from, part by part, how it came about, and how S grows it until the GPU is full."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from app import block_progress, memory_measured, memory_sweep, page
from app.answer import pair
from app.growth_chart import growth
from app.memory_answer import figures, headline, shown
from app.memory_bars import peak_parts
from app.memory_growth import Measured
from app.memory_split import NO_HISTORY
from app.memory_table import predicted_and_measured, where_it_ends
from app.memory_timeline import TITLE as ALLOCATIONS
from app.memory_timeline import timelines
from app.picture import Sheet, Table
from app.selection import Comparison, compare
from app.style import Theme
from profiler.memory_snapshot import pickled
from profiler.run import Run

TITLE = "Memory"
ICON = ":material/memory:"
ORDER = 60
EMPTY = "Press Run, or open a recorded H200 run on the Runs page, to see where its memory went."
VIZ = "https://pytorch.org/memory_viz"


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """Everything the page shows of the Runs of the newest problem; of others the peak at other lengths."""
    if not runs:
        return Sheet(missing=EMPTY)
    found = compare(runs)
    named = shown(pair(found))
    measured = memory_measured.of_runs(runs, named[0][1].workload.problem)
    items = (
        peak_parts(found, theme),
        growth(_kernels(found), measured, theme),
        *(timelines(named, theme) or (_no_timeline(named),)),
        predicted_and_measured(named),
        where_it_ends(_kernels(found)),
    )
    return Sheet(headline(found), figures(found), items)


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page: the answer, the parts beside the growth, the allocations of one pass, and every number."""
    if not runs:
        page.sheet(sheet(runs, page.theme()), "memory")
        return
    found, colours = compare(runs), page.theme()
    named = shown(pair(found))
    page.headline(headline(found))
    page.figures(figures(found))
    left, right = st.columns(2)
    with left:
        page.picture(peak_parts(found, colours), "memory.parts")
    with right:
        _growth(found, runs, colours)
    _timeline(named, colours)
    page.table(predicted_and_measured(named))
    page.table(where_it_ends(_kernels(found)))
    with st.container(horizontal=True):
        page.link("overview", "The answer in one sentence")
        page.link("live_gpu", "Memory in use now")


def _kernels(found: Comparison) -> list[tuple[str, Run]]:
    """The newest Run of each kernel, under the kernel's name."""
    return list({run.workload.kernel: (run.workload.kernel, run) for run in found.runs}.values())


def _growth(found: Comparison, runs: Sequence[Run], theme: Theme) -> None:
    kernels = _kernels(found)
    problem = kernels[0][1].workload.problem
    points: dict[tuple[str, int], Measured] = {}
    saved = memory_measured.stored(problem, [name for name, _ in kernels])
    for point in (*saved, *memory_measured.of_runs(runs, problem)):
        points[point.kernel, point.seq_len] = point
    item = growth(kernels, list(points.values()), theme)
    with page.card(item.title, item.caption, sources=item.sources):
        st.plotly_chart(
            item.chart, key="memory.growth", theme=None, config=page.CHART_CONFIG, alt=f"{item.title}. {item.caption}"
        )
        memory_sweep.draw([run.workload for _, run in kernels], kernels[0][1].device.name)
        block_progress.draw()


def _timeline(named: list[tuple[str, Run]], theme: Theme) -> None:
    having = [(name, run) for name, run in named if run.memory is not None]
    if not having:
        page.table(_no_timeline(named))
        return
    is_common = len(having) < 2 or not st.session_state.get("memory.own", False)
    items = timelines(named, theme, is_common)
    with page.card(ALLOCATIONS, items[0].caption, sources=items[0].sources):
        # On a phone columns stand below each other.
        for index, (column, item) in enumerate(zip(st.columns(len(items)), items, strict=True)):
            column.plotly_chart(
                item.chart, key=f"memory.timeline-{index}", theme=None, config=page.CHART_CONFIG,
                alt=f"{item.title}. {item.caption}",
            )  # fmt: skip
        with st.container(horizontal=True, vertical_alignment="center"):
            if len(having) > 1:
                st.toggle("Each on its own axis", key="memory.own")
            for name, run in having:
                st.download_button(
                    f"Snapshot of {page.plain(name)}", partial(_pickled, run), f"bytescope-{run.id}.pickle",
                    "application/octet-stream", key=f"memory.snapshot-{run.id}", icon=":material/download:",
                    help=f"torch's memory snapshot, with the tensors' names: drop it on {VIZ}.", on_click="ignore",
                )  # fmt: skip
            st.link_button("pytorch.org/memory_viz", VIZ, type="tertiary", icon=":material/open_in_new:")


def _pickled(run: Run) -> bytes:
    assert run.memory is not None, "only Runs that have one are offered"
    return pickled(run.memory)


def _no_timeline(named: list[tuple[str, Run]]) -> Table:
    rows = []
    for name, run in named:
        events = run.find("allocator_events")
        rows.append((name, NO_HISTORY if events is None or events.value is not None else events.note))
    caption = "What each allocation and free left allocated, from torch's memory history."
    return Table(ALLOCATIONS, caption, ("run", "why there is none"), tuple(rows))
