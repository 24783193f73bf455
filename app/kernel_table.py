"""The kernels that a pass really launched, by the names the driver knows."""

from app.launch_chart import launch_title
from app.picture import Table
from app.selection import Comparison

TITLE = "Kernels that ran"
CAPTION = "In the order in which they ran, as torch.profiler lists them; a library chooses its own."


def kernels_that_ran(found: Comparison) -> Table | None:
    """One row for each kernel of each Run that holds their names; None where none does."""
    rows = tuple(
        (name, launch_title(kernel.launch) if kernel.launch else "outside", kernel.kernel)
        for name, run in zip(found.names, found.runs, strict=True)
        for kernel in run.kernels
    )
    return Table(TITLE, CAPTION, ("run", "launch", "kernel"), rows) if rows else None
