"""One query at a time: its schedule step by step, its bytes by hand, its row of scores against the registers."""

import pytest
import torch
from hypothesis import given, settings

from kernels.base import AttentionKernel, all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.row_streaming.kernel import grid
from kernels.row_streaming.limits import longest_seq
from kernels.row_streaming.schedule import chunks, held
from profiler.device import GPUS
from profiler.workload import workloads
from tests.attention_cases import CASES, check, draw
from tests.seen_rows import check_schedule, walk_of
from tests.small_problems import small_works

pytestmark = pytest.mark.computes

KERNEL: AttentionKernel = all_kernels()["row_streaming"]
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
A100, T4 = (GPUS[name].limits for name in ("a100", "t4"))


@settings(max_examples=40)
@given(small_works())
def test_equals_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig]) -> None:
    check_schedule(KERNEL, *work)


@pytest.mark.parametrize("case", ["causal_5_over_2", "window_70_over_30", "window_causal_30_over_70", "head_dim_1"])
def test_equals_the_interpreters_trace_on_cases(case: str) -> None:
    check_schedule(KERNEL, *CASES[case])


@pytest.mark.parametrize("block_n", [1, 2, 16, 64])
def test_any_chunk_gives_the_same(block_n: int) -> None:
    """16 keys in 16 chunks of one, eight of two, one, and a quarter of one."""
    problem = AttentionProblem(1, 2, 1, 5, 16, 8, causal=True)
    check(KERNEL.forward, problem, TileConfig(1, block_n), draw(problem))


def test_interpreted_bfloat16_rounds_p_and_o_to_nearest() -> None:
    problem = AttentionProblem(1, 1, 1, 8, 64, 64, "bfloat16")
    q, k, v = draw(problem)
    s = q.double() @ k.double().mT * problem.sm_scale
    p = (s - s.amax(-1, keepdim=True)).exp()
    nearest = (p.bfloat16().double() @ v.double() / p.sum(-1, keepdim=True)).bfloat16()
    found = check(KERNEL.forward, problem, TileConfig(1, 16), (q, k, v), slack=0.4).o
    assert float((found != nearest).double().mean()) < 0.01


def test_scores_far_below_any_finite_minus_infinity() -> None:
    problem = AttentionProblem(1, 1, 1, 3, 40, 64, causal=True)
    _, k, v = draw(problem)
    q, k = torch.full((1, 1, 3, 64), -175.0, dtype=k.dtype), torch.full_like(k, 175.0)
    output = check(KERNEL.forward, problem, TileConfig(1, 16), (q, k, v))
    assert output.lse is not None and bool((output.lse < -244_990).all())


def test_by_hand() -> None:
    """131,072 programs; each streams the K and V of its head, 4,194,304 B, past its row of Q, 256 B."""
    plan = KERNEL.schedule(LONG, TileConfig(1, 64))
    assert plan.by_tensor == {
        "q": {"read": 33_554_432, "write": 0},
        "k": {"read": 131_072 * 2_097_152, "write": 0},
        "v": {"read": 131_072 * 2_097_152, "write": 0},
        "o": {"read": 0, "write": 33_554_432},
        "lse": {"read": 0, "write": 524_288},
    }
    assert plan.requested_read_bytes == 33_554_432 + 131_072 * 4_194_304
    walk = walk_of(KERNEL, LONG, TileConfig(1, 64))
    assert (walk.total_programs, walk.total_steps) == (131_072, 131_072 * 2 * 128)
    assert KERNEL.temporaries(LONG, TileConfig(1, 64)) == {"lse": 524_288}
    assert grid(LONG) == (131_072,)


def test_all_of_k_comes_before_v() -> None:
    """Query 2 of 4, causal over 6 keys in twos, stands at key 4: three tiles of K, then the same three of V."""
    problem = AttentionProblem(1, 1, 1, 4, 6, 16, causal=True)
    walk = walk_of(KERNEL, problem, TileConfig(1, 2))
    assert walk.steps.tolist() == [4, 4, 6, 6]
    assert [walk.tile_of(2, step) for step in range(6)] == [(2, 0), (2, 1), (2, 2)] * 2
    steps = list(walk.program_steps("row_streaming", 2))
    assert [set(step.reads) for step in steps] == [{"q", "k"}, {"k"}, {"k"}, {"v"}, {"v"}, {"v"}]
    assert [step.mask for step in steps] == ["full", "full", "partial"] * 2


def test_the_row_is_what_the_chip_holds() -> None:
    """8,192 float32 scores, 32 KB, of which 33 keys in chunks of 16 need four chunks: a power of two."""
    sizes = {tile.name: tile.size for tile in held(LONG, TileConfig(1, 64))}
    assert sizes["S, then P"] == 32_768 and sizes["K"] == sizes["V"] == 64 * 256
    assert chunks(AttentionProblem(seq_len_kv=33), TileConfig(1, 16)) == 4


def test_only_the_chunk_is_left_to_choose() -> None:
    _, work = workloads(("flash", "row_streaming"), LONG, TileConfig(128, 32, 8, 3, "sawtooth"), "cpu")
    assert work.tile == TileConfig(1, 32, 8, 1)


def test_what_crosses_between_l2_and_the_sms_counts_a_sector_for_each_lse() -> None:
    """Q and O 512 B each, K and V 512 B for each of 4 queries, LSE one sector of 32 B for each."""
    problem = AttentionProblem(1, 1, 1, 4, 4, 64)
    assert KERNEL.l2_sm_bounds is not None
    assert KERNEL.l2_sm_bounds(problem, TileConfig(1, 16)) == (2048, 2 * 512 + 2 * 4 * 512 + 4 * 32)


@pytest.mark.parametrize(
    ("num_warps", "longest"),
    # 255 registers of 4 B for 32 threads a warp: 63.75, 127.5 and, since the SM has no more, 256 KB.
    [(2, 8192), (4, 16_384), (8, 32_768), (16, 32_768), (32, 32_768)],
)
def test_the_longest_row_that_leaves_room_in_the_registers(num_warps: int, longest: int) -> None:
    tile = TileConfig(1, 64, num_warps, 1)
    assert longest_seq(tile) == longest
    KERNEL.refuse(AttentionProblem(seq_len_kv=longest), tile, A100)
    with pytest.raises(Refused, match=f"seq_len_kv {longest:,} or less fits"):
        KERNEL.refuse(AttentionProblem(seq_len_kv=longest + 1), tile, A100)


@pytest.mark.parametrize(
    ("problem", "gpu", "sentence"),
    [
        (
            AttentionProblem(seq_len_kv=20_000),
            A100,
            "A row of 20,000 float32 scores needs 128 KB of registers, beside K, V and acc; A100 SXM 80 GB gives a "
            "program with num_warps 4 at most 127.5 KB; seq_len_kv 16,384 or less fits, this row fits with num_warps "
            "8, flash takes any length.",
        ),
        (
            AttentionProblem(seq_len_kv=65_536),
            A100,
            "A row of 65,536 float32 scores needs 256 KB of registers, beside K, V and acc; A100 SXM 80 GB gives a "
            "program with num_warps 4 at most 127.5 KB; seq_len_kv 16,384 or less fits, flash takes any length.",
        ),
        (
            AttentionProblem(seq_len_kv=2**20 + 1),
            None,
            "A row of 1,048,577 scores is a tensor of 2,097,152 elements, and Triton's largest has 1,048,576; "
            "choose seq_len_kv 1,048,576 or less; flash takes any length.",
        ),
        (
            AttentionProblem(128, 128, 128, 2**17, 64),
            None,
            "The grid has 2,147,483,648 programs, above 2,147,483,647; "
            "choose a shorter seq_len_q, fewer heads or flash.",
        ),
        (
            AttentionProblem(dtype="bfloat16"),
            T4,
            "T4 has no bfloat16 (it came with compute capability 8.0); choose float16.",
        ),
    ],
)
def test_what_cannot_run_is_said_in_one_sentence(problem: AttentionProblem, gpu: object, sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        KERNEL.refuse(problem, TileConfig(1, 64, 4, 1), gpu)  # type: ignore[arg-type]
    assert str(refused.value) == sentence
