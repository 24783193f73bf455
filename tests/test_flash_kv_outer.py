"""FlashAttention-1's loop order: its schedule access by access, which Q tiles see a KV tile, its softmax state."""

import importlib

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.base import GpuLimits, all_kernels
from kernels.column_walk import ColumnWalk
from kernels.flash_kv_outer.kernel import seeing_tiles
from kernels.flash_kv_outer.limits import STREAMED_Q
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.tile_grid import TileGrid
from profiler.bench import Bench
from profiler.device import cpu_device
from profiler.state_trace import record_softmax
from profiler.tile_trace import traced_accesses
from profiler.workload import TraceRequest, Workload
from tests.attention_cases import CASES
from tests.seen_accesses import Access, scheduled, seen_accesses, total
from tests.small_problems import small_works

pytestmark = pytest.mark.computes

KERNEL = all_kernels()["flash_kv_outer"]
MODULE = importlib.import_module("kernels.flash_kv_outer.kernel")
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")


def walk_of(problem: AttentionProblem, tile: TileConfig) -> ColumnWalk:
    walk = KERNEL.schedule(problem, tile).walk
    assert isinstance(walk, ColumnWalk)
    return walk


def starts(accesses: list[Access]) -> list[int]:
    """Where each visit begins: with K, V and Q on a column's first one, with Q on the others."""
    reads = [access.tensor if access.direction == "read" else "" for access in accesses]
    return [at for at, name in enumerate(reads) if name == "k" or (name == "q" and reads[at - 1] != "v")]


def check_schedule(problem: AttentionProblem, tile: TileConfig) -> None:
    """Which tiles are visited, and the bytes of every tensor before each visit and at the end, as the Walk says."""
    walk = walk_of(problem, tile)
    (programs,) = seen_accesses(MODULE, problem, tile).values()
    assert set(programs) == set(range(walk.total_programs))
    for program, accesses in programs.items():
        begins, batch_head = starts(accesses), divmod(program, problem.heads)
        assert len(begins) == int(walk.steps[0])
        for step, at in enumerate(begins):
            assert total(accesses[:at]) == scheduled(walk, program, step)
            reads = {access.tensor: access.element // problem.head_dim for access in accesses[at : at + 3]}
            q_tile, kv_tile = walk.tile_of(program, step)
            assert kv_tile is not None
            batch, head = batch_head
            assert reads["q"] == program * problem.seq_len_q + q_tile * tile.BLOCK_M
            if accesses[at].tensor == "k":
                kv_head = batch * problem.kv_heads + head // problem.group
                assert reads["k"] == reads["v"] == kv_head * problem.seq_len_kv + kv_tile * tile.BLOCK_N
        assert total(accesses) == scheduled(walk, program, len(begins))


@settings(max_examples=30)
@given(small_works())
def test_equals_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig]) -> None:
    check_schedule(*work)


@pytest.mark.parametrize(
    "case", ["causal_5_over_2", "causal_200_over_64", "window_70_over_30", "window_causal_30_over_70", "gqa_6_over_2"]
)
def test_equals_the_interpreters_trace_on_cases(case: str) -> None:
    check_schedule(*CASES[case])


@triton.jit
def list_seeing_tiles(
    out_ptr, seq_len_q, seq_len_kv, window, COLUMNS: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
):  # fmt: skip
    j = tl.arange(0, COLUMNS)
    first, last = seeing_tiles(j, seq_len_q, seq_len_kv, window, BLOCK_M, BLOCK_N, CAUSAL, WINDOW)
    tl.store(out_ptr + 2 * j, first + tl.zeros_like(j))
    tl.store(out_ptr + 2 * j + 1, last + tl.zeros_like(j))


@settings(max_examples=200)
@given(
    st.integers(1, 70), st.integers(1, 70), st.booleans(), st.none() | st.integers(1, 80),
    st.sampled_from([1, 4, 16, 32]), st.sampled_from([1, 4, 16, 32]),
)  # fmt: skip
def test_the_running_kernel_knows_which_q_tiles_see_a_kv_tile(
    queries: int, keys: int, causal: bool, window: int | None, block_m: int, block_n: int
) -> None:
    """The closed form in Triton against the sorted arrays in numpy."""
    problem = AttentionProblem(seq_len_q=queries, seq_len_kv=keys, causal=causal, window=window)
    walk = ColumnWalk(TileGrid(problem, block_m, block_n))
    found = torch.full((128, 2), -1, dtype=torch.int64)
    list_seeing_tiles[(1,)](found, queries, keys, window or 0, 128, block_m, block_n, causal, window is not None)
    expected = np.stack([walk.q_first, walk.q_last], axis=1)
    np.testing.assert_array_equal(found[: walk.grid.kv_tiles].numpy(), expected)


def test_by_hand() -> None:
    """128 KV tiles meet 64 Q tiles; Q, K, V and O are 33,554,432 B, acc is twice that, m, l and LSE are 524,288 B."""
    plan = KERNEL.schedule(LONG, TileConfig(128, 64))
    assert plan.walk is not None and (plan.walk.total_programs, plan.walk.total_steps) == (16, 16 * 8192)
    assert plan.by_tensor == {
        "q": {"read": 128 * 33_554_432, "write": 0},
        "k": {"read": 33_554_432, "write": 0},
        "v": {"read": 33_554_432, "write": 0},
        "acc": {"read": 129 * 67_108_864, "write": 129 * 67_108_864},
        "m": {"read": 129 * 524_288, "write": 129 * 524_288},
        "l": {"read": 129 * 524_288, "write": 129 * 524_288},
        "o": {"read": 0, "write": 33_554_432},
        "lse": {"read": 0, "write": 524_288},
    }
    sizes = {"acc": 67_108_864, "m": 524_288, "l": 524_288, "lse": 524_288}
    assert KERNEL.temporaries(LONG, TileConfig(128, 64)) == sizes


@pytest.mark.parametrize(
    ("problem", "tile", "request_"),
    [
        (AttentionProblem(1, 1, 1, 63, 63, 16, "float32"), TileConfig(16, 16), TraceRequest()),
        (AttentionProblem(2, 4, 2, 33, 50, 16, "float32", causal=True), TileConfig(16, 16), TraceRequest(1, 3)),
        (AttentionProblem(1, 2, 1, 70, 70, 16, "float16", window=9), TileConfig(32, 16), TraceRequest(0, 1, 40)),
        (AttentionProblem(1, 1, 1, 40, 25, 16, "float32", causal=True), TileConfig(32, 16), TraceRequest(row=20)),
        (AttentionProblem(1, 1, 1, 32, 48, 16, "bfloat16"), TileConfig(16, 16), TraceRequest()),
    ],
    ids=lambda value: value.label if isinstance(value, AttentionProblem) else "",
)
def test_the_state_equals_exact_prefixes(problem: AttentionProblem, tile: TileConfig, request_: TraceRequest) -> None:
    """After every KV tile, although each state left the chip in between; NaN where a tile is skipped."""
    bench = Bench(Workload("flash_kv_outer", problem, tile, trace=request_), cpu_device())
    with traced_accesses() as seen:
        trace, output = record_softmax(bench, seen)
    asked = bench.schedule.requested_read_bytes, bench.schedule.requested_write_bytes
    assert (seen.total("read"), seen.total("write")) == asked, "the trace's own stores are left out"
    plain = bench.launch()
    assert output.o.equal(plain.o)
    grid = TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    j, q_tile = np.arange(grid.kv_tiles), np.arange(trace.row_start, trace.row_stop)[:, None] // tile.BLOCK_M
    visited = (grid.first[q_tile] <= j) & (j < grid.last[q_tile])
    loose = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}[problem.dtype]  # P is rounded, m and l are not
    for name, tolerance in (("m", 5e-5), ("l", 5e-5), ("acc_norm", loose)):
        found, exact = getattr(trace, name).numpy(), getattr(trace, f"exact_{name}").numpy()
        assert (np.isnan(found) == ~visited).all(), name
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance, err_msg=name)


def test_what_does_not_fit_names_what_does() -> None:
    """acc alone is 64 KB where BLOCK_M 128 meets head_dim 128; BLOCK_M counts most."""
    gpu = GpuLimits("Some GPU", (8, 6), 99 * 1024)
    tile = TileConfig(128, 64, num_stages=4)
    with pytest.raises(Refused, match=r"^BLOCK_M 128, BLOCK_N 64, num_stages 4 needs at least 128 KB of shared memory"):
        KERNEL.refuse(LONG, tile, gpu)
    fit = STREAMED_Q.fitting_tile(LONG, tile, gpu.shared_memory_per_block)
    assert fit is not None and (fit.BLOCK_M, fit.BLOCK_N, fit.num_stages) == (16, 64, 2)
    assert STREAMED_Q.at_least(LONG, tile) == (2 * 64 + 3 * 128) * 256
