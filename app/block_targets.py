"""The GPUs that tiles can be looked at on: those here, those that Runs come from, and those of the table."""

from collections.abc import Sequence
from dataclasses import dataclass

from app.block_board import Measured, Subject
from app.block_measured import of_subject
from app.devices import devices
from profiler.device import GPUS, find_spec
from profiler.target import GpuTarget, gpu_target, target_of
from profiler.workload import CPU

OLDEST = (8, 0)  # that Triton compiles for
WITHOUT_ANY = ("a100", "h100")  # what is offered first where no GPU is here and none was measured


@dataclass(frozen=True)
class Target:
    """A GPU under its title. `gpu` is None where its limits are not known, and `why` says so.

    `names` are those that its Runs give it, all of them `recorded` or none; `device` is what it is called here, empty
    where it is not here.
    """

    title: str
    gpu: GpuTarget | None
    why: str = ""
    names: tuple[str, ...] = ()
    device: str = ""
    recorded: bool = False

    def owns(self, one: Measured) -> bool:
        """Whether that was measured on it."""
        is_same_kind = one.workload.on_gpu == (self.device != CPU)
        return is_same_kind and one.device in self.names and one.recorded == self.recorded


def targets(subject: Subject, found: Sequence[Measured]) -> dict[str, Target]:
    """Every target by its title: here first, then measured, then the rest of the table."""
    offered: dict[str, Target] = {}
    for info in devices().values():
        if info.device != CPU:
            gpu, why = target_of(info)
            title = f"{info.name}, {info.device}" if info.name in offered else info.name
            offered[title] = Target(title, gpu, why, (info.name,), info.device)
    for one in of_subject(found, subject):
        if not any(target.owns(one) for target in offered.values()):
            target = _measured_elsewhere(one.device, one.recorded) if one.workload.on_gpu else _interpreted(one.device)
            offered[target.title] = target
    seen = {name for target in offered.values() for name in target.names}
    for name, spec in GPUS.items():
        known = {f"{vendor}{known}" for known in spec.nvml_names for vendor in ("", "NVIDIA ")}
        if spec.compute_capability >= OLDEST and not seen & known:
            offered[spec.title] = Target(spec.title, gpu_target(name))
    return offered


def default_targets(offered: dict[str, Target]) -> list[str]:
    """The titles that are shown before anybody has chosen."""
    gpus = [title for title, target in offered.items() if target.names and target.device != CPU]
    cpus = [title for title, target in offered.items() if target.device == CPU]
    return [*(gpus[:2] or [GPUS[name].title for name in WITHOUT_ANY]), *cpus[:1]]


def _interpreted(name: str) -> Target:
    why = "an interpreted kernel has no registers and no shared memory"
    return Target(f"{name}, interpreted", None, why, (name,), CPU)


def _measured_elsewhere(name: str, recorded: bool) -> Target:
    title = f"{name} (recorded)" if recorded else name
    spec = find_spec(name)
    key = next((key for key, known in GPUS.items() if known is spec), None)
    if key is None:
        why = f"{name} is not in the table of GPUs, so nothing can be compiled for it"
        return Target(title, None, why, (name,), recorded=recorded)
    return Target(title, gpu_target(key), "", (name,), recorded=recorded)
