"""Boards made by hand for tests: tiles with times, bytes and what a compiler would tell of them."""

from collections.abc import Mapping
from dataclasses import replace

from app.block_board import Cell, Measured, Number
from app.block_quantities import COMPILED, ERROR, HBM, L2_SM, MEASURED_HERE, QUANTITIES, REQUESTED, TIME
from kernels.problem import AttentionProblem, TileConfig
from profiler.resources import Code, Configuration, LaunchResources, Resources
from profiler.run import Measurement, Run
from profiler.workload import Workload
from tests import fake_runs

PROBLEM = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")


def tile(block_m: int, block_n: int, warps: int = 4, stages: int = 3) -> TileConfig:
    return TileConfig(block_m, block_n, warps, stages)


def cell(block_m: int, block_n: int, why_not: str = "", **values: float | None) -> Cell:
    """A cell with these values by quantity, all others missing."""
    numbers = {}
    for key in QUANTITIES:
        source = "cuda-event" if key in MEASURED_HERE else "schedule" if key == REQUESTED else COMPILED
        value = values.get(key)
        numbers[key] = Number(value, source) if value is not None else Number(None, reason=f"no {key} here")
    return Cell(tile(block_m, block_n), numbers, why_not)


def resources(
    block_m: int, block_n: int, registers: int = 128, spills: int = 0, shared: int = 65536, warps: int = 4
) -> Resources:
    """What a compiler would tell of flash on Hopper."""
    launch = LaunchResources("flash", registers, spills, shared, 0, warps, 1024, Code("", "", ""))
    return Resources(Configuration("flash", PROBLEM, tile(block_m, block_n, warps), (9, 0)), "3.7.1", (launch,))


def measured(block_m: int, block_n: int, milliseconds: float, moved: float = 1e9, **how: str) -> Measured:
    """What a Run on an H200 found of one tile."""
    found: Mapping[str, tuple[float, str]] = {
        TIME: (milliseconds * 1e-3, "cuda-event"), L2_SM: (moved, "cupti-range"), HBM: (1.35e8, "cupti-range"),
        ERROR: (2.3e-3, "torch"),
    }  # fmt: skip
    workload = Workload("flash", PROBLEM, tile(block_m, block_n), "cuda:0")
    of = {"device": "NVIDIA H200", "created": "2026-11-29T12:00:00Z", "run_id": f"m-{block_m}-{block_n}"} | how
    return Measured(workload, of["device"], of["created"], of["run_id"], found)


def run(block_m: int, block_n: int, milliseconds: float, moved: float) -> Run:
    """A Run of flash on an H200 with that tile, time and L2↔SM bytes."""
    one = fake_runs.flash_run()
    values = (
        Measurement(TIME, milliseconds * 1e-3, "s", "cuda-event"),
        Measurement(L2_SM, moved, "B", "cupti-range"),
        Measurement("hbm_read_bytes", 1.01e8, "B", "cupti-range"),
        Measurement("hbm_write_bytes", 0.34e8, "B", "cupti-range"),
    )
    workload = Workload("flash", PROBLEM, tile(block_m, block_n), "cuda:0")
    return replace(
        one, id=f"run-{block_m}-{block_n}", workload=workload, measurements=values, softmax=None, timeline=None,
        samples={}, series=(), spans=(), kernels=(),
    )  # fmt: skip
