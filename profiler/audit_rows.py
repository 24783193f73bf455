"""From what one subject's measuring found to its rows: each limit's two numbers, and the verdict."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernels.problem import TileConfig
from profiler.audit import FAIL, NOT_CHECKED, PASS, AuditRow
from profiler.audit_grid import KnownWork, LibraryWork, Subject
from profiler.audit_limits import (
    GPU_LIMITS,
    INTERPRETER_LIMITS,
    KNOWN,
    KNOWN_LIMITS,
    REFEREE,
    WRITE_LIMITS,
    Agreement,
    Limit,
)
from profiler.plausible import printable
from profiler.run import HALVES, DeviceInfo, Measurement, Run
from profiler.workload import Workload

COUNTER = "cupti-range"
COUNT_PHASE = "count"  # of the source COUNTER
MORE_PASSES = 1  # launch by launch
UNBOUND = "the kernel claims no bound; L1 and multicast saved what is below requested, what is above was read again"
BETWEEN = "; ncu pauses between launches, and L2 loses some of what one leaves for the next"
WHY_CHANGING = (
    "what L2 keeps, and which reads of several SMs it merges, changes with where tensors lie and when programs run"
)


@dataclass(frozen=True)
class Found:
    """What one subject's measuring gave; `refused` says why it cannot run here, `broken` how it failed.

    samples and phases are those of a Run; `elsewhere` are samples of the same work in other places of memory.
    """

    subject: Subject
    measurements: tuple[Measurement, ...] = ()
    samples: dict[str, tuple[float, ...]] = field(default_factory=dict)
    phases: dict[str, float] = field(default_factory=dict)
    elsewhere: dict[str, tuple[float, ...]] = field(default_factory=dict)
    refused: str = ""
    broken: str = ""

    @classmethod
    def of(cls, subject: Subject, run: Run) -> "Found":
        """What a Run holds."""
        return cls(subject, run.measurements, run.samples, run.phases)

    def joined(self, told: Sequence[Measurement]) -> "Found":
        """The same with what was told later, in place of the same quantities of the same sources."""
        later = {(m.name, m.source) for m in told}
        others = tuple(m for m in self.measurements if (m.name, m.source) not in later)
        return replace(self, measurements=(*others, *told))


def without_referee(subjects: Sequence[Subject], reason: str) -> tuple[Found, ...]:
    """What the referee tells of subjects that it cannot measure: nothing, and why."""
    limits = [limit for limit in GPU_LIMITS if isinstance(limit, Agreement) and limit.against == REFEREE]
    missing = tuple(Measurement(limit.quantity, None, limit.unit, REFEREE, reason) for limit in limits)
    return tuple(Found(subject, missing) for subject in subjects)


def rows(found: Found, device: DeviceInfo) -> tuple[AuditRow, ...]:
    """One row for each limit that concerns the subject; a single one that fails where it broke down."""
    subject = found.subject
    if found.broken:
        cells = (subject.label, subject.kernel, "measuring", "1", "", None, "", None, "finished", FAIL)
        return (AuditRow(*cells, printable(found.broken)),)
    found = replace(found, measurements=(*found.measurements, *_written(subject)))
    busy = _hbm_busy(found.measurements, device)
    checked = [_row(found, limit, busy) for limit in _limits(subject) if _concerns(limit, busy)]
    if not isinstance(subject.work, KnownWork) and not subject.is_interpreted:
        checked.append(_explained(found))
    return tuple(checked)


def _limits(subject: Subject) -> tuple[Limit, ...]:
    if subject.is_interpreted:
        return INTERPRETER_LIMITS
    if isinstance(subject.work, KnownWork):
        return (*KNOWN_LIMITS, *GPU_LIMITS)
    return (*WRITE_LIMITS, *GPU_LIMITS) if _written(subject) else GPU_LIMITS


def _written(subject: Subject) -> tuple[Measurement, ...]:
    """What fused attention has to write: O, and LSE where it is asked for; nothing of other work."""
    work = subject.work
    if subject.is_interpreted or isinstance(work, KnownWork):
        return ()
    if isinstance(work, Workload) and not work.attention_kernel.is_tiled:
        return ()
    sizes = work.problem.tensor_bytes
    size = sizes["o"] + (sizes["lse"] if isinstance(work, Workload) else 0)
    return (Measurement("hbm_write_bytes", float(size), "B", KNOWN, "each byte once"),)


def _concerns(limit: Limit, busy: float | None) -> bool:
    """Whether HBM was as busy as the limit asks; where that is not known, the strictest limit stands."""
    if not isinstance(limit, Agreement):
        return True
    above, up_to = limit.busy
    return above < (1.0 if busy is None else busy) <= up_to


def _row(found: Found, limit: Limit, busy: float | None) -> AuditRow:
    subject = found.subject
    if isinstance(limit, Agreement):
        value, note = answer(found.measurements, limit.quantity, limit.source)
        reference, why_not = answer(found.measurements, limit.quantity, limit.against)
        verdict, against = limit.verdict(value, reference), limit.against
        if value is not None and reference is None:
            note = why_not
        if busy is not None and limit.source == "nvml-gpm" and value is not None:
            note = f"HBM {busy:.0%} busy; {note}"
    else:
        value, note = counting_seconds(found)
        verdict, against, reference = limit.verdict(value), "", None
    if verdict == FAIL and isinstance(limit, Agreement) and limit.against == REFEREE:
        verdict, note = _told_apart(found, limit, value or 0.0, reference or 0.0, note)
    note = found.refused or note
    cells = (limit.quantity, limit.unit, limit.source, value, against, reference, limit.sentence, verdict)
    return AuditRow(subject.label, subject.kernel, *cells, printable(note))


def answer(measurements: Sequence[Measurement], quantity: str, source: str) -> tuple[float | None, str]:
    """(value, note) of a whole run's quantity by one source, or (None, the reason why not).

    Summed over the launches where the source tells only those.
    """
    is_told = any(m.name == quantity and m.source == source for m in measurements)
    if is_told or quantity not in HALVES:
        return _single(measurements, quantity, source)
    halves = [_single(measurements, name, source) for name in HALVES[quantity]]
    if any(half is None for half, _ in halves):
        return None, next(reason for half, reason in halves if half is None)
    return sum(half for half, _ in halves if half is not None), halves[0][1]


def _single(measurements: Sequence[Measurement], name: str, source: str) -> tuple[float | None, str]:
    told = [m for m in measurements if m.name == name and m.source == source]
    parts = [m for m in told if m.launch is None][:1] or told
    values = [m.value for m in parts if m.value is not None]
    if parts and len(values) == len(parts):
        return sum(values), parts[0].note
    return None, next((m.note for m in told if m.value is None), f"{source} tells no {name} here")


def _told_apart(found: Found, limit: Agreement, value: float, reference: float, note: str) -> tuple[str, str]:
    """The verdict on two numbers that are too far apart, and its note: none where the quantity itself moves as far.

    The referee runs in another process, so in other places of memory.
    """
    passes = (*found.samples.get(limit.quantity, ()), *found.elsewhere.get(limit.quantity, ()))
    spread = max(passes) - min(passes) if passes else 0.0
    if not passes or abs(value - reference) > limit.allowed(reference) + spread:
        launches = {m.launch for m in found.measurements if m.source == COUNTER} - {None}
        return FAIL, f"{note}{BETWEEN if len(launches) > 1 else ''}"
    own = f"its own passes, here and elsewhere in memory, differ by {spread / value:.1%}" if value else ""
    return NOT_CHECKED, f"{own}, so that {limit.sentence} cannot be told: {WHY_CHANGING}"


def counting_seconds(found: Found) -> tuple[float | None, str]:
    """Seconds that counting adds to each launch it counts, and how that was found; (None, reason) if not counted."""
    value, note = answer(found.measurements, "hbm_read_bytes", COUNTER)
    if value is None:
        return None, note
    launches = len({m.launch for m in found.measurements if m.source == COUNTER and m.launch is not None})
    passes = sum(len(found.samples.get(name, ())) for name in HALVES["hbm_bytes"]) + MORE_PASSES
    seconds, (of_a_pass, _) = (
        found.phases.get(COUNT_PHASE),
        answer(found.measurements, "gpu_time_seconds", "cuda-event"),
    )
    if seconds is None or not launches:
        return None, f"the time that {COUNTER} took is not known"
    if of_a_pass is None:
        return None, "the time of a pass without counting is not known"
    added = max(0.0, seconds - passes * of_a_pass)
    return added / (passes * launches), f"{seconds:.3f} s for {passes} passes of {launches} launches"


def _hbm_busy(measurements: Sequence[Measurement], device: DeviceInfo) -> float | None:
    """HBM bytes of a pass as a share of what its peak moves in the pass's time."""
    moved, _ = answer(measurements, "hbm_bytes", COUNTER)
    seconds, _ = answer(measurements, "gpu_time_seconds", "cuda-event")
    peak = device.peak_hbm_bytes_per_second
    return moved / (seconds * peak) if moved is not None and seconds and peak else None


def _explained(found: Found) -> AuditRow:
    """L2↔SM against requested: within what the kernel's docstring claims, and how much L1 and merging saved."""
    crossed, reason = answer(found.measurements, "l2_sm_bytes", COUNTER)
    asked, why_not = answer(found.measurements, "requested_bytes", "schedule")
    subject, verdict = found.subject, NOT_CHECKED
    work = subject.work
    bounds = work.attention_kernel.l2_sm_bounds if isinstance(work, Workload) else None
    if isinstance(work, LibraryWork):
        why_not = "what a library's kernel requests is not known"
    if found.refused or crossed is None or asked is None:
        note = found.refused or (reason if crossed is None else why_not)
    elif bounds is None or not isinstance(work, Workload):
        note = UNBOUND
    else:
        fewest, most = bounds(work.problem, work.tile or TileConfig())
        verdict = PASS if fewest <= crossed <= most else FAIL
        apart = f"{abs(crossed / asked - 1):.0%}"
        saved = f"L1 and merged requests saved {apart} of what is requested"
        if crossed > asked:
            saved = f"what was read again is {apart} of what is requested"
        note = f"claimed: {fewest:,} to {most:,} B; {saved}"
    cells = ("l2_sm_bytes", "B", COUNTER, crossed, "schedule", asked, "within what the kernel claims")
    return AuditRow(subject.label, subject.kernel, *cells, verdict, printable(note))
