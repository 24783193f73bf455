"""Loads from their spec, for sources that measure in a process of their own."""

from collections.abc import Mapping
from typing import Any

from profiler.bench import Bench, Load
from profiler.codec import decode
from profiler.run import DeviceInfo
from profiler.workload import Workload


def build(spec: Mapping[str, Any], device: DeviceInfo) -> Load:
    """The Load whose `spec` this is. Raises NotARun for anything else."""
    return Bench(decode(Workload, spec.get("workload"), "spec.workload"), device)
