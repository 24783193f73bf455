"""All keys in one round: its schedule against the trace, its bytes by hand, and where the row block stops fitting."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from kernels.base import AttentionKernel, GpuLimits, all_kernels
from kernels.on_chip import REGISTERS, SHARED, bytes_in
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.query_tiled.kernel import grid
from kernels.query_tiled.limits import (
    fits_registers,
    longest_seq,
    longest_seq_in_registers,
    longest_seq_in_triton,
    refuse_shared_memory,
    register_needs,
    shared_memory_at_least,
    shared_memory_at_most,
)
from kernels.query_tiled.schedule import needs
from profiler.device import GPUS
from profiler.workload import workloads
from tests.attention_cases import CASES, T16, check, draw
from tests.seen_rows import check_schedule, walk_of
from tests.small_problems import small_works

pytestmark = pytest.mark.computes

KERNEL: AttentionKernel = all_kernels()["query_tiled"]
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
MEDIUM = AttentionProblem(1, 16, 16, 512, 512, 128, "bfloat16")
TILE = TileConfig(64, 8192, 4, 1)
A100, H200, T4 = (GPUS[name].limits for name in ("a100", "h200", "t4"))


@settings(max_examples=40)
@given(small_works())
def test_equals_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig]) -> None:
    check_schedule(KERNEL, *work)


@pytest.mark.parametrize(
    "case", ["causal_200_over_64", "window_70_over_30", "window_causal_30_over_70", "gqa_6_over_2", "one_query_one_key"]
)
def test_equals_the_interpreters_trace_on_cases(case: str) -> None:
    check_schedule(KERNEL, *CASES[case])


@pytest.mark.parametrize("block_m", [1, 2, 4, 32])
def test_any_q_tile_gives_the_same(block_m: int) -> None:
    problem = AttentionProblem(1, 1, 1, 16, 16, 8, causal=True)
    check(KERNEL.forward, problem, TileConfig(block_m, 16), draw(problem))


def test_interpreted_bfloat16_rounds_p_and_o_to_nearest() -> None:
    problem = AttentionProblem(1, 1, 1, 64, 64, 64, "bfloat16")
    q, k, v = draw(problem)
    s = q.double() @ k.double().mT * problem.sm_scale
    p = (s - s.amax(-1, keepdim=True)).exp()
    nearest = (p.bfloat16().double() @ v.double() / p.sum(-1, keepdim=True)).bfloat16()
    found = check(KERNEL.forward, problem, TileConfig(64, 64), (q, k, v), slack=0.4).o
    assert float((found != nearest).double().mean()) < 0.01


def test_by_hand() -> None:
    """16 heads of 128 Q tiles; each takes K and V of its head, 4,194,304 B, in one step."""
    plan = KERNEL.schedule(LONG, TILE)
    assert plan.by_tensor == {
        "q": {"read": 33_554_432, "write": 0},
        "k": {"read": 2048 * 2_097_152, "write": 0},
        "v": {"read": 2048 * 2_097_152, "write": 0},
        "o": {"read": 0, "write": 33_554_432},
        "lse": {"read": 0, "write": 524_288},
    }
    walk = walk_of(KERNEL, LONG, TILE)
    assert (walk.total_programs, walk.total_steps, walk.grid.kv_tiles) == (2048, 2048, 1)
    assert grid(LONG, TILE) == (2048,)
    assert KERNEL.temporaries(LONG, TILE) == {"lse": 524_288}


def test_a_q_tile_that_sees_nothing_reads_no_keys() -> None:
    """48 queries over 16 keys, causal: the first 32 see none, so two of three Q tiles."""
    problem = AttentionProblem(1, 1, 1, 48, 16, 16, causal=True)
    walk = walk_of(KERNEL, problem, TileConfig(16, 16))
    read, _ = walk.bytes_until(0, walk.steps)["k"]
    assert read.tolist() == [0, 0, 16 * 16 * 2]
    check_schedule(KERNEL, problem, TileConfig(16, 16))


@pytest.mark.parametrize(("keys", "block_n"), [(1, 16), (16, 16), (17, 32), (8192, 8192), (2**24, 2**24)])
def test_one_tile_covers_all_keys(keys: int, block_n: int) -> None:
    """The next power of two, from the matrix units' smallest on."""
    problem = AttentionProblem(seq_len_kv=keys)
    _, work = workloads(("flash", "query_tiled"), problem, TileConfig(128, 32, 8, 3, "sawtooth"), "cpu")
    assert work.tile == TileConfig(128, block_n, 8, 1)


def test_what_it_needs_by_hand() -> None:
    """Q 16 KB and K and V 2 MB each; S 2 MB, P 1 MB, acc 32 KB, m and l 256 B each."""
    held = needs(LONG, TILE)
    kb = 1024
    assert bytes_in(SHARED, held) == 16 * kb + 2 * 2048 * kb
    assert bytes_in(REGISTERS, held) == register_needs(LONG, TILE) == (2048 + 1024 + 32) * kb + 512
    (launch,) = KERNEL.schedule(LONG, TILE).launches
    assert launch.on_chip == held


@pytest.mark.parametrize(
    ("problem", "tile", "gpu", "longest"),
    [
        # 227 KB hold 512 rows of 256 B, 1,024 rows of 128 B, 256 rows of 512 B; 163 KB the same; 99 and 64 KB half.
        (LONG, TILE, "h200", 512),
        (LONG, TILE, "a100", 512),
        (LONG, TILE, "rtx4090", 256),
        (LONG, TILE, "t4", 256),
        (AttentionProblem(head_dim=64), TILE, "h200", 1024),
        (AttentionProblem(head_dim=128, dtype="float32"), TILE, "h200", 256),
        (AttentionProblem(head_dim=256, dtype="float32"), TileConfig(256, 16), "h200", 0),  # Q alone takes 256 KB
    ],
)
def test_where_it_stops_fitting_shared_memory(
    problem: AttentionProblem, tile: TileConfig, gpu: str, longest: int
) -> None:
    assert longest_seq(problem, tile, GPUS[gpu].limits) == longest


@pytest.mark.parametrize(
    ("block_m", "num_warps", "longest"),
    # 6 B for each score of a row and 4 · 128 + 8 for its acc, m and l: 16 rows of 512 are 56 KB, of 1,024 are 104 KB.
    [(16, 4, 1024), (64, 4, 128), (64, 8, 512), (128, 8, 128), (128, 4, 64), (1024, 8, 0)],
)
def test_where_it_stops_fitting_registers(block_m: int, num_warps: int, longest: int) -> None:
    """127.5 KB with four warps, 255 KB with eight."""
    tile = TileConfig(block_m, 16, num_warps, 1)
    assert longest_seq_in_registers(LONG, tile) == longest
    for keys in (longest or 16, max(16, 2 * longest)):
        problem = AttentionProblem(1, 16, 16, 8192, keys, 128, "bfloat16")
        assert fits_registers(problem, tile) == (keys == longest)


def test_where_it_stops_fitting_triton() -> None:
    """2^20 elements: 8,192 keys of 128, 1,024 rows of 1,024 scores."""
    assert longest_seq_in_triton(LONG, TILE) == 8192
    assert longest_seq_in_triton(LONG, TileConfig(1024, 16)) == 1024
    KERNEL.refuse(LONG, TILE, None)


@pytest.mark.parametrize(
    ("head_dim", "block_m", "keys", "dtype", "compiled"),
    # Read off Triton 3.7.1: sm_80, then sm_90.
    [
        (64, 16, 64, "bfloat16", (10_240, 10_240)),
        (64, 64, 256, "bfloat16", (32_768, 40_960)),
        (128, 64, 256, "bfloat16", (98_304, 81_920)),
        (128, 64, 512, "bfloat16", (196_608, 147_456)),
        (128, 128, 512, "bfloat16", (131_072, 163_840)),
        (128, 16, 64, "bfloat16", (18_432, 18_432)),
        (64, 32, 128, "float32", (49_152, 49_152)),
    ],
)
def test_compiled_kernels_lie_between_the_bounds(
    head_dim: int, block_m: int, keys: int, dtype: str, compiled: tuple[int, int]
) -> None:
    problem, tile = AttentionProblem(1, 1, 1, keys, keys, head_dim, dtype), TileConfig(block_m, keys)
    assert shared_memory_at_least(problem, tile) <= min(compiled)
    assert max(compiled) <= shared_memory_at_most(problem, tile)


@pytest.mark.parametrize(
    ("problem", "tile", "gpu", "sentence"),
    [
        (
            LONG,
            TILE,
            H200,
            "All 8,192 keys at once need at least 2,048 KB of shared memory for K, then V, and 3,104 KB of registers "
            "for 64 rows of scores; H200 SXM gives a CTA 227 KB and, with num_warps 4, 127.5 KB; "
            "seq_len_kv 512 or less fits with BLOCK_M 64, flash takes any length.",
        ),
        (
            AttentionProblem(1, 1, 1, 8192, 8192, 256, "float32"),
            TileConfig(1024, 8192),
            H200,
            "All 8,192 keys at once need at least 8,192 KB of shared memory for K, then V, and 66,568 KB of registers "
            "for 1024 rows of scores; H200 SXM gives a CTA 227 KB and, with num_warps 4, 127.5 KB; "
            "flash takes any length.",
        ),
        (
            AttentionProblem(seq_len_kv=32_768),
            TILE,
            None,
            "All 32,768 keys at once, with BLOCK_M 64, make a tensor of 2,097,152 elements, and Triton's largest has "
            "1,048,576; choose seq_len_kv 16,384 or less; flash takes any length.",
        ),
        (
            MEDIUM,
            TileConfig(8, 512),
            H200,
            "BLOCK_M is 8, but a GPU's matrix units want at least 16; choose 16 or more, or device cpu, where the "
            "kernel is interpreted.",
        ),
        (MEDIUM, TILE, T4, "T4 has no bfloat16 (it came with compute capability 8.0); choose float16."),
        (
            AttentionProblem(2**11, 2**11, 2**11, 2**13, 16),
            T16,
            None,
            "The grid has 2,147,483,648 programs, above 2,147,483,647; choose a larger BLOCK_M.",
        ),
    ],
)
def test_what_cannot_run_is_said_in_one_sentence(
    problem: AttentionProblem, tile: TileConfig, gpu: object, sentence: str
) -> None:
    with pytest.raises(Refused) as refused:
        KERNEL.refuse(problem, tile, gpu)  # type: ignore[arg-type]
    assert str(refused.value) == sentence


def test_what_the_compiled_kernel_needs_is_refused_with_a_block_that_fits() -> None:
    """On an A100 P of 64 rows goes through shared memory, 192 KB in all; of 32 rows it is 160 KB of 163."""
    tile = TileConfig(64, 512, 4, 1)
    KERNEL.refuse(MEDIUM, tile, A100)
    refuse_shared_memory(MEDIUM, tile, A100, 163 * 1024)
    sizes = r"need 192 KB of .* 224 KB of .* 163 KB .* 127\.5 KB; "
    advice = "BLOCK_M 32 fits, seq_len_kv 256 or less fits with BLOCK_M 64"
    with pytest.raises(Refused, match=sizes + advice):
        refuse_shared_memory(MEDIUM, tile, A100, 196_608)


def test_what_crosses_between_l2_and_the_sms() -> None:
    """Q and O 2,048 B each, K and V 2,048 B, twice; LSE 64 B."""
    problem = AttentionProblem(1, 1, 1, 16, 16, 64)
    assert KERNEL.l2_sm_bounds is not None
    assert KERNEL.l2_sm_bounds(problem, TileConfig(8, 16)) == (8192, 2 * 2048 + 2 * 2 * 2048 + 64)


@pytest.mark.parametrize("kernel", ["query_tiled", "flash", "flash_kv_outer", "split_kv"])
def test_a_product_that_comes_out_wrong_on_hopper_is_refused(kernel: str) -> None:
    """64 queries by 512 keys of head_dim 128 in 16 bits; fewer of any of them, or another GPU, are right."""
    h200, a100 = GpuLimits("H200", (9, 0), 2**20), GpuLimits("A100", (8, 0), 2**20)
    problem, tile = AttentionProblem(1, 1, 1, 512, 512, 128), TileConfig(64, 512, num_stages=1)
    refuse = all_kernels()[kernel].refuse
    with pytest.raises(Refused, match=r"^On Hopper, Triton multiplies 64 queries by 512 keys of head_dim 128 at once"):
        refuse(problem, tile, h200)
    refuse(problem, replace(tile, BLOCK_M=32), h200)
    refuse(problem, replace(tile, BLOCK_N=256), h200)
    refuse(replace(problem, head_dim=64), tile, h200)
    refuse(problem, tile, a100)
