"""What a paper reports of the problem at hand, beside what the Runs hold of it."""

from app.peak_check import possible_hbm
from app.picture import Table
from app.selection import Comparison
from app.style import seconds, traffic
from kernels.problem import AttentionProblem

# Dao et al. 2022, FlashAttention, Fig. 2, left: forward and backward, batch 64, on an A100. Bytes and seconds.
FIG_2 = AttentionProblem(64, 16, 16, 1024, 1024, 64, "float16", backward=True)
REPORTED = {"standard attention": (40.3e9, 41.7e-3), "FlashAttention": (4.4e9, 7.3e-3)}
CAPTION = (
    "HBM bytes, read and written, and time of one pass forward and backward. Dao et al. 2022, Fig. 2, of other kernels "
    "on an A100; they give one number for each."
)


def beside_the_paper(found: Comparison) -> Table | None:
    """A row for each kernel of FlashAttention's Fig. 2 and for each Run; None for another problem than the figure's."""
    if found.runs[0].workload.problem != FIG_2:
        return None
    rows = [(f"{name}, paper", "A100", traffic(size), seconds(time)) for name, (size, time) in REPORTED.items()]
    reasons = [("",) * 4] * len(rows)
    sources = [("",) * 4] * len(rows)
    for name, run in zip(found.names, found.runs, strict=True):
        moved, time = possible_hbm(run), run.find("gpu_time_seconds")
        spent = None if time is None else time.value
        rows.append((name, run.device.name, traffic(moved.value), seconds(spent)))
        reasons.append(("", "", moved.reason, "" if spent is not None else time.note if time else "not in this Run"))
        sources.append(("", "", moved.source, "" if time is None or spent is None else time.source))
    columns = ("kernel", "GPU", "HBM bytes", "time")
    return Table("Beside the paper's figures", CAPTION, columns, tuple(rows), tuple(reasons), tuple(sources))
