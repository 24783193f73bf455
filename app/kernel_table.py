"""The kernels that a pass really launched, by the names the driver knows."""

from app.launch_chart import launch_title
from app.picture import Table
from app.selection import Comparison
from profiler.run import Run

TITLE = "Kernels that ran"
CAPTION = "In the order in which they ran; a library chooses its own."


def kernels_that_ran(found: Comparison) -> Table | None:
    """One row for each kernel of each Run that holds their names; None where none does."""
    named = [(name, run) for name, run in zip(found.names, found.runs, strict=True) if run.kernels]
    if not named:
        return None
    rows = tuple(
        (name, launch_title(kernel.launch) if kernel.launch else "outside", kernel.kernel)
        for name, run in named
        for kernel in run.kernels
    )
    by: dict[str, list[str]] = {}
    for name, run in named:
        by.setdefault(_source(run), []).append(name)
    told = [f"{source} ({', '.join(names)})" if len(by) > 1 else source for source, names in by.items()]
    return Table(TITLE, f"{CAPTION} As listed by {'; by '.join(told)}.", ("run", "launch", "kernel"), rows)


def _source(run: Run) -> str:
    """Who named a Run's kernels: a Run holds one list, of the first that could, callbacks before ncu."""
    if run.value("kernels_launched"):
        return "CUPTI's callbacks"
    if any(m.source == "ncu" and m.value is not None for m in run.measurements):
        return "ncu"
    return "a profiler that the Run does not name"
