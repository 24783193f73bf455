"""Loads from their spec, for sources that measure in a process of their own."""

from collections.abc import Mapping
from typing import Any

from profiler.audit_grid import KnownWork, LibraryWork
from profiler.bench import Bench, Load
from profiler.codec import NotARun, decode
from profiler.known_loads import KnownLoad, LibraryLoad
from profiler.run import DeviceInfo
from profiler.workload import Workload


def build(spec: Mapping[str, Any], device: DeviceInfo) -> Load:
    """The Load whose `spec` this is. Raises NotARun for anything else, Refused where the work cannot run."""
    match dict(spec):
        case {"workload": work}:
            return Bench(decode(Workload, work, "spec.workload"), device)
        case {"known": work}:
            return KnownLoad(decode(KnownWork, work, "spec.known"), device)
        case {"library": work}:
            return LibraryLoad(decode(LibraryWork, work, "spec.library"), device)
    raise NotARun("spec should hold one of workload, known and library.")
