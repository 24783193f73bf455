"""Predicted memory: sums of tensors, and where the caching allocator puts them, by hand and as recorded on an H200."""

from pathlib import Path

import pytest

from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from profiler.memory_model import Placed, peak_tensors, placed
from profiler.store import load

MIB = 2**20
EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ([], Placed(0, 0)),
        ([1], Placed(512, 2 * MIB)),
        ([513, MIB], Placed(1024 + MIB, 2 * MIB)),
        ([MIB, MIB, 1], Placed(2 * MIB + 512, 4 * MIB)),
        # Blocks above 1 MiB come from a segment of 20 MiB, which is split while more than 1 MiB is left.
        ([2 * MIB] * 4, Placed(8 * MIB, 20 * MIB)),
        ([9 * MIB, 9 * MIB, 9 * MIB], Placed(27 * MIB, 40 * MIB)),
        # 10 MiB in what 9 MiB left of a segment, 11 MiB: the last 1 MiB is not worth a block of its own.
        ([9 * MIB, 10 * MIB], Placed(20 * MIB, 20 * MIB)),
        # From 10 MiB on a segment each; a rest of up to 1 MiB stays with its block.
        ([10 * MIB + 1], Placed(12 * MIB - (2 * MIB - 512), 12 * MIB)),
        ([11 * MIB], Placed(12 * MIB, 12 * MIB)),
    ],
)
def test_blocks_and_segments_by_hand(sizes: list[int], expected: Placed) -> None:
    assert placed(sizes) == expected


def test_tensors_at_the_peak() -> None:
    """(1, 2, 64, 16) in 16 bits: 4 KiB each for Q, K, V and O, 16 KiB each for S and P, 4 KiB for a mask."""
    problem, tile = AttentionProblem(1, 2, 2, 64, 64, 16, causal=True), TileConfig(16, 16)
    inputs = {"q": 4096, "k": 4096, "v": 4096, "o": 4096}
    naive, flash = all_kernels()["naive"], all_kernels()["flash"]
    assert peak_tensors(naive, problem, None) == inputs | {"s": 16_384, "p": 16_384, "mask": 4096}
    assert peak_tensors(flash, problem, tile) == inputs | {"lse": 512}


@pytest.mark.parametrize(
    ("file", "index", "workspace"),
    [
        ("full_8k.json", 0, 32 * MIB),  # naive: cuBLAS takes 32 MiB for itself on Hopper
        ("full_8k.json", 1, 0),
        ("dtypes_1k.json", 0, 0),
        ("dtypes_1k.json", 2, 0),
        ("long_64k.json", 1, 0),
        ("decode_64k.json", 0, 0),
    ],
)
def test_the_reserve_of_a_fresh_allocator_is_what_an_h200_recorded(file: str, index: int, workspace: int) -> None:
    run = load(EXAMPLES / file)[index]
    sizes = peak_tensors(run.workload.attention_kernel, run.workload.problem, run.workload.tile)
    order = sorted(sizes, key=lambda name: name == "o")  # O comes last
    found = placed([*(sizes[name] for name in order), *([workspace] if workspace else [])])
    assert found.reserved == run.value("peak_reserved_bytes")
