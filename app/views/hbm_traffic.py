"""HBM traffic: where each Run's bytes went, by kind, by launch and by tensor, and who says so."""

from dataclasses import replace

import streamlit as st

from app import page
from app.answer import pair, where
from app.bars import Axis, Bar, Group, bars
from app.flow_chart import Band, Flow, flows
from app.four_kinds import FOUR_KINDS, Bytes, compulsory, l2_sm, requested
from app.launch_chart import launch_title
from app.peak_check import possible_hbm
from app.picture import Figure, Headline, Picture, Sheet, Table
from app.requested_formula import formula, passes
from app.selection import Comparison, compare
from app.stack_chart import Part, Stack, stacks
from app.style import DIRECTION, LIBRARY, TENSOR, Theme, capacity, kernel_colour, ratio, traffic
from app.traffic_tables import measurements, several_sources
from kernels.problem import TileConfig
from kernels.schedule import Schedule
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
    items = (
        _flow(found, theme),
        _four_kinds(found, theme),
        _by_launch(found, theme),
        _by_tensor(found, theme),
        several_sources(found),
        _spelled_out(found),
        measurements(found),
    )
    return Sheet(_headline(found), _figures(found), tuple(item for item in items if item is not None))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page, and where to look next."""
    shown = sheet(runs, page.theme())
    folded = [item for item in shown.items if isinstance(item, Table) and item.title in FOLDED]
    page.sheet(replace(shown, items=tuple(item for item in shown.items if item not in folded)), "traffic", rows=(2, 2))
    for table in folded:
        with st.expander(table.title):
            st.caption(table.caption)
            st.html(page.table_html(table))
    with st.container(horizontal=True):
        page.link("tile_schedule", "Which tile asks for these bytes")
        page.link("overview", "The answer in one sentence")


def _named(found: Comparison) -> list[tuple[str, Run]]:
    return list(zip(found.names, found.runs, strict=True))


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
    least = two.subject.workload.problem.compulsory_bytes
    chosen = [
        ("compulsory", compulsory(two.subject)),
        (f"requested, {two.name}", requested(two.subject)),
        (f"L2↔SM, {two.name}", l2_sm(two.subject)),
        (f"HBM, {two.name}", possible_hbm(two.subject)),
    ]
    if two.baseline is not None:
        chosen.append((f"HBM, {two.baseline_name}", possible_hbm(two.baseline)))
    return tuple(
        Figure(label, traffic(part.value), part.source, _detail(part, label, least), part.reason)
        for label, part in chosen
    )


def _detail(part: Bytes, label: str, least: int) -> str:
    if label == "compulsory":
        return "inputs read once, O written once"
    return f"{ratio(part.value / least)} compulsory" if part.value is not None else ""


def _flow(found: Comparison, theme: Theme) -> Picture:
    caption = (
        "The thickness of an arrow is its bytes, on one scale; thinner than a line is drawn as a line. Blue: read, "
        "orange: written, grey: both together. Dotted: not measured, the reason is on hover."
    )
    chart = flows([_flow_of(*item) for item in _named(found)], theme)
    return Picture("Flow between HBM, L2 and the SMs", caption, chart)


def _flow_of(name: str, run: Run) -> Flow:
    between = possible_hbm(run)
    ends = [run.find(f"hbm_{direction}_bytes") for direction in ("read", "write")]
    split = [(end.value, end.source) for end in ends if end is not None and end.value is not None]
    if between.value is not None and len(split) == 2:
        hbm_bands = tuple(Band(d, *part) for d, part in zip(("read", "write"), split, strict=True))
    else:
        hbm_bands = (Band("both", between.value, between.source, between.reason),)
    crossing = l2_sm(run)
    device = run.device
    nodes = (
        "HBM",
        f"L2<br>{capacity(device.l2_bytes)}" if device.l2_bytes else "L2",
        f"{device.sm_count}<br>SMs" if device.sm_count else "SMs",
    )
    return Flow(name, hbm_bands, (Band("both", crossing.value, crossing.source, crossing.reason),), nodes)


def _four_kinds(found: Comparison, theme: Theme) -> Picture:
    groups = []
    for kind, read in (FOUR_KINDS | {"HBM": possible_hbm}).items():
        # Compulsory bytes depend on the problem alone, and all Runs here share one.
        named = [("", found.runs[0])] if kind == "compulsory" else _named(found)
        row = []
        for name, run in named:
            part = read(run)
            colour = kernel_colour(run.workload.kernel) if name else LIBRARY
            row.append(Bar(name, part.value, traffic(part.value), colour, part.is_measured, part.reason))
        groups.append(Group(kind, tuple(row)))
    caption = "Solid: measured. Hatched: closed form or schedule. A dash: not known, the reason is on hover."
    chart = bars(groups, Axis("bytes, log axis", is_log=True), theme)
    return Picture("Compulsory, requested, L2↔SM, HBM", caption, chart)


def _by_launch(found: Comparison, theme: Theme) -> Picture:
    rows = []
    for name, run in _named(found):
        schedule = _schedule(run)
        asked = {launch.name: sum(launch.reads.values()) + sum(launch.writes.values()) for launch in schedule.launches}
        launches = [m.launch for m in run.launches("hbm_read_bytes") if m.launch]
        rows.append(_split(name, run, None, sum(asked.values())))
        if len(launches) > 1:
            rows += [_split(f"{launch_title(item)} ", run, item, asked.get(item)) for item in launches]
    caption = (
        "Each Run, and below it each of its launches where they were counted. Blue: read, orange: written, grey: not "
        "told apart. The dotted tick is what the schedule requests."
    )
    return Picture("HBM bytes by launch", caption, stacks(rows, "HBM bytes", theme))


def _split(name: str, run: Run, launch: str | None, asked: int | None) -> Stack:
    whole = possible_hbm(run, launch)
    if whole.value is None:
        return Stack(name, (), reason=whole.reason, mark=asked)
    ends = [(d, run.value(f"hbm_{d}_bytes", launch)) for d in ("read", "write")]
    parts = tuple(Part(direction, value, DIRECTION[direction]) for direction, value in ends if value is not None)
    return Stack(name, parts if len(parts) == 2 else (Part("read and written", whole.value, LIBRARY),), mark=asked)


def _schedule(run: Run) -> Schedule:
    return run.workload.attention_kernel.schedule(run.workload.problem, run.workload.tile or TileConfig())


def _by_tensor(found: Comparison, theme: Theme) -> Picture:
    rows = []
    for name, run in _named(found):
        schedule = _schedule(run)
        parts = tuple(
            Part(f"{part.tensor.upper()} {verb}", size, TENSOR[part.tensor])
            for part in passes(schedule)
            for verb, size in (("read", part.read), ("written", part.written))
            if size
        )
        rows.append(Stack(name, parts, is_measured=False, lines=formula(schedule)))
    caption = "What loads and stores ask for, from the kernel's schedule. Below each bar: how often each tensor passes."
    return Picture("Requested bytes by tensor", caption, stacks(rows, "requested bytes", theme))


def _spelled_out(found: Comparison) -> Table:
    rows = tuple(
        (
            name,
            part.tensor.upper(),
            part.size_formula,
            traffic(part.size),
            traffic(part.read) if part.read else "0 B",
            traffic(part.written) if part.written else "0 B",
            f"{part.times:.4g}",
            "schedule",
        )
        for name, run in _named(found)
        for part in passes(_schedule(run))
    )
    columns = ("run", "tensor", "batch · heads · rows · columns · bytes", "size", "read", "written", "times", "source")
    caption = "times: bytes read and written as a multiple of the tensor's size"
    return Table("Requested bytes, spelled out", caption, columns, rows)
