"""What the backward pass asks for, launch by launch, against the interpreter's trace and by hand; what it must fit."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.base import AttentionKernel, GpuLimits, all_kernels
from kernels.flash.limits import SHARED
from kernels.flash_ws.schedule import backward_tile
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.shared_memory import STREAMED_KV
from kernels.streamed_q import backward_launches, turned
from profiler.bench import draw_do
from profiler.tile_trace import AccessTrace
from tests.attention_cases import draw
from tests.seen_accesses import into
from tests.test_schedule import problems

pytestmark = pytest.mark.computes

FLASH, NAIVE, TMA, WS = (all_kernels()[name] for name in ("flash", "naive", "flash_tma", "flash_ws"))
T32 = TileConfig(32, 16)


def traced(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> dict[str, AccessTrace]:
    """What the interpreter saw of each launch of the backward pass."""
    q, k, v = draw(problem)
    do = draw_do(problem, 0, "cpu")
    output = kernel.forward(q, k, v, problem, tile)
    seen: dict[str, AccessTrace] = {}

    kernel.backward(q, k, v, output, do, problem, tile, launch=into(seen))
    return seen


@settings(max_examples=8)
@given(problems(), st.sampled_from([(32, 16), (16, 8), (8, 32), (16, 128)]))
def test_equals_the_interpreters_trace(problem: AttentionProblem, blocks: tuple[int, int]) -> None:
    """Launch by launch, reads and writes, byte for byte."""
    problem, tile = replace(problem, backward=True), TileConfig(*blocks)
    seen = traced(FLASH, problem, tile)
    told = backward_launches(problem, tile)
    assert list(seen) == [launch.name for launch in told]
    for launch in told:
        assert seen[launch.name].total("read") == sum(launch.reads.values()), launch.name
        assert seen[launch.name].total("write") == sum(launch.writes.values()), launch.name


def test_descriptors_ask_for_the_same_bytes() -> None:
    problem = AttentionProblem(1, 2, 1, 70, 50, 24, causal=True, backward=True)
    found = {kernel.name: traced(kernel, problem, T32) for kernel in (FLASH, TMA)}
    for name in ("delta", "gradients", "dq"):
        for direction in ("read", "write"):
            assert found["flash"][name].total(direction) == found["flash_tma"][name].total(direction)


def test_bytes_by_hand() -> None:
    """4 queries over 4 keys of 8 float16, causal, one head; 2 keys stay, 2 queries stream: tile 0 sees both Q tiles."""
    problem = AttentionProblem(1, 1, 1, 4, 4, 8, causal=True, backward=True)
    delta, gradients, dq = backward_launches(problem, TileConfig(2, 2))
    row = 8 * 2
    assert (delta.reads, delta.writes) == ({"o": 4 * row, "do": 4 * row}, {"delta": 4 * 4, "dq_sum": 4 * 8 * 4})
    # Keys 0, 1 meet queries 0 to 3, keys 2, 3 meet queries 2 and 3: 6 rows of Q.
    assert gradients.reads == {"k": 4 * row, "v": 4 * row, "q": 6 * row, "do": 6 * row, "lse": 6 * 4, "delta": 6 * 4}
    assert gradients.writes == {"dq_sum": 6 * 8 * 4, "dk": 4 * row, "dv": 4 * row}
    assert gradients.visits == 3 and gradients.flops == 10 * 3 * 2 * 2 * 8
    assert FLASH.schedule(problem, TileConfig(2, 2)).launches[0].flops == 4 * 3 * 2 * 2 * 8
    assert (dq.reads, dq.writes) == ({"dq_sum": 4 * 8 * 4}, {"dq": 4 * row})


def test_the_tile_is_turned_round() -> None:
    problem = AttentionProblem(head_dim=128, backward=True)
    assert turned(problem, TileConfig(128, 64, 8, 3)) == TileConfig(64, 128, 8, 3)
    assert turned(problem, TileConfig(256, 128, 8, 3)) == TileConfig(64, 128, 8, 3)
    assert turned(problem, TileConfig(16, 32)) == TileConfig(32, 16)
    # dK and dV [64, 256] take 256 registers of a thread of 4 warps, which has 255; of 8 warps they take half.
    assert turned(replace(problem, head_dim=256), TileConfig(128, 64)) == TileConfig(32, 64, num_warps=8)
    assert turned(replace(problem, dtype="float32"), TileConfig(128, 64)) == TileConfig(32, 32)


@pytest.mark.parametrize(("head_dim", "keys", "queries"), [(136, 64, 32), (256, 64, 32)])
def test_warp_specialised_flash_has_three_stages(head_dim: int, keys: int, queries: int) -> None:
    """Where its backward pass is that of flash_tma, whatever its forward pass has, which asks for the same bytes.

    tests/test_backward_compiled.py: three stages fit.
    """
    problem = AttentionProblem(1, 2, 2, 300, 300, head_dim, "bfloat16", backward=True)
    tile = backward_tile(problem, TileConfig())
    assert turned(problem, tile) == TileConfig(queries, keys, 8, 3)
    told, asked = (backward_launches(problem, one) for one in (tile, WS.cut(problem, TileConfig())))
    assert told == asked == WS.schedule(problem, TileConfig()).launches[1:]


def test_without_a_backward_pass_nothing_is_added() -> None:
    problem = AttentionProblem(1, 2, 1, 64, 64, 16)
    for kernel in (FLASH, NAIVE, TMA):
        both = kernel.schedule(replace(problem, backward=True), T32).launches
        forward = kernel.schedule(problem, T32).launches
        assert [launch.name for launch in both[: len(forward)]] == [launch.name for launch in forward]
        assert len(both) > len(forward) and backward_launches(problem, T32) == ()


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_shared_memory_is_refused_before_anything_compiles(head_dim: int, dtype: str) -> None:
    """What the compiled backward passes take is between the bounds; tests/test_resources.py compiles some of them."""
    problem, tile = AttentionProblem(head_dim=head_dim, dtype=dtype, backward=True), TileConfig(128, 64, 8, 3)
    least, most = SHARED.at_least(problem, tile), SHARED.at_most(problem, tile)
    assert STREAMED_KV.at_least(problem, tile) <= least < most
    gpu = GpuLimits("A GPU", (9, 0), least - 1)
    with pytest.raises(Refused, match=r"KB of shared memory; A GPU gives a CTA"):
        FLASH.refuse(problem, tile, gpu)
    FLASH.refuse(problem, tile, replace(gpu, shared_memory_per_block=least))
    fit = SHARED.fitting_tile(problem, tile, least - 1)
    assert fit is None or SHARED.at_most(problem, fit) < least


def test_shared_memory_by_hand() -> None:
    """128 keys stay, 64 queries stream in 3 stages, rows of 256 bytes: 193 to 209 KiB as Triton 3.7 compiles it."""
    problem, tile = AttentionProblem(head_dim=128, dtype="bfloat16", backward=True), TileConfig(128, 64, 8, 3)
    row = 256
    assert SHARED.at_most(problem, tile) == 2 * 128 * row + 6 * 64 * (row + 4) + 64 * 128 * 2 + 64 * 128 * 4 + 1024
    assert SHARED.at_least(problem, tile) == max(4 * 64 * row, STREAMED_KV.at_least(problem, tile))
