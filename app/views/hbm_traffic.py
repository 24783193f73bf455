"""HBM traffic: where each Run's bytes went, by kind, by launch and by tensor, and who says so."""

from dataclasses import replace

import streamlit as st

from app import page
from app.answer import pair, where
from app.bandwidth import TITLE as BANDWIDTH
from app.bandwidth import bandwidth_over_time
from app.bandwidth_sums import under_the_curve
from app.four_kinds import Bytes, compulsory, l2_sm, requested
from app.kernel_table import kernels_that_ran
from app.paper_figures import beside_the_paper
from app.peak_check import possible_hbm
from app.picture import Figure, Headline, Picture, Sheet, Table
from app.savings import savings
from app.selection import Comparison, compare
from app.style import Theme, ratio, traffic
from app.traffic_pictures import by_launch, by_tensor, flow, four_kinds
from app.traffic_tables import measurements, several_sources, spelled_out
from kernels.problem import AttentionProblem
from profiler.once_each import once_each
from profiler.run import Run

TITLE = "HBM traffic"
ICON = ":material/swap_horiz:"
ORDER = 20
FOLDED = ("Requested bytes, spelled out", "Every measurement of traffic")
EMPTY = "Press Run, or open a recorded H200 run on the Runs page, to see where its bytes went."


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """Everything the page shows of the Runs of the newest problem."""
    if not runs:
        return Sheet(missing=EMPTY)
    found = compare(runs)
    over_time = bandwidth_over_time(found, theme)
    is_sampled = isinstance(over_time, Picture)
    items = (
        flow(found, theme),
        four_kinds(found, theme),
        *((over_time, under_the_curve(found)) if is_sampled else ()),
        by_launch(found, theme),
        by_tensor(found, theme),
        None if is_sampled else over_time,
        several_sources(found),
        savings(found),
        beside_the_paper(found),
        kernels_that_ran(found),
        spelled_out(found),
        measurements(found),
    )
    return Sheet(_headline(found), _figures(found), tuple(item for item in items if item is not None))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page, and where to look next."""
    shown = sheet(runs, page.theme())
    folded = [item for item in shown.items if isinstance(item, Table) and item.title in FOLDED]
    is_sampled = any(isinstance(item, Picture) and item.title == BANDWIDTH for item in shown.items)
    rows = (2, 1, 1, 2) if is_sampled else (2, 2)
    page.sheet(replace(shown, items=tuple(item for item in shown.items if item not in folded)), "traffic", rows=rows)
    for table in folded:
        with st.expander(table.title):
            st.caption(table.caption)
            st.html(page.table_html(table))
    with st.container(horizontal=True):
        page.link("tile_schedule", "Which tile asks for these bytes")
        page.link("overview", "The answer in one sentence")


def _headline(found: Comparison) -> Headline:
    two = pair(found)
    run, problem = two.subject, two.subject.workload.problem
    named = [(two.name, run)] if two.baseline is None else [(two.baseline_name, two.baseline), (two.name, run)]
    least = problem.compulsory_bytes
    moved = [(name, value) for name, one in named if (value := possible_hbm(one).value) is not None]
    asked = [(name, value) for name, one in named if (value := requested(one).value) is not None]
    verb, tail = ("moved", " through HBM") if moved else ("asks for", "; what crossed HBM was not measured")
    words = [f"{name} {verb} {traffic(value)} ({ratio(value / least)})" for name, value in moved or asked]
    told = " and ".join(words) or "the bytes of these Runs are not known"
    cache = f", {run.workload.l2} L2" if run.workload.on_gpu else ""
    sentence = f"{traffic(least)} is compulsory: {told}{tail if words else ''}."
    return Headline(sentence, f"{problem.label}{cache}, {where(run)}. {found.note}".strip())


def _figures(found: Comparison) -> tuple[Figure, ...]:
    two = pair(found)
    problem = two.subject.workload.problem
    chosen = [
        ("compulsory", compulsory(two.subject)),
        (f"requested, {two.name}", requested(two.subject)),
        (f"L2↔SM, {two.name}", l2_sm(two.subject)),
        (f"HBM, {two.name}", possible_hbm(two.subject)),
    ]
    if two.baseline is not None:
        chosen.append((f"HBM, {two.baseline_name}", possible_hbm(two.baseline)))
    return tuple(
        Figure(label, traffic(part.value), part.source, _detail(part, label, problem), part.reason)
        for label, part in chosen
    )


def _detail(part: Bytes, label: str, problem: AttentionProblem) -> str:
    if label == "compulsory":
        return once_each(problem)
    return f"{ratio(part.value / problem.compulsory_bytes)} compulsory" if part.value is not None else ""
