"""The same kernel in float16, bfloat16 and float32: what each dtype costs m, l, acc and O in exactness."""

from collections.abc import Sequence
from dataclasses import replace

import plotly.graph_objects as go

from app.bars import Axis, Bar, Group, bars
from app.picture import Table
from app.softmax_differences import largest
from app.softmax_recording import recording
from app.style import STATE, TENSOR, Theme, error, shade
from kernels.problem import ELEMENT_BYTES, TileConfig
from profiler.run import Run
from profiler.workload import Workload, workloads

DTYPES = tuple(ELEMENT_BYTES)
TRACE = "interpreter"
# An error of m by d is one of l by the factor exp(d): its absolute difference is what counts.
STATE_COLUMNS = (("m", "absolute"), ("l", "relative"), ("|acc|", "relative"))
OUTPUT = "relative_error"
NO_ERROR = "This Run holds no relative error of O."


def alike(run: Run, runs: Sequence[Run]) -> tuple[Run, ...]:
    """The newest traced Run of each dtype that is like `run` in all else that decides its numbers, in DTYPES' order."""
    found = {
        other.workload.problem.dtype: other
        for other in sorted(runs, key=lambda one: one.created)
        if recording(other) is not None and _decides(other) == _decides(run)
    }
    found[run.workload.problem.dtype] = run
    return tuple(found[dtype] for dtype in DTYPES if dtype in found)


def _decides(run: Run) -> tuple[object, ...]:
    work, tile = run.workload, run.workload.tile or TileConfig()
    problem = replace(work.problem, dtype=DTYPES[0])
    return work.kernel, problem, tile.BLOCK_M, tile.BLOCK_N, tile.order, work.seed, work.trace, run.device.name


def wanted(run: Run) -> tuple[Workload, ...]:
    """The Run's Workload in every dtype. Raises Refused where one of them cannot be."""
    work = run.workload
    return tuple(
        one
        for dtype in DTYPES
        for one in workloads(
            (work.kernel,), replace(work.problem, dtype=dtype), work.tile or TileConfig(), work.device, work.seed,
            work.l2, work.repeats, work.trace, work.counters, work.drain, work.detail,
        )
    )  # fmt: skip


def table(runs: Sequence[Run]) -> Table:
    """Largest differences of m, l and |acc| over all recorded rows, and the error of O, dtype by dtype."""
    rows, reasons, sources = [], [], []
    for run in runs:
        output = run.find(OUTPUT)
        known = output is not None and output.value is not None
        rows.append((run.workload.problem.dtype, *map(error, _state(run)), error(output.value if output else None)))
        reasons.append(("", "", "", "", "" if known else output.note if output else NO_ERROR))
        sources.append(("", TRACE, TRACE, TRACE, output.source if known and output else ""))
    columns = ("dtype", *(f"{symbol}, {kind}" for symbol, kind in STATE_COLUMNS), "O, relative error")
    caption = (
        "m, l, |acc|: the largest difference from the exact prefix over all recorded rows. m and l stay in float32; "
        "acc takes up P, which is rounded to the inputs' dtype, and O is rounded once more."
    )
    return Table("float16, bfloat16, float32", caption, columns, tuple(rows), tuple(reasons), tuple(sources))


def chart(runs: Sequence[Run], theme: Theme) -> go.Figure:
    """The same as bars; a difference of 0 is written at the edge of the log axis."""
    colours = [shade(STATE["m"], theme), shade(STATE["l"], theme), shade(STATE["acc"], theme), TENSOR["o"]]
    labels = [*(f"{symbol}, {kind}" for symbol, kind in STATE_COLUMNS), "O, relative"]
    values = [(*_state(run), run.value(OUTPUT)) for run in runs]
    groups = [
        Group(label, tuple(_bar(run, row[at], colours[at]) for run, row in zip(runs, values, strict=True)))
        for at, label in enumerate(labels)
    ]
    figure = bars(groups, Axis("difference from float64, log axis", is_log=True), theme)
    return figure.update_xaxes(ticktext=[error(tick) for tick in figure.layout.xaxis.tickvals])


def _bar(run: Run, value: float | None, colour: str) -> Bar:
    reason = NO_ERROR if value is None else ""
    return Bar(run.workload.problem.dtype, value, error(value), colour, True, reason)


def _state(run: Run) -> tuple[float | None, ...]:
    found = recording(run)
    worst = {} if found is None else largest(found)
    picked = [worst.get(column) for column in STATE_COLUMNS]
    return tuple(None if one is None else one.value for one in picked)
