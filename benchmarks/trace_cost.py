"""Prints what recording costs flash: its time without, with the softmax state, and with the times of its programs.

python -m benchmarks.trace_cost           needs a GPU
"""

import statistics
import sys
from contextlib import nullcontext

import torch
from rich.console import Console
from rich.table import Table

from kernels.problem import AttentionProblem, TileConfig
from kernels.run import LaunchHook, Output
from profiler.bench import Bench
from profiler.child import describe
from profiler.measure import environment
from profiler.run import DeviceInfo
from profiler.state_trace import record_softmax, record_timeline
from profiler.workload import TraceRequest, Workload

DEVICE = "cuda:0"
PROBLEM = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
TILES = (TileConfig(128, 64, 8, 3), TileConfig(64, 64, 4, 3), TileConfig(128, 128, 8, 3))
ROUNDS = 50


class Recording(Bench):
    """A Bench whose passes record again what its last recorded launch did."""

    def __init__(self, workload: Workload, device: DeviceInfo) -> None:
        self.again: dict[str, object] = {}
        super().__init__(workload, device)

    def launch(self, hook: LaunchHook = nullcontext, **extra: object) -> Output:
        """As Bench's."""
        self.again = extra or self.again
        return super().launch(hook, **self.again)


def main() -> None:
    """Each tile three times over: off, state, timeline, one after the other in every round."""
    if not torch.cuda.is_available():
        sys.exit("This benchmark needs an NVIDIA GPU.")
    device = describe(DEVICE)
    table = Table("tile", "off, ms", "state, ms", "timeline, ms", "state / off", "timeline / off")
    for tile in TILES:
        workload = Workload("flash", PROBLEM, tile, DEVICE, trace=TraceRequest())
        off, state, timeline = (Recording(workload, device) for _ in range(3))
        record_softmax(state)
        record_timeline(timeline)
        loads = (off, state, timeline)
        times: dict[Bench, list[float]] = {load: [] for load in loads}
        for _ in range(ROUNDS):
            for load in loads:
                one = load.timed_pass()
                load.synchronize()
                times[load].append(one.seconds * 1e3)
        plain, *recorded = (statistics.median(times[load]) for load in loads)
        shares = (f"{value / plain:.3f}" for value in recorded)
        name = f"{tile.BLOCK_M}×{tile.BLOCK_N}, {tile.num_warps} warps, {tile.num_stages} stages"
        table.add_row(name, *(f"{value:.4f}" for value in (plain, *recorded)), *shares)
    versions = ", ".join(f"{name} {version}" for name, version in environment().items())
    console = Console(width=140)
    console.print(f"{PROBLEM.label}, {device.name}, driver {device.driver}, {versions}; medians of {ROUNDS}, cold L2")
    console.print(table)


if __name__ == "__main__":
    with torch.inference_mode():
        main()
