"""An audit of an H200 made by hand: numbers of every source, shapes that cuDNN refuses, two missed limits."""

from dataclasses import replace

from kernels.problem import TileConfig
from profiler.audit import PASS, Audit, AuditRow
from profiler.audit_grid import KnownWork, LibraryWork, Subject, gpu_subjects, interpreted_subjects
from profiler.audit_rows import Found, rows
from profiler.run import DeviceInfo, Measurement
from profiler.workload import Workload
from tests.fake_runs import ENVIRONMENT, H200

IN_L2 = (
    "GPM needs passes back to back, and their 4.19 MB stay in L2 (62.9 MB), so it cannot tell what a cold pass moves"
)
REFUSED = "cuDNN's attention does not take this problem: head_dim should be no more than 128"


def gpu_found(subject: Subject) -> Found:
    """What every source would say of a subject that moves what it must, each a little off."""
    if isinstance(subject.work, KnownWork):
        reads, writes = {"copy": (1, 1), "fill": (0, 1), "sum": (1, 0)}[subject.work.operation]
        read, write = float(reads * subject.work.size), float(writes * subject.work.size)
    else:
        size = subject.work.problem.tensor_bytes
        read, write = float(size["q"] + size["k"] + size["v"]), float(size["o"])
        if isinstance(subject.work, Workload) and subject.work.attention_kernel.is_tiled:
            write += size["lse"]
    total, launch = read + write, subject.kernel
    crossed = total * 4
    if isinstance(subject.work, Workload) and (bounds := subject.work.attention_kernel.l2_sm_bounds):
        crossed = sum(bounds(subject.work.problem, subject.work.tile or TileConfig())) / 2
    seconds = max(total / 3e12, 5e-6)
    told = {
        "model": {"hbm_read_bytes": read, "hbm_write_bytes": write} if isinstance(subject.work, KnownWork) else {},
        "cupti-range": {"hbm_read_bytes": read * 1.0004, "hbm_write_bytes": write * 1.002, "l2_sm_bytes": crossed}
        | {"l2_to_sm_bytes": total * 6},
        "ncu": {"hbm_read_bytes": read, "hbm_write_bytes": write, "l2_sm_bytes": crossed * 1.0025}
        | {"l2_to_sm_bytes": total * 6},
        "cupti-sampling": {"hbm_read_bytes": read * 1.009, "hbm_write_bytes": write},
        "cuda-event": {"gpu_time_seconds": seconds},
    }
    if isinstance(subject.work, Workload):
        told["schedule"] = {"requested_read_bytes": total * 5, "requested_write_bytes": write}
    measurements = [
        Measurement(name, value, "s" if name.endswith("seconds") else "B", source, f"as {source} counts it")
        for source, values in told.items()
        for name, value in values.items()
    ]
    measurements.append(Measurement("gpu_time_seconds", seconds * 1.01, "s", "cupti-range", launch=launch))
    measurements.append(
        Measurement("hbm_bytes", total * 0.993, "B", "nvml-gpm", "estimate")
        if total > H200.l2_bytes  # type: ignore[operator]
        else Measurement("hbm_bytes", None, "B", "nvml-gpm", IN_L2)
    )
    return Found(
        subject, tuple(measurements), {"hbm_read_bytes": (read,) * 3, "hbm_write_bytes": (write,) * 2}, {"count": 0.27}
    )


def interpreted_found(subject: Subject) -> Found:
    """Requested bytes that the interpreter saw as the schedule has them."""
    work = subject.work
    assert isinstance(work, Workload)
    plan = work.attention_kernel.schedule(work.problem, work.tile)  # type: ignore[arg-type]
    values = {"requested_read_bytes": plan.requested_read_bytes, "requested_write_bytes": plan.requested_write_bytes}
    told = [Measurement(n, float(v), "B", source) for n, v in values.items() for source in ("schedule", "interpreter")]
    return Found(subject, tuple(told))


def spoiled(found: Found) -> Found:
    """The sampled bytes 3% low."""
    wrong = [
        replace(m, value=m.value * 0.97) if m.source == "cupti-sampling" and m.value is not None else m
        for m in found.measurements
    ]
    return replace(found, measurements=tuple(wrong))


def audit_of(found: list[Found], device: DeviceInfo = H200, audit_id: str = "20261129T160102-audit-fake") -> Audit:
    """An Audit of these subjects."""
    took = AuditRow("whole grid", "", "audit_seconds", "s", "", 74.2, "", None, "under 2 minutes", PASS)
    checked = (*(row for one in found for row in rows(one, device)), took)
    return Audit(audit_id, "2026-11-29T16:01:02Z", device, ENVIRONMENT, checked, ("fake-naive", "fake-flash"), 74.2)


def h200_audit() -> Audit:
    """The whole grid; one shape refused, one whose samples are off, one whose kernel broke down."""
    found = [gpu_found(subject) for subject in gpu_subjects("cuda:0")]
    for index, one in enumerate(found):
        work = one.subject.work
        if isinstance(work, LibraryWork) and work.problem.head_dim == 256:
            found[index] = Found(one.subject, refused=REFUSED)
    found[11] = spoiled(found[11])
    found[4] = Found(found[4].subject, broken="flash (phase: time) ended: the worker process was killed by SIGKILL.")
    return audit_of([*found, *(interpreted_found(subject) for subject in interpreted_subjects())])
