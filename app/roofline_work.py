"""What a Run, or one launch of it, did and in what time, held against the roofs of its GPU."""

from collections.abc import Mapping
from dataclasses import dataclass

from app.four_kinds import Bytes, l2_sm
from app.launch_chart import launch_title
from app.peak_check import possible_hbm
from app.roofs import COMPUTE, HBM, L2, Machine, Roof
from app.style import flop_rate
from app.subject import schedule_of
from profiler.own_kernel import needed_flops
from profiler.roofline import intensity, limit
from profiler.run import Run


@dataclass(frozen=True)
class Work:
    """FLOP, bytes and seconds of a Run (launch None) or of one launch; None where they are not known.

    `roofs` are those over it. `doubt` says why its FLOP/s cannot be true; it is then not drawn.
    """

    name: str
    run: Run
    launch: str | None
    flops: float | None
    flops_source: str
    seconds: float | None
    seconds_source: str
    moved: Mapping[str, Bytes]
    roofs: Mapping[str, Roof]

    @property
    def title(self) -> str:
        """What its label says."""
        return self.name if self.launch is None else launch_title(self.launch, self.run.workload.kernel)

    @property
    def reached(self) -> float | None:
        """FLOP/s; None where either is not known, or where they are more than the GPU can make."""
        return None if self.flops is None or not self.seconds or self.doubt else self.flops / self.seconds

    @property
    def doubt(self) -> str:
        """Why FLOP and time do not belong together; empty where they may."""
        peak = self.roofs.get(COMPUTE)
        if self.flops is None or not self.seconds or peak is None or peak.rate is None:
            return ""
        rate = self.flops / self.seconds
        if rate <= peak.rate:
            return ""
        return f"{flop_rate(rate)} would be above the {peak.name} of {flop_rate(peak.rate)}, so it is not drawn."

    @property
    def why_no_flops(self) -> str:
        """Why its FLOP are not known, as a sentence; empty where they are."""
        if self.flops is not None:
            return ""
        note = needed_flops(self.run).note if self.launch is None else "how many FLOP this launch makes is not known"
        return f"{note[:1].upper()}{note[1:].rstrip('.')}."

    def intensity(self, level: str) -> float | None:
        """FLOP/B at a memory level; None where either is not known, or nothing moved."""
        size = self.moved[level].value
        return intensity(self.flops, size) if self.flops is not None and size else None

    @property
    def limited(self) -> tuple[Roof, float] | None:
        """The roof that limits it and the share of it that it reaches; None where time or every roof is not known."""
        if not self.seconds:
            return None
        amounts = {level: part.value for level, part in self.moved.items() if part.value is not None}
        if self.flops is not None and not self.doubt:
            amounts[COMPUTE] = self.flops
        rates = {level: roof.rate for level, roof in self.roofs.items() if roof.rate is not None}
        found = limit(amounts, self.seconds, rates)
        return None if found is None else (self.roofs[found.roof], found.share)


def works(machine: Machine) -> tuple[Work, ...]:
    """Each Run of a GPU, followed by its launches where it has more than one that was timed."""
    found = []
    for name, run in zip(machine.names, machine.runs, strict=True):
        roofs = machine.over(run)
        found.append(_work(name, run, None, roofs, *_needed(run)))
        launches = [part.launch for part in run.launches("gpu_time_seconds") if part.value is not None]
        told = {launch.name: launch.flops for launch in schedule_of(run).launches}
        for launch in dict.fromkeys(launches) if len(set(launches)) > 1 else ():
            assert launch is not None
            flops = told.get(launch)
            known = (float(flops), "schedule") if flops is not None else _counted(run, launch)
            found.append(_work(name, run, launch, roofs, *known))
    return tuple(found)


def _work(name: str, run: Run, launch: str | None, roofs: Mapping[str, Roof], flops: float | None, source: str) -> Work:
    moved = {HBM: possible_hbm(run, launch), L2: l2_sm(run, launch)}
    time = run.find("gpu_time_seconds", launch)
    seconds = None if time is None else time.value
    clock = time.source if time is not None and seconds is not None else ""
    return Work(name, run, launch, flops, source, seconds, clock, moved, roofs)


def _needed(run: Run) -> tuple[float | None, str]:
    """What the problem needs; where a Run does not tell, what its tensor cores did."""
    found = needed_flops(run)
    return (found.value, found.source) if found.value is not None else _counted(run, None)


def _counted(run: Run, launch: str | None) -> tuple[float | None, str]:
    """Operations of the tensor cores, where they made any."""
    found = run.find("tensor_flops", launch)
    return (found.value, found.source) if found is not None and found.value else (None, "")
