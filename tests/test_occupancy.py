"""Occupancy by hand, by NVIDIA's examples, by a simulation that deals warps one by one, and by what CUDA said."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from kernels.problem import Refused
from profiler.architecture import ARCHITECTURES
from profiler.device import GPUS
from profiler.occupancy import (
    CTA_SLOTS,
    REGISTERS,
    SHARED_MEMORY,
    TENSOR_MEMORY,
    WARPS,
    CtaNeeds,
    occupancy_of,
    waves_of,
)
from profiler.run import DeviceInfo
from profiler.run_document import from_json
from profiler.target import GpuTarget, gpu_target, target_of

EXAMPLES = Path(__file__).parents[1] / "examples"
V100, A100, H100, H200, B200 = (gpu_target(name) for name in ("v100", "a100", "h100", "h200", "b200"))
RTX4090 = gpu_target("rtx4090")


@pytest.mark.parametrize(
    ("gpu", "needs", "ctas", "limited_by"),
    [
        # 182 × 32 = 5,824, to 5,888: 2 warps in each of 4 sub-cores of 16,384. 115,712 bytes twice in 233,472.
        (H100, CtaNeeds(182, 4, 114_688), 2, (REGISTERS, SHARED_MEMORY)),
        # The same block needs 91,136 bytes on an A100, of 167,936.
        (A100, CtaNeeds(182, 4, 90_112), 1, (SHARED_MEMORY,)),
        # 255 registers: 8,192 a warp, 2 in a sub-core: one CTA of 8 warps.
        (H100, CtaNeeds(255, 8, 0), 1, (REGISTERS,)),
        # 32 registers: 1,024 a warp, 16 in a sub-core, 64 in all: as many as there are warps.
        (H100, CtaNeeds(32, 4, 0), 16, (REGISTERS, WARPS)),
        # One warp a CTA: slots run out first, 32 of them; on an RTX 4090 24.
        (H100, CtaNeeds(16, 1, 0), 32, (CTA_SLOTS,)),
        (RTX4090, CtaNeeds(16, 1, 0), 24, (CTA_SLOTS,)),
        # 48 warps: 6 CTAs of 8; 40 registers leave 12 warps in each sub-core.
        (RTX4090, CtaNeeds(40, 8, 0), 6, (REGISTERS, WARPS)),
        # 7,168 + 1,024 bytes: 28 times in 233,472 (228 KB) of an H100.
        (H100, CtaNeeds(32, 1, 7_168), 28, (SHARED_MEMORY,)),
        # One byte more is 128 more: 8,320, 28 times still; 7,300 + 1,024 = 8,324, to 8,448: 27.
        (H100, CtaNeeds(32, 1, 7_169), 28, (SHARED_MEMORY,)),
        (H100, CtaNeeds(32, 1, 7_300), 27, (SHARED_MEMORY,)),
        # Volta reserves nothing and gives shared memory by 256 bytes: 4,097 is 4,352, 22 times in 98,304.
        (V100, CtaNeeds(32, 1, 4_097), 22, (SHARED_MEMORY,)),
        # 256 of 512 columns; 130 are taken as 256 too, 128 as 128.
        (B200, CtaNeeds(64, 4, 1_024, 256), 2, (TENSOR_MEMORY,)),
        (B200, CtaNeeds(64, 4, 1_024, 130), 2, (TENSOR_MEMORY,)),
        (B200, CtaNeeds(64, 4, 1_024, 128), 4, (TENSOR_MEMORY,)),
        (B200, CtaNeeds(32, 1, 0, 1), 16, (TENSOR_MEMORY,)),
    ],
)
def test_by_hand(gpu: GpuTarget, needs: CtaNeeds, ctas: int, limited_by: tuple[str, ...]) -> None:
    found = occupancy_of(needs, gpu)
    assert (found.ctas_per_sm, found.limited_by) == (ctas, limited_by)
    assert found.occupancy == ctas * needs.num_warps / gpu.sm.warps_per_sm
    assert found.fits


def test_the_examples_of_the_best_practices_guide() -> None:
    """Compute capability 7.0, 37 registers: 12 CTAs of 128 threads are 75%, 4 of 320 threads are 63%; 32 are 100%."""
    small, large = occupancy_of(CtaNeeds(37, 4, 0), V100), occupancy_of(CtaNeeds(37, 10, 0), V100)
    assert (small.ctas_per_sm, small.occupancy) == (12, 0.75)
    assert (large.ctas_per_sm, large.occupancy) == (4, 0.625)
    assert occupancy_of(CtaNeeds(32, 4, 0), V100).occupancy == 1


@pytest.mark.parametrize(
    ("gpu", "needs", "what", "needed", "limit", "sentence"),
    [
        (
            A100,
            CtaNeeds(64, 4, 196_608),
            SHARED_MEMORY,
            196_608,
            166_912,
            "A program needs 192 KB of shared memory; A100 SXM 80 GB gives it 163 KB.",
        ),
        (
            H100,
            CtaNeeds(128, 32, 0),
            REGISTERS,
            131_072,
            65_536,
            "A program needs 128 registers in each of 1024 threads; H100 SXM gives it 65536 in all.",
        ),
        (
            H100,
            CtaNeeds(64, 64, 0),
            WARPS,
            64,
            32,
            "A program needs 64 warps; H100 SXM gives it 32.",
        ),
        (
            H100,
            CtaNeeds(64, 4, 0, 64),
            TENSOR_MEMORY,
            64,
            0,
            "A program needs 64 columns of tensor memory; H100 SXM gives it 0.",
        ),
    ],
)
def test_what_does_not_fit(gpu: GpuTarget, needs: CtaNeeds, what: str, needed: int, limit: int, sentence: str) -> None:
    found = occupancy_of(needs, gpu)
    assert not found.fits and (found.ctas_per_sm, found.occupancy, found.limited_by) == (0, 0.0, (what,))
    assert found.too_much is not None
    assert (found.too_much.needed, found.too_much.limit, found.too_much.sentence) == (needed, limit, sentence)
    assert waves_of(100, found, gpu) is None


def test_the_largest_shared_memory_fits_by_the_byte() -> None:
    assert occupancy_of(CtaNeeds(64, 4, 227 * 1024), H100).ctas_per_sm == 1
    assert not occupancy_of(CtaNeeds(64, 4, 227 * 1024 + 1), H100).fits


def dealt(needs: CtaNeeds, gpu: GpuTarget) -> tuple[int, set[str]]:
    """CTAs that go on an SM one after the other, each warp to the sub-core with most registers left; what is short."""
    sm = gpu.sm
    sub_cores, shared, warps, slots, columns = [64] * 4, sm.shared_memory_per_sm, sm.warps_per_sm, sm.ctas_per_sm, 512
    units_of_a_warp = (needs.registers * 32 + 255) // 256
    bytes_of_a_cta = needs.shared_memory + sm.reserved_shared_memory
    while bytes_of_a_cta % sm.shared_memory_unit:
        bytes_of_a_cta += 1
    columns_of_a_cta = next(size for size in (0, 32, 64, 128, 256, 512) if size >= needs.tensor_memory_columns)
    ctas, short = 0, set()
    while not short:
        left = list(sub_cores)
        for _ in range(needs.num_warps):
            fullest = left.index(max(left))
            left[fullest] -= units_of_a_warp
        short |= {REGISTERS} if min(left) < 0 else set()
        short |= {WARPS} if warps < needs.num_warps else set()
        short |= {CTA_SLOTS} if slots < 1 else set()
        short |= {SHARED_MEMORY} if shared < bytes_of_a_cta else set()
        short |= {TENSOR_MEMORY} if columns < columns_of_a_cta else set()
        if not short:
            sub_cores, ctas = left, ctas + 1
            warps, slots = warps - needs.num_warps, slots - 1
            shared, columns = shared - bytes_of_a_cta, columns - columns_of_a_cta
    return ctas, short


@pytest.mark.parametrize("name", ["v100", "t4", "a100", "a10", "l4", "h100", "b200", "rtx5090"])
def test_every_point_equals_the_simulation(name: str) -> None:
    gpu = gpu_target(name)
    most = gpu.sm.shared_memory_per_block
    sizes = sorted({0, 1, 128, 1_000, 4_096, 16_384, 30_000, 49_152, 65_536, 90_112, 98_304, most - 1, most})
    columns = (0, 32, 100, 512) if gpu.sm.tensor_memory_columns else (0,)
    registers = (*range(1, 256, 9), 32, 40, 64, 128, 168, 255)
    for one in product(registers, (1, 2, 4, 8, 12, 16, 32), [size for size in sizes if size <= most], columns):
        needs = CtaNeeds(*one)
        found = occupancy_of(needs, gpu)
        assert (found.ctas_per_sm, set(found.limited_by)) == dealt(needs, gpu), needs


# Registers and shared memory that Triton 3.6 gives these kernels at sm_90, in the order of the recordings.
OF_TRITON_36 = [
    ("causal_4k.json", "flash", (64, 64, 4, 3, "linear"), 180, 114_688),
    ("decode_64k.json", "flash", (16, 64, 4, 3, "linear"), 92, 71_680),
    ("decode_64k.json", "split_kv", (16, 64, 4, 3, "linear"), 88, 71_680),
    ("full_8k.json", "flash", (128, 64, 8, 3, "linear"), 196, 131_072),
    ("gqa_4k.json", "flash", (128, 64, 8, 3, "linear"), 224, 131_072),
    ("ladder_512.json", "row_streaming", (1, 64, 4, 1, "linear"), 120, 2_048),
    ("ladder_512.json", "query_tiled", (32, 512, 4, 1, "linear"), 255, 163_840),
    ("ladder_512.json", "flash_kv_outer", (32, 64, 4, 3, "linear"), 255, 57_600),
    ("ladder_512.json", "flash", (32, 64, 4, 3, "linear"), 136, 77_824),
    ("ladder_512.json", "split_kv", (32, 64, 4, 3, "linear"), 128, 77_824),
    ("ladder_8k.json", "row_streaming", (1, 64, 8, 1, "linear"), 222, 4_096),
    ("ladder_8k.json", "flash_kv_outer", (128, 64, 8, 3, "linear"), 255, 197_632),
    ("ladder_8k.json", "split_kv", (128, 64, 8, 3, "linear"), 160, 131_072),
    ("long_64k.json", "flash", (128, 128, 8, 3, "linear"), 252, 229_376),
    ("long_64k.json", "flash", (128, 128, 8, 3, "sawtooth"), 255, 229_376),
    ("long_causal_128k.json", "flash", (128, 128, 8, 3, "linear"), 255, 229_376),
    ("long_causal_128k.json", "flash", (128, 128, 8, 3, "longest_first"), 255, 229_376),
    ("long_causal_256k.json", "flash", (128, 128, 8, 3, "linear"), 255, 229_376),
]


@pytest.mark.parametrize(("file", "kernel", "tile", "registers", "shared_memory"), OF_TRITON_36)
def test_programs_at_once_are_those_that_cuda_told_on_an_h200(
    file: str, kernel: str, tile: tuple[int, int, int, int, str], registers: int, shared_memory: int
) -> None:
    """The recorded numbers are CUDA's own calculator's, for kernels that Triton 3.6 compiled."""
    runs = [
        run
        for run in from_json((EXAMPLES / file).read_bytes())
        if run.workload.kernel == kernel
        and run.workload.tile is not None
        and tile == tuple(vars(run.workload.tile).values())
    ]
    assert runs and all(run.environment["triton"].startswith("3.6") for run in runs)
    found = occupancy_of(CtaNeeds(registers, tile[2], shared_memory), H200)
    assert {run.value("programs_at_once") for run in runs} == {found.ctas_per_sm * 132}


def test_waves() -> None:
    """132 SMs with 2 CTAs: 264 at once. 2,048 are 7 full waves and 200 programs; 528 come out even."""
    two = occupancy_of(CtaNeeds(182, 4, 114_688), H100)
    waves = waves_of(2_048, two, H100)
    assert waves is not None
    assert (waves.programs_at_once, waves.count, waves.last_filled) == (264, 2_048 / 264, 200 / 264)
    assert [(waves_of(programs, two, H100) or waves).last_filled for programs in (528, 529, 1)] == [1, 1 / 264, 1 / 264]


def test_every_gpu_of_the_table_is_a_target() -> None:
    for name, spec in GPUS.items():
        target = gpu_target(name.upper())
        assert (target.name, target.title, target.sm_count) == (name, spec.title, spec.sm_count)
        assert target.sm is ARCHITECTURES[spec.compute_capability] and target.limits == spec.limits


def test_an_unknown_gpu_is_refused_with_the_names() -> None:
    with pytest.raises(Refused) as refusal:
        gpu_target("h101")
    assert str(refusal.value) == f"GPU 'h101' is not known; choose {', '.join(GPUS)}."


HERE = DeviceInfo("cuda:0", "NVIDIA H200", compute_capability=(9, 0), sm_count=132)


def test_what_the_present_gpu_tells_goes_before_the_table() -> None:
    target, reason = target_of(HERE)
    assert target is not None and reason == "" and target.sm == ARCHITECTURES[9, 0]
    told = replace(HERE, shared_memory_per_sm=100_000, shared_memory_per_block=90_000, warps_per_sm=48)
    target, _ = target_of(told)
    assert target is not None and (target.name, target.title, target.sm_count) == ("cuda:0", "NVIDIA H200", 132)
    sm = target.sm
    assert (sm.shared_memory_per_sm, sm.shared_memory_per_block, sm.warps_per_sm) == (100_000, 90_000, 48)
    assert (sm.ctas_per_sm, sm.reserved_shared_memory) == (32, 1024)


@pytest.mark.parametrize(
    ("device", "reason"),
    [
        (DeviceInfo("cpu", "EPYC"), "EPYC is no NVIDIA GPU whose compute capability is known"),
        (
            replace(HERE, compute_capability=(13, 0)),
            "how many CTAs an SM of compute capability 13.0 holds is not known",
        ),
        (replace(HERE, sm_count=None), "how many SMs NVIDIA H200 has is not known"),
    ],
)
def test_a_gpu_that_is_not_known_has_a_reason(device: DeviceInfo, reason: str) -> None:
    assert target_of(device) == (None, reason)
