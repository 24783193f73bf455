"""Whether a Run's kernel had the schedule that it has today: another version of it may have had other programs."""

from typing import TYPE_CHECKING

from kernels.schedule import Schedule

if TYPE_CHECKING:
    from profiler.run import Run


def has_schedule(run: "Run", plan: Schedule) -> bool:
    """True where the Run was told by its kernel's schedule of the bytes that `plan` asks for, or of none at all."""
    told = {m.name: m.value for m in run.measurements if m.source == "schedule" and m.launch is None}
    asked = {"requested_read_bytes": plan.requested_read_bytes, "requested_write_bytes": plan.requested_write_bytes}
    return all(told.get(name, size) == size for name, size in asked.items())
