"""Flash-Decoding: how many splits, both launches access by access, states that begin anew, the merge."""

import importlib
from collections import Counter
from dataclasses import replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.base import GpuLimits, all_kernels
from kernels.packed_gqa import packed
from kernels.problem import ELEMENT_BYTES, AttentionProblem, Refused, TileConfig
from kernels.row_walk import RowWalk
from kernels.split_kv.schedule import MAX_SPLITS, TARGET_PROGRAMS, merged_at_once, splits_of
from profiler.bench import Bench
from profiler.device import cpu_device
from profiler.state_trace import record_softmax
from profiler.tile_trace import traced_accesses
from profiler.workload import TraceRequest, Workload
from tests.attention_cases import CASES, check, draw
from tests.seen_accesses import scheduled, seen_accesses, total
from tests.small_problems import small_works

pytestmark = pytest.mark.computes

KERNEL = all_kernels()["split_kv"]
MODULE = importlib.import_module("kernels.split_kv.kernel")
SCHEDULE = importlib.import_module("kernels.split_kv.schedule")
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
DECODE = AttentionProblem(1, 32, 8, 1, 65_536, 128, "bfloat16")

TARGETS = st.sampled_from([3, 8, TARGET_PROGRAMS])  # small problems reach few programs with shares of several tiles


def walk_of(problem: AttentionProblem, tile: TileConfig) -> RowWalk:
    walk = KERNEL.schedule(problem, tile).walk
    assert isinstance(walk, RowWalk)
    return walk


@pytest.mark.parametrize(
    ("problem", "tile", "splits", "share_tiles"),
    [
        (DECODE, TileConfig(16, 64), 47, 22),  # 4 heads in a Q tile: 48 shares of each of 8 wanted
        (replace(DECODE, kv_heads=32), TileConfig(16, 64), 12, 86),  # 32 heads of one query: 12 shares each
        (LONG, TileConfig(128, 64), 1, 128),  # 1024 programs without a split
        (AttentionProblem(1, 1, 1, 1, 65_536, 128), TileConfig(16, 64), 128, 8),  # 384 wanted, 128 allowed
        (AttentionProblem(1, 1, 1, 1, 6400, 128), TileConfig(16, 64), 100, 1),  # no more than KV tiles
        (AttentionProblem(1, 64, 64, 1, 640, 128), TileConfig(16, 64), 5, 2),  # 6 wanted of 10 tiles: 5 shares of 2
        (AttentionProblem(1, 100, 100, 1, 704, 128), TileConfig(16, 64), 4, 3),  # of 11 tiles 3, 3, 3 and 2
    ],
)
def test_splits_by_hand(problem: AttentionProblem, tile: TileConfig, splits: int, share_tiles: int) -> None:
    assert splits_of(packed(problem), tile) == (splits, share_tiles)


@st.composite
def decode_works(draw_: st.DrawFn) -> tuple[AttentionProblem, TileConfig]:
    """One query a head, in groups that fill a Q tile, leave it ragged, or take several; causal hides nothing."""
    heads, kv_heads = draw_(st.sampled_from([(2, 1), (4, 2), (5, 1), (12, 2)]))
    shape = draw_(st.sampled_from([1, 2])), heads, kv_heads, 1, draw_(st.integers(1, 20))
    dtype = draw_(st.sampled_from(list(ELEMENT_BYTES)))
    problem = AttentionProblem(*shape, draw_(st.sampled_from([1, 5, 16])), dtype, draw_(st.booleans()))
    return problem, TileConfig(draw_(st.sampled_from([4, 8])), draw_(st.sampled_from([4, 8])))


@given(st.integers(1, 2000), st.integers(1, 5000), st.integers(1, 100_000))
def test_no_share_is_empty_and_there_are_enough(heads: int, queries: int, keys: int) -> None:
    problem, tile = AttentionProblem(1, heads, heads, queries, keys, 64), TileConfig(64, 64)
    rows, kv_tiles = heads * -(-queries // 64), -(-keys // 64)
    splits, share_tiles = splits_of(problem, tile)
    assert (splits - 1) * share_tiles < kv_tiles <= splits * share_tiles
    assert 1 <= splits <= MAX_SPLITS
    # One share less would leave too few programs, and one KV tile less in each would be more than is wanted.
    assert splits == 1 or rows * (splits - 1) < TARGET_PROGRAMS
    finer = -(-kv_tiles // max(share_tiles - 1, 1))
    assert share_tiles == 1 or rows * finer > TARGET_PROGRAMS or finer > MAX_SPLITS


def check_schedule(problem: AttentionProblem, tile: TileConfig) -> None:
    """Which tiles each program visits, its bytes before each visit and at the end, and those of the merge."""
    plan, walk = KERNEL.schedule(problem, tile), walk_of(problem, tile)
    grid = walk.grid
    seen = seen_accesses(MODULE, problem, tile)
    assert list(seen) == ["split", "merge"]
    assert set(seen["split"]) == set(range(walk.total_programs))
    for program, accesses in seen["split"].items():
        begins = [at for at, access in enumerate(accesses) if access.tensor == "k"]
        visits = [walk.tile_of(program, step) for step in range(int(walk.steps[program % walk.programs]))]
        batch, head, query = grid.query_of(program // walk.programs, visits[0][0] * tile.BLOCK_M)
        first_key = (batch * problem.kv_heads + head // problem.group) * problem.seq_len_kv
        (q,) = (access.element // problem.head_dim for access in accesses if access.tensor == "q")
        found = [(accesses[at].element // problem.head_dim - first_key) // tile.BLOCK_N for at in begins]
        assert found == [kv_tile for _, kv_tile in visits if kv_tile is not None]
        assert q == (batch * problem.heads + head) * problem.seq_len_q + query
        for step, at in enumerate(begins):
            assert total(accesses[:at]) == scheduled(walk, program, step)
        assert total(accesses) == scheduled(walk, program, len(visits))
    merge = plan.launches[1]
    found_bytes = total([access for accesses in seen["merge"].values() for access in accesses])
    assert {name: read for name, (read, _) in found_bytes.items() if read} == merge.reads
    assert {name: written for name, (_, written) in found_bytes.items() if written} == merge.writes


@settings(max_examples=30)
@given(small_works(), TARGETS)
def test_equals_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig], target: int) -> None:
    with patch.object(SCHEDULE, "TARGET_PROGRAMS", target):
        check_schedule(*work)


@settings(max_examples=20)
@given(decode_works(), TARGETS)
def test_packed_heads_equal_the_interpreters_trace(work: tuple[AttentionProblem, TileConfig], target: int) -> None:
    with patch.object(SCHEDULE, "TARGET_PROGRAMS", target):
        check_schedule(*work)


@pytest.mark.parametrize(
    "case", ["decode", "decode_17_over_1", "causal_5_over_2", "window_70_over_30", "window_causal_30_over_70"]
)
def test_equals_the_interpreters_trace_on_cases(case: str) -> None:
    check_schedule(*CASES[case])


@settings(max_examples=60)
@given(small_works(), TARGETS)
def test_where_and_when_a_tile_is_visited_agree(work: tuple[AttentionProblem, TileConfig], target: int) -> None:
    """tile_of, when, order_of, states_of, kv_reads_until and program_steps, of programs that share a Q tile."""
    with patch.object(SCHEDULE, "TARGET_PROGRAMS", target):
        walk, (splits, _) = walk_of(*work), splits_of(*work)
    grid = walk.grid
    assert walk.programs == splits * grid.q_tiles
    batch_head = walk.copies - 1
    order = walk.order_of(batch_head, np.arange(grid.q_tiles)[:, None], np.arange(grid.kv_tiles))
    expected = np.full((grid.q_tiles, grid.kv_tiles), np.nan)
    reads = np.zeros(grid.kv_tiles, dtype=np.int64)
    shares: dict[int, list[list[int]]] = {}
    for p in range(walk.programs):
        program = batch_head * walk.programs + p
        visits = [walk.tile_of(program, step) for step in range(int(walk.steps[p]))]
        seen = [kv_tile for _, kv_tile in visits if kv_tile is not None]
        shares.setdefault(visits[0][0], []).append(seen)
        for step, kv_tile in enumerate(seen):
            expected[visits[0][0], kv_tile] = step
            reads[kv_tile] += 1
            assert walk.when(batch_head, visits[0][0], kv_tile) == (program, step)
        steps = list(walk.program_steps("split", program))
        assert [step.kv_range[0] // grid.BLOCK_N for step in steps if step.mask != "skipped"] == seen
        booked: Counter[tuple[str, str]] = Counter()
        for step_ in steps:
            booked.update({(name, "read"): size for name, size in step_.reads.items()})
            booked.update({(name, "write"): size for name, size in step_.writes.items()})
        found = scheduled(walk, program, len(visits))
        assert booked == Counter(
            {
                (name, way): size
                for name, both in found.items()
                for way, size in zip(("read", "write"), both, strict=True)
            }
        )
    np.testing.assert_array_equal(order, expected)
    for i in range(grid.q_tiles):
        assert [list(states) for states in walk.states_of(batch_head, i)] == shares[i]
        assert len(shares[i]) == splits
        visible = np.arange(grid.first[i], grid.last[i])
        for j in range(grid.kv_tiles):
            program, step = walk.when(batch_head, i, j)
            if len(visible):  # the nearest visible tile, or one as near
                q_tile, kv_tile = walk.tile_of(program, step)
                assert kv_tile is not None and q_tile == i and abs(kv_tile - j) == abs(visible - j).min()
            else:
                assert walk.tile_of(program, step) == (i, None)
    k, v = walk.kv_reads_until(batch_head, walk.steps)
    assert k.tolist() == v.tolist() == reads.tolist()


def test_decoding_by_hand() -> None:
    """8 K/V heads of 47 shares: each reads 4 queries of 256 B and 22 of 1024 KV tiles, K and V once in all.

    These are 134,217,728 B each. A partial acc is 512 B, m and l are 4 B, of 4 heads in each of 376 programs.
    """
    plan = KERNEL.schedule(DECODE, TileConfig(16, 64))
    split, merge = plan.launches
    assert split.walk is not None and (split.walk.total_programs, split.walk.total_steps) == (376, 8 * 1024)
    assert split.reads == {"q": 1504 * 256, "k": 134_217_728, "v": 134_217_728}
    assert split.writes == merge.reads == {"acc": 1504 * 512, "m": 1504 * 4, "l": 1504 * 4}
    assert merge.writes == {"o": 32 * 256, "lse": 32 * 4}
    assert KERNEL.temporaries(DECODE, TileConfig(16, 64)) == {"acc": 770_048, "m": 6016, "l": 6016, "lse": 128}


@pytest.mark.parametrize(
    ("problem", "rows"),
    [
        (DECODE, AttentionProblem(1, 8, 8, 4, 65_536, 128, "bfloat16")),
        (replace(DECODE, causal=True), AttentionProblem(1, 8, 8, 4, 65_536, 128, "bfloat16")),
        (replace(DECODE, seq_len_q=2), None),
        (replace(DECODE, window=9), None),
        (replace(DECODE, kv_heads=32, causal=True), None),
    ],
    ids=["full", "causal", "two queries", "window", "nothing shared"],
)
def test_which_heads_are_packed(problem: AttentionProblem, rows: AttentionProblem | None) -> None:
    assert packed(problem) == packed(packed(problem)) == (rows or problem)
    assert packed(problem).flops == problem.flops and packed(problem).compulsory_bytes == problem.compulsory_bytes


def test_where_a_head_stands_in_its_q_tile() -> None:
    """2 batches of 6 heads over 2: head 4 of batch 1 is the 10th of all, row 1 of the 3rd K/V head of all."""
    grid = walk_of(AttentionProblem(2, 6, 2, 1, 20, 16), TileConfig(4, 4)).grid
    assert grid.place_of(1, 4, 0) == (3, 1)
    assert [grid.query_of(bh, row) for bh in range(4) for row in range(3)] == [
        (batch, head, 0) for batch in range(2) for head in range(6)
    ]
    grid = walk_of(AttentionProblem(2, 6, 2, 9, 20, 16), TileConfig(4, 4)).grid
    assert grid.place_of(1, 4, 7) == (10, 7) and grid.query_of(10, 7) == (1, 4, 7)


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("layout", ["every second head", "batches last", "one batch for all"])
def test_packed_heads_of_strided_queries(layout: str) -> None:
    """Heads are cut into groups wherever they lie: no stride of Q follows from another."""
    problem, tile = AttentionProblem(2, 6, 2, 1, 21, 16, "float32"), TileConfig(4, 8)
    q, k, v = draw(problem)
    strided = {
        "every second head": q.repeat_interleave(2, dim=1)[:, ::2],
        "batches last": q.transpose(0, 1).contiguous().transpose(0, 1),
        "one batch for all": q[:1].expand(2, -1, -1, -1),
    }[layout]
    assert strided.stride() != q.stride()
    check(KERNEL.forward, problem, tile, (strided, k, v))


def test_long_queries_by_hand() -> None:
    """1024 programs need no split: flash's bytes, and the state of every row to HBM and back."""
    plan = KERNEL.schedule(LONG, TileConfig(128, 64))
    assert plan.by_tensor == {
        "q": {"read": 33_554_432, "write": 0},
        "k": {"read": 1024 * 2_097_152, "write": 0},
        "v": {"read": 1024 * 2_097_152, "write": 0},
        "acc": {"read": 67_108_864, "write": 67_108_864},
        "m": {"read": 524_288, "write": 524_288},
        "l": {"read": 524_288, "write": 524_288},
        "o": {"read": 0, "write": 33_554_432},
        "lse": {"read": 0, "write": 524_288},
    }


def test_neighbours_work_on_the_same_share() -> None:
    """3 Q tiles, 4 KV tiles, a share each: programs 0 to 2 on the first, 3 to 5 on the second."""
    walk = walk_of(AttentionProblem(1, 1, 1, 12, 16, 16), TileConfig(4, 4))
    assert [walk.tile_of(program, 0) for program in range(7)] == [
        (0, 0),
        (1, 0),
        (2, 0),
        (0, 1),
        (1, 1),
        (2, 1),
        (0, 2),
    ]


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize(("target", "splits"), [(TARGET_PROGRAMS, 6), (4, 2), (1, 1)])
def test_shares_that_see_nothing_weigh_nothing(monkeypatch: pytest.MonkeyPatch, target: int, splits: int) -> None:
    """A window of 3 keys leaves most shares without a key, and queries before the first key see none at all."""
    monkeypatch.setattr(SCHEDULE, "TARGET_PROGRAMS", target)
    problem, tile = AttentionProblem(1, 1, 1, 11, 6, 4, "float32", window=3), TileConfig(8, 1)
    assert splits_of(problem, tile)[0] == splits and problem.blind_queries == 3
    check(KERNEL.forward, problem, tile, draw(problem))


@pytest.mark.parametrize(
    ("problem", "tile", "rows", "shares"),
    [
        (packed(DECODE), TileConfig(16, 64), 1, 64),  # 47 shares, and as many of 128 values as 64 are 8192
        (packed(replace(DECODE, seq_len_kv=400)), TileConfig(16, 64), 4, 8),  # 7 shares; no more than 4 queries
        (LONG, TileConfig(128, 64), 64, 1),  # a share a Q tile: 64 queries of 128 values
        (LONG, TileConfig(16, 64), 16, 1),  # no more than BLOCK_M
        (AttentionProblem(1, 1, 1, 1, 65_536, 80), TileConfig(16, 64), 1, 64),  # 128 shares, head_dim padded to 128
    ],
)
def test_a_merging_program_takes_all_shares_of_as_many_queries_as_fit(
    problem: AttentionProblem, tile: TileConfig, rows: int, shares: int
) -> None:
    assert merged_at_once(problem, tile) == (rows, shares)


def test_the_launches_of_a_decode() -> None:
    """A row of 32 in each merging program, whose 47 shares, to 64, of 128 values are 16 for each of 512 threads."""
    split, merge = MODULE.launches(DECODE, TileConfig(16, 64, 4, 2))
    assert (split.programs, merge.programs) == (376, 32)
    assert (split.constants["CAUSAL"], split.constants["PARTIAL"], split.constants["num_warps"]) == (False, False, 4)
    assert (merge.constants["ROWS"], merge.constants["SHARES"], merge.constants["num_warps"]) == (1, 64, 16)


@pytest.mark.usefixtures("poisoned")
def test_more_shares_than_are_merged_at_once() -> None:
    """60 shares of a KV tile; 8192 values of acc are 32 shares of a query by 256."""
    problem, tile = AttentionProblem(1, 1, 1, 3, 60, 256), TileConfig(16, 1)
    assert splits_of(problem, tile) == (60, 1) and merged_at_once(problem, tile) == (1, 32)
    check(KERNEL.forward, problem, tile, draw(problem))


@pytest.mark.parametrize(
    ("problem", "tile", "request_"),
    [
        (AttentionProblem(1, 1, 1, 20, 63, 16, "float32"), TileConfig(16, 8), TraceRequest()),
        (AttentionProblem(2, 4, 2, 9, 50, 16, "float32", causal=True), TileConfig(16, 8), TraceRequest(1, 3)),
        (AttentionProblem(1, 2, 1, 40, 70, 16, "float16", window=9), TileConfig(16, 8), TraceRequest(0, 1, 20)),
        (AttentionProblem(1, 1, 1, 40, 25, 16, "bfloat16", causal=True), TileConfig(32, 4), TraceRequest(row=20)),
        (AttentionProblem(2, 6, 2, 1, 50, 16, "float32", causal=True), TileConfig(4, 4), TraceRequest(1, 4)),
        (AttentionProblem(1, 7, 1, 1, 90, 16, "bfloat16"), TileConfig(4, 4), TraceRequest(0, 6, 0)),
    ],
    ids=lambda value: value.label if isinstance(value, AttentionProblem) else "",
)
def test_the_state_begins_anew_in_every_share(
    monkeypatch: pytest.MonkeyPatch, problem: AttentionProblem, tile: TileConfig, request_: TraceRequest
) -> None:
    """Each share's prefix in float64, from its own first tile; shares of several tiles, as if few programs sufficed."""
    monkeypatch.setattr(SCHEDULE, "TARGET_PROGRAMS", 10)
    assert splits_of(problem, tile)[1] > 1
    bench = Bench(Workload("split_kv", problem, tile, trace=request_), cpu_device())
    walk = bench.schedule.walk
    assert walk is not None
    with traced_accesses() as seen:
        trace, output = record_softmax(bench, seen)
    asked = bench.schedule.requested_read_bytes, bench.schedule.requested_write_bytes
    assert (seen.total("read"), seen.total("write")) == asked, "the trace's own stores are left out"
    assert output.o.equal(bench.launch().o)
    grid = walk.grid
    assert (trace.batch, trace.head) == (request_.batch, request_.head)
    batch_head, first = grid.place_of(trace.batch, trace.head, trace.row_start)
    rows = np.arange(first, first + trace.row_stop - trace.row_start)
    j, q_tile = np.arange(grid.kv_tiles), rows[:, None] // tile.BLOCK_M
    visited = (grid.first[q_tile] <= j) & (j < grid.last[q_tile])
    loose = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}[problem.dtype]  # P is rounded, m and l are not
    for name, tolerance in (("m", 5e-5), ("l", 5e-5), ("acc_norm", loose)):
        found, exact = getattr(trace, name).numpy(), getattr(trace, f"exact_{name}").numpy()
        assert (np.isnan(found) == ~visited).all(), name
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance, err_msg=name)
    # Nothing had been summed where a share begins.
    for q in range(grid.q_tiles):
        for share in walk.states_of(batch_head, q):
            inside = rows // tile.BLOCK_M == q
            assert len(share) == 0 or (trace.alpha.numpy()[inside, share[0]] == 0).all()
    # Of the accumulator the asked head's rows, and no other's, are kept.
    acc, tiles = trace.acc.numpy(), range(trace.acc_start, grid.kv_tiles, trace.acc_stride)
    of_tile = np.arange(acc.shape[1]) + trace.acc_tile * tile.BLOCK_M - trace.row_start
    norms = np.linalg.norm(acc, axis=2)
    np.testing.assert_allclose(norms, trace.acc_norm.numpy()[of_tile][:, tiles].T, rtol=1e-5)


def test_what_does_not_fit_is_refused() -> None:
    gpu = GpuLimits("Some GPU", (8, 6), 99 * 1024)
    with pytest.raises(Refused, match=r"^BLOCK_M 128, BLOCK_N 64, num_stages 4 needs at least 128 KB of shared memory"):
        KERNEL.refuse(LONG, TileConfig(128, 64, num_stages=4), gpu)
    with pytest.raises(Refused, match=r"^The grid has 4,294,967,296 programs"):
        KERNEL.refuse(AttentionProblem(2**12, 2**20, 2**20, 1, 1, 16), TileConfig(16, 16), None)
