"""Overview: naive against flash in one sentence, five figures at most, and the pictures behind them."""

from collections.abc import Callable

import streamlit as st

from app import page, recorded
from app.answer import figures, headline, kind_in_words
from app.bars import Axis, Bar, Group, bars
from app.devices import why_no_gpu
from app.four_kinds import FOUR_KINDS, Bytes
from app.kernel_table import kernels_of_libraries
from app.kinds_chart import kinds_chart
from app.launch_chart import launch_title
from app.launch_stacks import launch_stacks
from app.paper_figures import beside_the_paper
from app.peak_check import possible_hbm
from app.picture import Headline, Picture, Sheet, Table
from app.running_table import while_it_ran
from app.selection import Comparison, compare
from app.style import Theme, capacity, error, kernel_colour, seconds
from app.unpredicted import why_unpredicted
from profiler.admission import needs
from profiler.own_kernel import has_own_reference
from profiler.run import Measurement, Run
from profiler.wrong_output import ERRORS, is_finite, is_wrong

TITLE = "Overview"
ICON = ":material/dashboard:"
ORDER = 10
EMPTY = "Press Run, or open a recorded H200 run on the Runs page."


def sheet(runs: tuple[Run, ...], theme: Theme) -> Sheet:
    """Everything the page shows of the Runs of the newest problem."""
    if not runs:
        return Sheet(missing=EMPTY)
    comparison = compare(runs)
    pictures = (
        _four_kinds(comparison, theme),
        _launches(comparison, theme),
        _times(comparison, theme),
        _peak_memory(comparison, theme),
    )
    drawn = [picture for picture in pictures if picture is not None]
    tables = [
        table
        for table in (
            beside_the_paper(comparison),
            _errors(comparison),
            kernels_of_libraries(comparison),
            while_it_ran(comparison),
            _missing(comparison),
        )
        if table is not None
    ]
    return Sheet(headline(comparison), figures(comparison), (*drawn, *tables))


def render(runs: tuple[Run, ...]) -> None:
    """Draw the page, and where to look next."""
    if not runs:
        page.headline(Headline("Press Run to see where attention's bytes go.", "Or open a run recorded on an H200."))
        recorded.draw()
        return
    shown = sheet(runs, page.theme())
    # Errors of gradients are columns of their own, for which a third of the page is too narrow.
    most = 2 if any(run.workload.problem.backward for run in runs) else 3
    page.sheet(shown, "overview", rows=(2, min(most, max(1, len(shown.items) - 2))))
    if why_no_gpu():
        recorded.draw()
    with st.container(horizontal=True):
        for view, label in NEXT.items():
            page.link(view, label)


NEXT = {
    "hbm_traffic": "Where the bytes go",
    "tile_schedule": "Which tile is where",
    "online_softmax": "How m, l and acc evolve",
    "memory": "Where the memory goes",
    "runs": "All runs, export",
}


def _four_kinds(comparison: Comparison, theme: Theme) -> Picture:
    caption = "Solid: measured. Hatched: closed form or schedule. A dash: not measured, the reason is on hover."
    return kinds_chart("Four kinds of bytes", caption, comparison, theme, one_unit=kind_in_words(comparison))


def _launches(comparison: Comparison, theme: Theme) -> Picture | None:
    """HBM bytes of each launch; requested bytes, and the caption says so, where launches were not counted."""
    for kind, unit in (("hbm", "HBM bytes"), ("requested", "Requested bytes")):
        run = max(comparison.runs, key=lambda run: len(run.launches(f"{kind}_read_bytes")))
        if len(run.launches(f"{kind}_read_bytes")) < 2:
            continue
        parts = {direction: _by_launch(comparison, run, f"{kind}_{direction}_bytes") for direction in ("read", "write")}
        caption = "Other kernels stand beside the launches as a whole."
        if kind == "requested":
            caption += " HBM bytes were not counted."
        else:
            caption += " A write still in L2 when its launch ends counts for a later one."
        sources = tuple(dict.fromkeys(m.source for m in run.launches(f"{kind}_read_bytes") if m.value is not None))
        chart = launch_stacks(parts, unit, kind == "hbm", theme)
        return Picture(f"{unit} of {run.workload.kernel}, launch by launch", caption, chart, sources)
    return None


def _by_launch(comparison: Comparison, run: Run, name: str) -> dict[str, float]:
    """One quantity of each launch of a Run, and of the other kernels as a whole."""
    kernel = run.workload.kernel
    found = {launch_title(m.launch or "", kernel): m.value for m in run.launches(name) if m.value is not None}
    others = [(other_name, other) for other_name, other in _named(comparison) if other.workload.kernel != kernel]
    return found | {other_name: value for other_name, other in others if (value := other.value(name)) is not None}


def _times(comparison: Comparison, theme: Theme) -> Picture | None:
    found = [run.find("gpu_time_seconds") for run in comparison.runs]
    longest = max((part.value for part in found if part is not None and part.value is not None), default=None)
    if longest is None:
        return None
    groups = []
    for (name, run), part in zip(_named(comparison), found, strict=True):
        value, spread, reason = (None, None, "") if part is None else (part.value, part.spread, part.note)
        colour = kernel_colour(run.workload.kernel, theme)
        groups.append(Group(name, (Bar("", value, seconds(value), colour, True, reason, spread=spread),)))
    unit = seconds(longest).rpartition(" ")[2]
    axis = Axis(f"time, {unit}", {"s": 1.0, "ms": 1e-3, "µs": 1e-6}.get(unit, 1e-9))
    caption = "Median; the whisker spans the 20th to the 80th percentile."
    return Picture("Time", caption, bars(groups, axis, theme), _sources(found))


def _peak_memory(comparison: Comparison, theme: Theme) -> Picture | None:
    found = [run.find("peak_allocated_bytes") for run in comparison.runs]
    if all(part is None or part.value is None for part in found):
        return None
    groups, largest = [], 0.0
    for (name, run), measured in zip(_named(comparison), found, strict=True):
        before = run.value("baseline_allocated_bytes")
        value, reason = (None, "") if measured is None else (measured.value, measured.note)
        need, colour = needs(run.workload), kernel_colour(run.workload.kernel, theme)
        told = run.find("predicted_peak_bytes")
        untold = told.note if told is not None and told.value is None else why_unpredicted(run.workload.kernel)
        predicted = None if untold else float(need.total_bytes)
        inputs = float(sum(need.tensors[tensor] for tensor in "qkv"))
        largest = max(largest, predicted or 0.0, value or 0.0)
        groups.append(
            Group(
                name,
                (
                    Bar("", predicted, capacity(predicted), colour, False, untold, lead=inputs),
                    Bar("", value, capacity(value), colour, True, reason, lead=before or 0.0),
                ),
            )
        )
    unit = capacity(largest).rpartition(" ")[2]
    axis = Axis(f"memory, {unit}", {"GiB": 2.0**30, "MiB": 2.0**20, "KiB": 2.0**10}.get(unit, 1.0))
    caption = "Hatched: predicted. Solid: torch's allocator. Pale: there before the pass (inputs, workspaces)."
    return Picture("Peak memory", caption, bars(groups, axis, theme), (*_sources(found), "model"))


def _sources(found: list[Measurement | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(part.source for part in found if part is not None and part.value is not None))


def _errors(comparison: Comparison) -> Table:
    problem = comparison.runs[0].workload.problem
    gradients = [name for name in ERRORS if name != "O"] if problem.backward else []
    rows, reasons = [], []
    for name, run in _named(comparison):
        found = [run.find(quantity) for quantity in (ERRORS["O"], *(ERRORS[one] for one in gradients), "max_abs_error")]
        source = next((part.source for part in found if part is not None and part.value is not None), "")
        relative, *others = (error(part.value if part else None) for part in found)
        mark = "NaN or infinity" if not is_finite(run) else f"{relative}, wrong" if is_wrong(run) else relative
        rows.append((name, mark, *others, source))
        reasons.append(("", *(part.note if part else "This Run does not hold it." for part in found), ""))
    columns = ("run", "‖o − ref‖ / ‖ref‖", *gradients, "largest of O" if gradients else "largest", "source")
    own = [name for name, run in _named(comparison) if has_own_reference(run)]
    what = "O and its gradients" if problem.backward else "O"
    caption = f"{what} in {problem.dtype} against float64 attention; rows compared are on hover."
    caption += f" {', '.join(own)}: against a reference of the kernel's own." if own else ""
    return Table("Error against float64", caption, columns, tuple(rows), tuple(reasons))


def _missing(comparison: Comparison) -> Table | None:
    """What no Run here holds, and why; each reason once."""
    rows = []
    for label, read in (FOUR_KINDS | {"HBM": possible_hbm} | SINGLE).items():
        found = [read(run) for run in comparison.runs]
        if all(one.value is None for one in found):
            rows.append((label, "–", " ".join(dict.fromkeys(one.reason for one in found))))
    if not rows:
        return None
    return Table(
        "Not measured", "A dash is not zero: the number could not be had here.", ("what", "value", "why"), tuple(rows)
    )


def _single(name: str) -> Callable[[Run], Bytes]:
    def read(run: Run) -> Bytes:
        found = run.find(name)
        return (
            Bytes(None, "", f"This Run holds no {name}.")
            if found is None
            else Bytes(found.value, found.source, found.note)
        )

    return read


SINGLE = {
    "time": _single("gpu_time_seconds"),
    "peak memory": _single("peak_allocated_bytes"),
    "error": _single("relative_error"),
}


def _named(comparison: Comparison) -> list[tuple[str, Run]]:
    return list(zip(comparison.names, comparison.runs, strict=True))
