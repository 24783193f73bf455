"""Boards: which number stands in which cell, with which source, or which reason."""

from dataclasses import replace

import pytest

from app.block_board import NOT_COMPILED, NOT_HERE, NOT_MEASURED, Subject, board
from app.block_measured import of_runs
from app.block_quantities import (
    COMPILED,
    CTAS,
    ERROR,
    HBM,
    L2_SM,
    OCCUPANCY,
    QUANTITIES,
    RATE,
    REGISTERS,
    REQUESTED,
    SPILLS,
    TIME,
    WAVES,
    in_unit,
)
from profiler.run import Measurement
from profiler.target import gpu_target
from tests.fake_boards import PROBLEM, measured, resources, run, tile

H200 = gpu_target("h200")
FLASH = Subject("flash", PROBLEM)


def test_every_number_has_its_source() -> None:
    compiled = {tile(128, 64): resources(128, 64, registers=168, spills=16, shared=98304)}
    (cell,) = board(FLASH, [tile(128, 64)], "H200", H200, [measured(128, 64, 1.25, 2.7e9)], compiled).cells
    assert {key: (number.value, number.source) for key, number in cell.numbers.items()} == {
        TIME: (1.25e-3, "cuda-event"),
        RATE: (PROBLEM.flops / 1.25e-3, "cuda-event"),
        L2_SM: (2.7e9, "cupti-range"),
        HBM: (1.35e8, "cupti-range"),
        ERROR: (2.3e-3, "torch"),
        # 64 Q tiles of each of 16 heads read K and V once: 64 × 2 × 33.55 MB; Q and O 33.55 MB each, and LSE.
        REQUESTED: (64 * 2 * 33_554_432 + 2 * 33_554_432 + 16 * 8192 * 4, "schedule"),
        REGISTERS: (168, COMPILED),
        SPILLS: (16, COMPILED),
        "shared_memory": (98304, COMPILED),
        # 228 KB hold two CTAs of 97 KB; the registers of 4 warps of 168 would allow three.
        CTAS: (2, COMPILED),
        OCCUPANCY: (2 * 4 / 64, COMPILED),
        WAVES: (1024 / (2 * 132), COMPILED),
    }
    assert cell.limits == ("shared memory",)


def test_the_newest_run_of_a_tile_counts() -> None:
    runs = [measured(64, 64, 2.0, created="2026-11-29T13:00:00Z"), measured(64, 64, 1.0)]
    (cell,) = board(FLASH, [tile(64, 64)], "H200", H200, runs).cells
    assert cell.value(TIME) == 2.0e-3


def test_halves_are_added_and_a_lone_half_is_none() -> None:
    read, written = (
        Measurement(f"hbm_{half}_bytes", n, "B", "cupti-range") for half, n in (("read", 1e8), ("write", 5e7))
    )
    for parts, expected in (((read, written), 1.5e8), ((read,), None)):
        found = of_runs([replace(run(64, 64, 1.0, 1e9), measurements=parts)])
        (cell,) = board(FLASH, [tile(64, 64)], "H200", H200, found).cells
        assert cell.value(HBM) == expected
        assert cell.value(TIME) is None and cell.value(RATE) is None
        assert cell.numbers[TIME].reason == "its Run has no value; open it to see why"


def test_what_is_missing_says_why() -> None:
    here, elsewhere = (board(FLASH, [tile(64, 64)], "x", H200, is_here=is_here).cells[0] for is_here in (True, False))
    assert (here.numbers[TIME].reason, elsewhere.numbers[TIME].reason) == (NOT_MEASURED, NOT_HERE)
    assert here.numbers[REGISTERS].reason == NOT_COMPILED
    unknown = board(FLASH, [tile(64, 64)], "x", None, why_no_gpu="no such GPU").cells[0]
    assert unknown.numbers[CTAS].reason == "no such GPU"
    failed = board(FLASH, [tile(64, 64)], "x", H200, failed={tile(64, 64): "It broke."}, is_here=True).cells[0]
    assert failed.numbers[L2_SM].reason == "It broke."


def test_a_tile_that_does_not_fit_says_what_it_needs() -> None:
    too_large = resources(256, 256, shared=300 * 1024)
    (cell,) = board(FLASH, [tile(256, 256)], "H200", H200, compiled={tile(256, 256): too_large}).cells
    assert cell.why_not == "A program needs 300 KB of shared memory; H200 SXM gives it 227 KB."
    assert (cell.value(CTAS), cell.value(WAVES), cell.value(REGISTERS)) == (0, None, 128)
    assert cell.numbers[TIME].reason == cell.why_not


def test_what_could_not_be_compiled_is_a_reason() -> None:
    broken = type(resources(64, 64))(resources(64, 64).configuration, "3.7.1", (), "flash (phase: compile) failed: x.")
    (cell,) = board(FLASH, [tile(64, 64)], "H200", H200, compiled={tile(64, 64): broken}).cells
    assert cell.why_not == "flash (phase: compile) failed: x." == cell.numbers[REGISTERS].reason


def test_a_tile_that_has_run_can_run() -> None:
    too_large = {tile(256, 256): resources(256, 256, shared=300 * 1024)}
    (cell,) = board(FLASH, [tile(256, 256)], "H200", H200, [measured(256, 256, 9.0)], too_large).cells
    assert cell.why_not == "" and cell.value(TIME) == pytest.approx(9e-3)


def test_units_are_common_to_the_values_of_a_map() -> None:
    time = QUANTITIES[TIME]
    assert time.unit([9e-4, 1.2e-3, 5e-3]) == (1e-3, "ms") and time.unit([]) == (1e-9, "ns")
    assert [in_unit(value, (1e-3, "ms")) for value in (9e-4, 1.234e-3, 2e-3)] == ["0.900", "1.23", "2"]
    assert in_unit(0.125, QUANTITIES[OCCUPANCY].unit([0.125])) == "12.5"
