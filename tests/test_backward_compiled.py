"""The backward pass compiled for GPUs that are not here: launches, shared memory within its bounds, instructions."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kernels.flash.limits import SHARED as BY_POINTER
from kernels.flash_tma.limits import SHARED as BY_DESCRIPTOR
from kernels.flash_ws.schedule import cut
from kernels.problem import AttentionProblem, TileConfig
from kernels.shared_memory import SharedMemory
from profiler.compile_pool import compile_all
from profiler.compiled_code import PTX, code_of
from profiler.resources import Configuration, LaunchResources
from tests.compiled_apart import caches_in

WIDE = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16", backward=True)
RAGGED = AttentionProblem(1, 4, 2, 1000, 1000, 64, "float16", causal=True, backward=True)
POINTERS = Configuration("flash", RAGGED, TileConfig(64, 64, 4, 2), (8, 0))
DESCRIPTORS = Configuration("flash_tma", WIDE, TileConfig(128, 64, 8, 3), (9, 0))
WIDEST = replace(WIDE, head_dim=256, heads=2, kv_heads=2)
WS_WIDEST = Configuration("flash_ws", WIDEST, cut(WIDEST, TileConfig()), (9, 0))
RAGGED_WIDE, NARROW = replace(RAGGED, head_dim=80), replace(WIDE, head_dim=64)
SPECIALISED = [
    Configuration("flash_ws", problem, cut(problem, TileConfig()), (9, 0))
    for problem in (WIDE, RAGGED_WIDE, NARROW, RAGGED)
]
Compiled = dict[Configuration, dict[str, tuple[LaunchResources, str]]]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compiled]:
    """What each launch takes, and its PTX, by name."""
    with caches_in(tmp_path_factory.mktemp("compiled")):
        found = list(compile_all((POINTERS, DESCRIPTORS, WS_WIDEST, *SPECIALISED)))
        yield {
            one.configuration: {launch.launch: (launch, code_of(one, launch, PTX)) for launch in one.launches}
            for one in found
        }


@pytest.mark.parametrize(
    ("configuration", "bounds", "programs"), [(POINTERS, BY_POINTER, 2 * 16), (DESCRIPTORS, BY_DESCRIPTOR, 16 * 64)]
)
def test_what_it_takes(compiled: Compiled, configuration: Configuration, bounds: SharedMemory, programs: int) -> None:
    """One program for each 64 of 1,000 keys of 2 kv heads, and for each 128 of 8,192 keys of 16."""
    found = {name: launch for name, (launch, _) in compiled[configuration].items()}
    assert list(found) == [configuration.kernel, "delta", "gradients", "dq"]
    problem, tile = configuration.problem, configuration.tile
    assert bounds.at_least(problem, tile) <= found["gradients"].shared_memory <= bounds.at_most(problem, tile)
    assert found["gradients"].programs == programs
    assert found["delta"].spill_bytes == found["dq"].spill_bytes == 0


def test_hopper_multiplies_by_warp_groups_and_adds_by_tma(compiled: Compiled) -> None:
    """K and V [128, 128] stay, and of dK, dV, S and dP hardly anything is spilled: 80 bytes a thread once."""
    launch, ptx = compiled[DESCRIPTORS]["gradients"]
    assert "wgmma.mma_async" in ptx and "cp.reduce.async.bulk.tensor" in ptx
    assert launch.spill_bytes <= 128 and launch.num_warps == 8
    _, plain = compiled[POINTERS]["gradients"]
    assert "mma.sync" in plain and "red." in plain and "wgmma" not in plain


def test_the_widest_fits_a_hopper(compiled: Compiled) -> None:
    """K and V [64, 256], three stages of Q and dO [32, 256]: a CTA may have 227 KB, and hardly anything is spilled."""
    assert list(compiled[WS_WIDEST]) == ["flash_ws", "delta", "gradients", "dq"]
    launch, _ = compiled[WS_WIDEST]["gradients"]
    assert (2 * 64 + 4 * 32) * 512 < launch.shared_memory <= 227 * 1024
    assert launch.spill_bytes <= 64 and launch.num_warps == 8


@pytest.mark.parametrize(
    ("configuration", "programs", "q_tiles", "spilled"),
    [
        *zip(
            SPECIALISED,
            (16 * 64, 2 * 8, 16 * 64, 2 * 8),
            (16 * 128, 4 * 16, 16 * 64, 4 * 8),
            (64, 120, 0, 24),
            strict=True,
        )
    ],
)
def test_warps_with_tasks(
    compiled: Compiled, configuration: Configuration, programs: int, q_tiles: int, spilled: int
) -> None:
    """K and V [128, WIDTH], two stages of Q, dO and their rows, two buffers of dS; hardly anything is spilled.

    Eight warps that compute, one that copies, and three that Triton adds to it: 12. A thread adds its 32 values of dQ
    in fours, in a loop with a mask and in one without.
    """
    launch, ptx = compiled[configuration]["gradients"]
    width, queries = (128, 64) if configuration.problem.head_dim > 64 else (64, 128)
    tiles = (2 * 128 + 2 * 2 * queries) * width * 2 + 2 * 2 * queries * 4 + 2 * 128 * queries * 2
    assert tiles < launch.shared_memory <= tiles + 1024
    assert launch.programs == programs and launch.num_warps == 12 and launch.spill_bytes <= spilled
    loops = 2 if configuration.problem.causal else 1
    assert ptx.count("red.relaxed.gpu.global.add.v4.f32") == 2 * 8 * loops and "atom." not in ptx
    ends = [compiled[configuration][name][0] for name in ("delta", "dq")]
    assert [(one.programs, one.spill_bytes) for one in ends] == [(q_tiles, 0)] * 2
