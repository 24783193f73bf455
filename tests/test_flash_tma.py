"""Flash by TMA: its schedule against the trace, what no descriptor can hold, and which GPUs have none."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from kernels.base import AttentionKernel, all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.device import GPUS
from tests.attention_cases import CASES, T16, T32, check, draw
from tests.seen_rows import check_schedule
from tests.small_problems import small_works

pytestmark = pytest.mark.computes

KERNEL: AttentionKernel = all_kernels()["flash_tma"]
FLASH: AttentionKernel = all_kernels()["flash"]
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")


@settings(max_examples=40)
@given(small_works())
def test_equals_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig]) -> None:
    problem, tile = work
    check_schedule(KERNEL, replace(problem, head_dim=8 * problem.head_dim), tile)


@pytest.mark.parametrize("order", KERNEL.orders)
@pytest.mark.parametrize("case", ["causal_200_over_64", "gqa_6_over_2", "head_dim_80"])
def test_equals_the_interpreters_trace_in_every_order(case: str, order: str) -> None:
    problem, tile = CASES[case]
    if order == "longest_first" and not problem.causal:
        problem = AttentionProblem(**vars(problem) | {"causal": True})
    check_schedule(KERNEL, problem, TileConfig(tile.BLOCK_M, tile.BLOCK_N, order=order))


def test_asks_for_what_flash_asks_for() -> None:
    """A tile that a descriptor names is as many bytes as the pointers of its elements."""
    for case, tile in CASES.values():
        assert KERNEL.schedule(case, tile).by_tensor == FLASH.schedule(case, tile).by_tensor
    assert [launch.name for launch in KERNEL.schedule(LONG, T16).launches] == ["flash_tma"]


@pytest.mark.parametrize(("dtype", "head_dim", "near"), [("float16", 63, 64), ("bfloat16", 4, 8), ("float32", 5, 8)])
def test_rows_that_no_descriptor_holds_are_refused(dtype: str, head_dim: int, near: int) -> None:
    """16 bytes are 8 elements of 16 bits, 4 of float32; on the CPU too, since the interpreter wants the same."""
    problem = AttentionProblem(head_dim=head_dim, dtype=dtype)
    for gpu in (None, GPUS["h200"].limits):
        with pytest.raises(Refused, match=rf"whose rows are multiples of 16 bytes.* choose {near}, or flash\.$"):
            KERNEL.refuse(problem, T16, gpu)


def test_strides_that_no_descriptor_holds_are_refused_by_name() -> None:
    problem = AttentionProblem(1, 1, 1, 16, 16, 16)
    q, k, v = draw(problem)
    wide = k.new_zeros(1, 1, 16, 20)[..., :16]
    with pytest.raises(ValueError, match=r"^k has a stride of 40 bytes along seq_len, .* make k contiguous, or choose"):
        KERNEL.forward(q, wide, v, problem, T16)
    shifted = v.new_zeros(v.numel() + 1)[1:].view_as(v)
    with pytest.raises(ValueError, match=r"^v begins at an address that is no multiple of 16 bytes"):
        KERNEL.forward(q, k, shifted, problem, T16)


@pytest.mark.parametrize(("gpu", "runs"), [("a100", False), ("rtx4090", False), ("h200", True), ("b200", True)])
def test_only_gpus_with_tma_run_it(gpu: str, runs: bool) -> None:
    limits = GPUS[gpu].limits
    if runs:
        KERNEL.refuse(LONG, TileConfig(128, 64, 8, 3), limits)
        return
    with pytest.raises(
        Refused, match=r"^Flash, TMA wants the Tensor Memory Accelerator .* has 8\.[09]: choose flash\.$"
    ):
        KERNEL.refuse(LONG, TileConfig(128, 64, 8, 3), limits)


def test_strided_views_give_the_same_as_contiguous_ones() -> None:
    problem = AttentionProblem(2, 4, 2, 33, 40, 16, causal=True)
    q, k, v = (x.transpose(1, 2).contiguous().transpose(1, 2) for x in draw(problem))
    assert not k.is_contiguous()
    check(KERNEL.forward, problem, T32, (q, k, v))
