"""What a Workload asks of the measuring itself, in one spelling for the form, the pages and every export."""

from profiler.workload import Workload

L2, PASSES, COUNTERS, DRAIN, DETAIL = "L2", "passes", "bytes counted by", "write-back drain", "detail counters"


def asked(workload: Workload) -> dict[str, str]:
    """Each setting's value by its name; dashes on a CPU, which has no L2 to prepare, no counters and one pass."""
    if not workload.on_gpu:
        return dict.fromkeys((L2, PASSES, COUNTERS, DRAIN, DETAIL), "–")
    return {
        L2: workload.l2,
        PASSES: f"{workload.repeats:,}",
        COUNTERS: workload.counters,
        DRAIN: "yes" if workload.drain else "no",
        DETAIL: "yes" if workload.detail else "no",
    }


def in_a_line(workload: Workload) -> str:
    """The same as part of a line, such as "cold L2, 20 passes, bytes counted by auto"; empty on a CPU."""
    if not workload.on_gpu:
        return ""
    switches = (name if is_on else f"no {name}" for name, is_on in ((DRAIN, workload.drain), (DETAIL, workload.detail)))
    return ", ".join((conditions(workload), f"{COUNTERS} {workload.counters}", *switches))


def conditions(workload: Workload) -> str:
    """The short of it, such as "cold L2, 20 passes"; empty on a CPU."""
    if not workload.on_gpu:
        return ""
    return f"{workload.l2} {L2}, {workload.repeats:,} pass{'' if workload.repeats == 1 else 'es'}"
