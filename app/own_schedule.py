"""Where the schedule of a subject is from: Bytescope's own follow from the kernel, one of the user's is its word."""

from app.style import ratio
from app.subject import Subject
from kernels.own import is_own
from profiler.ncu_import import is_imported

OURS = "from the schedule, no Run needed"


def where_from(subject: Subject) -> str:
    """The end of the line that says how the schedule is known; of an own kernel whether the interpreter agrees."""
    run = subject.run
    if run is None or not is_own(subject.kernel):
        return OURS
    said = f"from the schedule of {run.workload.like}, which the kernel says is its own"
    seen = [run.find(f"requested_{way}_bytes", source="interpreter") for way in ("read", "write")]
    sizes = [one.value for one in seen if one is not None and one.value is not None]
    if len(sizes) < len(seen):
        return f"{said}; it was not interpreted, so nothing confirms that"
    planned = subject.schedule.requested_read_bytes + subject.schedule.requested_write_bytes
    if sum(sizes) == planned:
        return f"{said}; the interpreter saw the same bytes"
    return f"{said}, but the interpreter saw {ratio(sum(sizes) / planned)} these bytes: it is another"


def no_schedule(subject: Subject) -> str:
    """What to say of launches whose programs are not known."""
    if is_imported(subject.kernel):
        return "What happens inside is not known: it was profiled elsewhere."
    if is_own(subject.kernel):
        return 'What happens inside is not known: the function names no schedule, such as schedule = "flash".'
    return "Each launch reads its operands and writes its result; from the schedule."
