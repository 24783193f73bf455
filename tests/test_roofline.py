"""The roofline formulas, with numbers by hand, and the peaks by dtype."""

from dataclasses import replace

import pytest

from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from profiler.device import GPUS, compute_peak
from profiler.roofline import Limit, attainable, intensity, limit, ridge
from tests.fake_runs import H200, THIS_CPU


def test_flash_at_8k_by_hand() -> None:
    """4 · 16 · 8192² · 128 = 549.8 GFLOP on 0.135 GB: 4,072 FLOP/B; at 4.2 TB/s HBM would allow 17.1 PFLOP/s."""
    flops = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16").flops
    assert flops == 549_755_813_888
    at = intensity(flops, 0.135e9)
    assert at == pytest.approx(4072.3, abs=0.1)
    assert attainable(at, 4.2e12) == pytest.approx(17.1e15, rel=1e-3)
    assert attainable(at, 4.2e12, 989e12) == 989e12
    assert attainable(10.0, 4.2e12, 989e12) == 42e12
    assert ridge(4.2e12, 989e12) == pytest.approx(235.48, abs=0.01)


def test_the_lowest_roof_limits() -> None:
    """1.28 ms: 430 TFLOP/s are 43% of 989; 2.73 GB L2↔SM in it are 2.13 TB/s, 36% of 6; 0.135 GB HBM 2.5% of 4.2."""
    amounts = {"compute": 549.8e9, "L2": 2.73e9, "HBM": 0.135e9}
    roofs = {"compute": 989e12, "L2": 6e12, "HBM": 4.2e12}
    found = limit(amounts, 1.28e-3, roofs)
    assert found is not None and found.roof == "compute" and found.share == pytest.approx(0.4343, abs=1e-4)
    lower = limit(amounts, 1.28e-3, roofs | {"L2": 4e12})
    assert lower is not None and lower.roof == "L2" and lower.share == pytest.approx(0.5332, abs=1e-4)


@pytest.mark.parametrize("moved", [1e6, 1e8, 1e10, 1e12])
def test_the_share_is_what_is_reached_over_what_is_attainable(moved: float) -> None:
    flops, seconds, bandwidth, peak = 5e11, 2e-2, 4e12, 9e14
    found = limit({"HBM": moved, "compute": flops}, seconds, {"HBM": bandwidth, "compute": peak})
    assert found is not None
    assert found.share == pytest.approx(flops / seconds / attainable(intensity(flops, moved), bandwidth, peak))
    assert found.roof == ("HBM" if intensity(flops, moved) < ridge(bandwidth, peak) else "compute")


def test_work_without_flop_has_a_memory_roof_and_without_roofs_none() -> None:
    assert limit({"HBM": 4e9, "compute": 0.0}, 1e-3, {"HBM": 5e12, "compute": 1e15}) == Limit("HBM", 0.8)
    assert limit({"HBM": 4e9}, 1e-3, {"compute": 1e15}) is None


def test_each_dtype_has_its_own_peak_or_a_reason() -> None:
    assert compute_peak(H200, "bfloat16") == compute_peak(H200, "float16") == (989e12, "datasheet")
    assert compute_peak(H200, "float32") == (67e12, "datasheet, float32 without tensor cores")
    unknown = replace(H200, name="NVIDIA X1", peak_flops_per_second=None, peak_flops_source="NVIDIA X1 is not known")
    assert compute_peak(unknown, "float16") == (None, "NVIDIA X1 is not known")
    assert compute_peak(unknown, "float32") == (None, "NVIDIA X1 is not in the table of GPUs")
    volta = replace(H200, name="Tesla V100-SXM2-16GB", compute_capability=(7, 0), peak_flops_per_second=125e12)
    assert compute_peak(volta, "float16")[0] == 125e12
    assert compute_peak(volta, "bfloat16") == (None, "the tensor cores of Tesla V100-SXM2-16GB take no bfloat16")
    assert compute_peak(THIS_CPU, "float32") == (None, "Two-core CPU is no GPU, and no peak is known of it")


@pytest.mark.parametrize("spec", GPUS.values(), ids=GPUS)
def test_float32_peaks_fit_the_cores(spec) -> None:  # type: ignore[no-untyped-def]
    """2 FLOP a clock for each float32 core, at the 1.2 to 2.7 GHz that these GPUs boost to."""
    clock = spec.fp32_flops_per_second / (2 * spec.sm_count * spec.architecture.fp32_cores)
    assert 1.2e9 < clock < 2.7e9
    assert spec.fp32_flops_per_second < spec.flops_per_second


def test_naive_tells_the_flop_of_each_launch() -> None:
    """Two heads of 64 × 64 scores, 16 wide, all of them, whatever the mask hides: 8,192 scores."""
    problem = AttentionProblem(1, 2, 1, 64, 64, 16, causal=True)
    launches = all_kernels()["naive"].schedule(problem, TileConfig()).launches
    product, scores = 2 * 8192 * 16, 8192
    expected = [("qk", product), ("scale", scores), ("mask", 0), ("softmax", 4 * scores), ("pv", product)]
    assert [(launch.name, launch.flops) for launch in launches] == expected
