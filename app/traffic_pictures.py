"""Pictures of traffic: the flow between memories, the four kinds of bytes, each launch and each tensor."""

from app.flow_chart import Band, Flow, flows
from app.four_kinds import l2_sm
from app.kinds_chart import kinds_chart
from app.launch_chart import launch_title
from app.peak_check import possible_hbm
from app.picture import Picture
from app.requested_formula import formula, passes
from app.selection import Comparison
from app.stack_chart import Part, Stack, stacks
from app.style import DIRECTION, LIBRARY, Theme, capacity, tensor_colour
from app.subject import known_schedule
from app.tensor_names import tensor_title
from profiler.run import Run

MOST_FLOWS = 4
MOST_LAUNCHES = 24
BOTH = "read and written"
ANOTHER_VERSION = "another version of the kernel ran here, and how it cut the problem is not kept"


def flow(found: Comparison, theme: Theme) -> Picture:
    """How much each Run moved between HBM and L2, and between L2 and the SMs; at most the newest MOST_FLOWS."""
    caption = (
        "The thickness of an arrow is its bytes, on one scale; thinner than a line is drawn as a line. Blue: read, "
        "orange: written, grey: both together. Dotted: not measured, the reason is on hover."
    )
    named = list(zip(found.names, found.runs, strict=True))
    if len(named) > MOST_FLOWS:
        caption = f"{caption} The newest {MOST_FLOWS} Runs."
    chart = flows([_flow_of(*item) for item in named[-MOST_FLOWS:]], theme)
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


def four_kinds(found: Comparison, theme: Theme) -> Picture:
    """Compulsory, requested, L2↔SM and HBM bytes of all Runs on one axis."""
    caption = (
        "Solid: measured. Hatched: closed form or schedule. L2↔SM can be below requested: what L1 answers, or what is "
        "merged on the way, never reaches L2. HBM can be above it, where a library's kernels read operands again, and "
        "above compulsory, where K and V of the heads at work outgrow L2 and later programs read them again."
    )
    return kinds_chart("Compulsory, requested, L2↔SM, HBM", caption, found, theme)


def by_launch(found: Comparison, theme: Theme) -> Picture:
    """HBM bytes read and written, of each Run and of its launches: MOST_LAUNCHES one by one, the others together."""
    rows = []
    is_cut = False
    for name, run in zip(found.names, found.runs, strict=True):
        plan = known_schedule(run)
        told = () if plan is None else plan.launches
        asked = {launch.name: sum(launch.reads.values()) + sum(launch.writes.values()) for launch in told}
        launches = dict.fromkeys(m.launch for m in run.launches("hbm_read_bytes") if m.launch)
        rows.append(_split(name, run, None, sum(asked.values()) or None))
        if len(launches) > 1:
            each = [_split(launch_title(item, run.workload.kernel), run, item, asked.get(item)) for item in launches]
            rows += _largest(each)
            is_cut |= len(each) > MOST_LAUNCHES
    caption = (
        "Each Run, and below it each of its launches where they were counted. Blue: read, orange: written, grey: not "
        "told apart. The dotted tick is what the schedule requests. A write still in L2 when its launch ends "
        "counts for a later launch."
    )
    if is_cut:
        caption += f" The {MOST_LAUNCHES} launches with the most bytes have a row each, the others share one."
    sources = tuple(dict.fromkeys(part.source for run in found.runs if (part := possible_hbm(run)).value is not None))
    return Picture("HBM bytes by launch", caption, stacks(rows, "HBM bytes", theme), sources)


def _largest(launches: list[Stack]) -> list[Stack]:
    """The MOST_LAUNCHES with the most bytes in their order, and the sum of the others as one row."""
    ranked = sorted(range(len(launches)), key=lambda i: (not launches[i].parts, -launches[i].total))
    kept, left = sorted(ranked[:MOST_LAUNCHES]), [launches[i] for i in sorted(ranked[MOST_LAUNCHES:])]
    return [launches[i] for i in kept] + ([_together(left)] if left else [])


def _together(rows: list[Stack]) -> Stack:
    """Several launches as one row: not known where one of them is not."""
    name = f"{len(rows)} more launch{'' if len(rows) == 1 else 'es'}"
    marks = [row.mark for row in rows if row.mark is not None]
    mark = sum(marks) if len(marks) == len(rows) else None
    unknown = [row for row in rows if not row.parts]
    if unknown:
        return Stack(name, (), reason=f"{len(unknown)} of them not known: {unknown[0].reason}", mark=mark)
    parts: dict[str, Part] = {}
    is_split = all(len(row.parts) == 2 for row in rows)
    for part in (part for row in rows for part in row.parts):
        title, colour = (part.name, part.colour) if is_split else (BOTH, LIBRARY)
        before = parts[title].value if title in parts else 0.0
        parts[title] = Part(title, before + part.value, colour)
    return Stack(name, tuple(parts.values()), mark=mark)


def _split(name: str, run: Run, launch: str | None, asked: int | None) -> Stack:
    whole = possible_hbm(run, launch)
    if whole.value is None:
        return Stack(name, (), reason=whole.reason, mark=asked)
    ends = [(d, run.value(f"hbm_{d}_bytes", launch)) for d in ("read", "write")]
    parts = tuple(Part(direction, value, DIRECTION[direction]) for direction, value in ends if value is not None)
    return Stack(name, parts if len(parts) == 2 else (Part(BOTH, whole.value, LIBRARY),), mark=asked)


def by_tensor(found: Comparison, theme: Theme) -> Picture:
    """Requested bytes of each tensor, with the formula that gives their sum below the bar."""
    rows = []
    for name, run in zip(found.names, found.runs, strict=True):
        schedule = known_schedule(run)
        if schedule is None:
            rows.append(Stack(name, (), is_measured=False, reason=ANOTHER_VERSION))
            continue
        parts = tuple(
            Part(f"{tensor_title(part.tensor)} {verb}", size, tensor_colour(part.tensor))
            for part in passes(schedule)
            for verb, size in (("read", part.read), ("written", part.written))
            if size
        )
        rows.append(Stack(name, parts, is_measured=False, lines=formula(schedule)))
    caption = "What loads and stores ask for, from the kernel's schedule. Below each bar: how often each tensor passes."
    return Picture("Requested bytes by tensor", caption, stacks(rows, "requested bytes", theme), ("schedule",))
