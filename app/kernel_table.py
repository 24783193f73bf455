"""The kernels that a pass really launched, by the names the driver knows."""

from collections import Counter

from app.launch_chart import launch_title
from app.picture import Table
from app.selection import Comparison
from app.style import traffic
from kernels.own import is_own
from kernels.problem import TileConfig
from profiler.run import Run

TITLE = "Kernels that ran"
CAPTION = "In the order in which they ran; a library chooses its own."
COUNTED = ("hbm_read_bytes", "hbm_write_bytes", "l2_sm_bytes")
COLUMNS = ("run", "launch", "HBM read", "HBM write", "L2↔SM", "kernel")
KERNELS_LAUNCHED = "kernels_launched"
WHY_NOT = "This kernel was not counted by itself."


def kernels_that_ran(shown: Comparison) -> Table | None:
    """One row for each kernel of each Run that holds their names; None where none does."""
    named = [(name, run) for name, run in zip(shown.names, shown.runs, strict=True) if run.kernels]
    if not named:
        return None
    rows, reasons, sources = [], [], []
    for name, run in named:
        made = Counter(kernel.launch for kernel in run.kernels)
        for kernel in run.kernels:
            # Of several kernels that share a launch nobody knows whose bytes are whose.
            found = [run.find(quantity, kernel.launch) if made[kernel.launch] == 1 else None for quantity in COUNTED]
            counted = [
                ("–", WHY_NOT, "") if one is None or one.value is None else (traffic(one.value), "", one.source)
                for one in found
            ]
            launch = launch_title(kernel.launch) if kernel.launch else "outside"
            rows.append((name, launch, *(text for text, _, _ in counted), kernel.kernel))
            reasons.append(("", "", *(reason for _, reason, _ in counted), ""))
            sources.append(("", "", *(source for _, _, source in counted), ""))
    by: dict[str, list[str]] = {}
    for name, run in named:
        by.setdefault(_source(run), []).append(name)
    told = [f"{source} ({', '.join(names)})" if len(by) > 1 else source for source, names in by.items()]
    return Table(
        TITLE, f"{CAPTION} As listed by {'; by '.join(told)}.", COLUMNS, tuple(rows), tuple(reasons), tuple(sources)
    )


def kernels_of_libraries(shown: Comparison) -> Table | None:
    """For each Run that is one call of a library, the kernels that the call really started; None without such a Run."""
    rows, reasons = [], []
    for name, run in zip(shown.names, shown.runs, strict=True):
        # Without a GPU nobody names what a function of the user's ran.
        if not _is_one_call(run) or (is_own(run.workload.kernel) and not run.workload.on_gpu):
            continue
        told = run.find(KERNELS_LAUNCHED)
        rows.append((name, ", then ".join(_breakable(kernel.kernel) for kernel in run.kernels) or "–"))
        reasons.append(("", "" if run.kernels or told is None else told.note))
    if not rows:
        return None
    caption = "One call each; what it started, by the names that the driver knows."
    is_own_there = any(is_own(run.workload.kernel) for run in shown.runs)
    title = "What each call ran" if is_own_there else "What the libraries ran"
    return Table(title, caption, ("run", "kernel"), tuple(rows), tuple(reasons))


def _breakable(name: str) -> str:
    """A kernel's name that a narrow column may break after any of its parts."""
    return name.replace("_", "_\u200b")


def _is_one_call(run: Run) -> bool:
    """Whether all that is known beforehand of its kernels is that one call starts them."""
    work = run.workload
    launches = work.attention_kernel.schedule(work.problem, work.tile or TileConfig()).launches
    return len(launches) == 1 and launches[0].walk is None


def _source(run: Run) -> str:
    """Who named a Run's kernels: a Run holds one list, of the first that could, callbacks before ncu."""
    if run.value(KERNELS_LAUNCHED):
        return "CUPTI's callbacks"
    if any(m.source == "ncu" and m.value is not None for m in run.measurements):
        return "ncu"
    return "a profiler that the Run does not name"
