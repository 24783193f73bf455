"""m, l, alpha and acc out of the running kernel: by hand for the article's row, against exact prefixes elsewhere."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from app.softmax_recording import Recording
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.reference import reference
from kernels.row_walk import RowWalk
from kernels.run import Output, StateTrace
from kernels.tile_grid import TileGrid
from kernels.walk import Walk
from profiler import trace_plan
from profiler.bench import Bench
from profiler.device import cpu_device
from profiler.run import SoftmaxTrace
from profiler.state_trace import exact_prefixes, record_softmax
from profiler.trace_plan import ACC_VALUES, LONGEST_SCORES, SCORE_VALUES, STATE_VALUES, TracePlan, plan_trace
from profiler.workload import CPU, TraceRequest, Workload, workloads

pytestmark = pytest.mark.computes

LN2 = math.log(2)
ROW = AttentionProblem(1, 1, 1, 1, 4, 1, "float32")  # head_dim 1: scores are q · k
TWO_BLOCKS = TileConfig(BLOCK_M=1, BLOCK_N=2)
ONE_ROW = TracePlan(0, 1, acc_tile=0, acc_start=0, acc_stride=1, score_start=0, score_stop=1)


def row_inputs() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """q = 1, k = [0, 0, ln 2, ln 2], v = [1, 2, 3, 4]: the scores are k."""
    k, v = (torch.tensor(values).view(1, 1, 4, 1) for values in ([0.0, 0.0, LN2, LN2], [1.0, 2.0, 3.0, 4.0]))
    return torch.ones(1, 1, 1, 1), k, v


def row_walk() -> RowWalk:
    """Of a row like ROW and a second one, a Q tile each."""
    return RowWalk.whole_rows(TileGrid(replace(ROW, seq_len_q=2), 1, 2), {})


def two_rows() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """row_inputs with the query twice."""
    _, k, v = row_inputs()
    return torch.ones(1, 1, 2, 1), k, v


def unwritten(*shape: int) -> torch.Tensor:
    return torch.full(shape, torch.nan)


@pytest.fixture
def device() -> str:
    """Where the kernel runs; test_kernels_gpu runs some of these tests with another one."""
    return CPU


def walk_of(problem: AttentionProblem, tile: TileConfig) -> Walk:
    walk = all_kernels()["flash"].schedule(problem, tile).walk
    assert walk is not None
    return walk


def recorded(device: str, problem: AttentionProblem, tile: TileConfig, request: TraceRequest) -> SoftmaxTrace:
    workload = Workload("flash", problem, tile, device, trace=request)
    softmax, _ = record_softmax(Bench(workload, cpu_device()))
    return softmax


def test_the_articles_row_by_hand() -> None:
    """m = 0, ln 2; l = 2, then 2 · ½ + 2 = 3; acc = 1 + 2 = 3, then 3 · ½ + 3 + 4 = 8.5; O = 8.5 / 3."""
    m, l, alpha, norm = (unwritten(1, 2) for _ in range(4))  # noqa: E741 - the name in the papers
    acc, scores = unwritten(2, 1, 1), unwritten(1, 4)
    trace = StateTrace(0, 0, 0, 1, m, l, alpha, norm, acc, 0, 0, 1, scores, score_start=0)
    output: Output = all_kernels()["flash"].forward(*row_inputs(), ROW, TWO_BLOCKS, trace=trace)
    expected = {"m": [[0, LN2]], "l": [[2, 3]], "alpha": [[0, 0.5]], "acc_norm": [[3, 8.5]], "acc": [[[3]], [[8.5]]]}
    expected["scores"] = [[0, 0, LN2, LN2]]
    for name, values in expected.items():
        torch.testing.assert_close(getattr(trace, name), torch.tensor(values, dtype=torch.float32), msg=name)
    assert output.o.item() == pytest.approx(8.5 / 3, rel=1e-6)
    assert output.lse is not None and output.lse.item() == pytest.approx(math.log(6), rel=1e-6)


def test_exact_prefixes_of_the_articles_row() -> None:
    m, l, norm = exact_prefixes(row_inputs(), TraceRequest(), ONE_ROW, walk_of(ROW, TWO_BLOCKS))  # noqa: E741
    torch.testing.assert_close(m, torch.tensor([[0, LN2]], dtype=torch.float64), rtol=0, atol=1e-7)  # k is float32
    torch.testing.assert_close(l, torch.tensor([[2, 3]], dtype=torch.float64))
    torch.testing.assert_close(norm, torch.tensor([[3, 8.5]], dtype=torch.float64), rtol=0, atol=1e-6)


def test_exact_prefixes_follow_the_order_of_the_walk() -> None:
    """From the last block to the first: m = ln 2 at once, l = 2, then 2 · 1 + 2 · ½ = 3; acc = 7, then 7 + 1.5."""
    walk = replace(row_walk(), wave=1)
    rows = TracePlan(0, 2, acc_tile=0, acc_start=0, acc_stride=1, score_start=0, score_stop=1)
    m, l, norm = exact_prefixes(two_rows(), TraceRequest(), rows, walk)  # noqa: E741
    for found, forward, backward in ((m, [0, LN2], [LN2, LN2]), (l, [2, 3], [3, 2]), (norm, [3, 8.5], [8.5, 7])):
        expected = torch.tensor([forward, backward], dtype=torch.float64)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)


def test_exact_prefixes_start_afresh_with_every_state() -> None:
    """Two programs share the row, a block each: the second begins with m = ln 2, l = 2 and acc = 7 of its own."""
    grid = TileGrid(ROW, 1, 2)
    walk = RowWalk(grid, np.array([0, 0]), np.array([0, 1]), np.array([1, 2]), {})
    m, l, norm = exact_prefixes(row_inputs(), TraceRequest(), ONE_ROW, walk)  # noqa: E741
    for found, expected in ((m, [[0, LN2]]), (l, [[2, 2]]), (norm, [[3, 7]])):
        torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=0, atol=1e-6)


def test_sawtooth_is_recorded_in_the_order_of_each_program(device: str) -> None:
    """On a CPU every second program goes backwards: row 20, of Q tile 1, meets its causal tiles as 1, 0."""
    problem, tile = AttentionProblem(1, 1, 1, 64, 64, 16, "float32", causal=True), TileConfig(16, 16, order="sawtooth")
    bench = Bench(Workload("flash", problem, tile, device, trace=TraceRequest(row=20)), cpu_device())
    trace, _ = record_softmax(bench)
    walk = bench.schedule.walk
    assert walk is not None
    if device == CPU:
        assert [list(order) for order in walk.states_of(0, 1)] == [[1, 0]]
        assert (trace.acc_start, trace.acc_stride) == (0, 1)
    for name in ("m", "l", "acc_norm"):
        np.testing.assert_allclose(
            getattr(trace, name).numpy(), getattr(trace, f"exact_{name}").numpy(), rtol=5e-5, atol=5e-5, err_msg=name
        )
    m, alpha = trace.m.numpy()[20], trace.alpha.numpy()[20]
    (order,) = (list(tiles) for tiles in walk.states_of(0, 1))
    np.testing.assert_allclose(alpha[order[1]], np.exp(m[order[0]] - m[order[1]]), rtol=1e-5)
    assert alpha[order[0]] == 0, "nothing had been summed"


@pytest.mark.parametrize("order", ["linear", "sawtooth"])
def test_scores_are_those_of_q_and_k(device: str, order: str) -> None:
    """Rows 0 to 20 as asked; −inf behind the diagonal, NaN in tiles that the row's program never visits."""
    problem, tile = AttentionProblem(1, 2, 1, 48, 48, 16, "float32", causal=True), TileConfig(16, 16, order=order)
    bench = Bench(Workload("flash", problem, tile, device, trace=TraceRequest(head=1, row=20)), cpu_device())
    trace, _ = record_softmax(bench)
    assert trace.scores is not None and trace.score_start == 0
    scores = trace.scores.numpy()
    assert scores.shape == (48, 48)
    q, k, _ = (tensor[0].double().cpu().numpy() for tensor in bench.inputs)
    expected = q[1] @ k[0].T / 4
    row, key = np.mgrid[:48, :48]
    expected[key > row] = -np.inf
    expected[key // 16 > row // 16] = np.nan
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("problem", "tile", "request_"),
    [
        (AttentionProblem(1, 1, 1, 63, 63, 16, "float32"), TileConfig(16, 16), TraceRequest()),
        (AttentionProblem(2, 4, 2, 33, 50, 16, "float32", causal=True), TileConfig(16, 16), TraceRequest(1, 3)),
        (AttentionProblem(1, 2, 1, 70, 70, 16, "float16", window=9), TileConfig(32, 16), TraceRequest(0, 1, 40)),
        (AttentionProblem(1, 1, 1, 40, 40, 63, "float16", True, 5), TileConfig(16, 16), TraceRequest(row=3)),
        (AttentionProblem(1, 1, 1, 40, 25, 16, "float32", causal=True), TileConfig(32, 16), TraceRequest(row=20)),
        (AttentionProblem(1, 1, 1, 32, 48, 16, "bfloat16"), TileConfig(16, 16), TraceRequest()),
    ],
    ids=lambda value: value.label if isinstance(value, AttentionProblem) else "",
)
def test_equals_exact_prefixes(
    device: str, problem: AttentionProblem, tile: TileConfig, request_: TraceRequest
) -> None:
    """Rows that have seen nothing keep m = −inf and l = 0; tiles that the mask skips stay NaN."""
    trace = recorded(device, problem, tile, request_)
    assert (trace.batch, trace.head) == (request_.batch, request_.head)
    rows = np.arange(trace.row_start, trace.row_stop)
    assert len(rows) == problem.seq_len_q
    grid = TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    j, q_tile = np.arange(grid.kv_tiles), rows[:, None] // tile.BLOCK_M
    visited = (grid.first[q_tile] <= j) & (j < grid.last[q_tile])
    loose = {"float32": 1e-5, "float16": 2e-3, "bfloat16": 1.5e-2}[problem.dtype]  # P is rounded, m and l are not
    for name, tolerance in (("m", 5e-5), ("l", 5e-5), ("acc_norm", loose)):
        found, exact = getattr(trace, name).numpy(), getattr(trace, f"exact_{name}").numpy()
        assert (np.isnan(found) == ~visited).all(), name
        np.testing.assert_allclose(found, exact, rtol=tolerance, atol=tolerance, err_msg=name)
    m, alpha = trace.m.numpy(), trace.alpha.numpy()
    before = np.concatenate([np.full((len(rows), 1), -np.inf, np.float32), m[:, :-1]], axis=1)
    before = np.where(np.isnan(before), -np.inf, before)
    expected = np.exp(before - np.where(np.isneginf(m), 0, m))
    np.testing.assert_allclose(alpha, np.where(visited, expected, np.nan), rtol=1e-4, atol=1e-5)


def test_acc_is_the_chosen_q_tile_and_its_norms_agree(device: str) -> None:
    problem, tile = AttentionProblem(1, 1, 1, 40, 64, 16, "float32"), TileConfig(16, 16)
    trace = recorded(device, problem, tile, TraceRequest(row=37))
    assert (trace.acc_tile, trace.acc_stride) == (2, 1)
    acc = trace.acc.numpy()
    assert acc.shape == (4, 8, 16)  # the last Q tile has 8 rows
    np.testing.assert_allclose(np.linalg.norm(acc, axis=2).T, trace.acc_norm.numpy()[32:40], rtol=1e-5)
    q, k, v = Bench(Workload("flash", problem, tile, device), cpu_device()).inputs
    p = torch.softmax(q[0, 0].double() @ k[0, 0].double().T / 4, -1) @ v[0, 0].double()
    np.testing.assert_allclose(acc[-1] / trace.l.numpy()[32:40, -1:], p[32:40].cpu().numpy(), rtol=1e-4, atol=1e-5)


def test_the_acc_that_becomes_o_is_always_kept(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Row 20 lies in Q tile 1, whose causal program ends with KV tile 1 of 4; room for two steps keeps 1 and 3."""
    monkeypatch.setattr(trace_plan, "ACC_VALUES", 2 * 16 * 16)
    problem, tile = AttentionProblem(1, 1, 1, 64, 64, 16, "float32", causal=True), TileConfig(16, 16)
    bench = Bench(Workload("flash", problem, tile, device, trace=TraceRequest(row=20)), cpu_device())
    trace, output = record_softmax(bench)
    assert (trace.acc_tile, trace.acc_start, trace.acc_stride) == (1, 1, 2)
    acc = trace.acc.numpy()
    assert np.isnan(acc[1]).all(), "KV tile 3 is skipped"
    np.testing.assert_allclose(acc[0] / trace.l.numpy()[16:32, 1:2], output.o[0, 0, 16:32].cpu().numpy(), rtol=1e-5)


def test_tracing_changes_neither_output_nor_other_heads() -> None:
    problem, tile = AttentionProblem(1, 2, 2, 33, 33, 16, causal=True), TileConfig(16, 16)
    bench = Bench(Workload("flash", problem, tile, trace=TraceRequest(head=1)), cpu_device())
    _, traced = record_softmax(bench)
    plain = bench.launch()
    assert traced.o.equal(plain.o) and traced.lse is not None and plain.lse is not None
    assert traced.lse.equal(plain.lse)


def planned(problem: AttentionProblem, tile: TileConfig, request_: TraceRequest) -> TracePlan:
    return plan_trace(problem, tile, request_, all_kernels()["flash"].schedule(problem, tile))


@pytest.mark.parametrize(
    ("problem", "tile", "row", "plan"),
    [
        (
            AttentionProblem(seq_len_q=100, seq_len_kv=100, head_dim=64),
            TileConfig(16, 16),
            None,
            (0, 100, 6, 0, 1, 0, 100),
        ),
        # 8192 / 64 = 128 KV tiles leave 128 rows; 128 · 128 values of acc leave 4 steps of 128.
        (AttentionProblem(1, 1, 1, 8192, 8192, 128), TileConfig(128, 64), None, (8064, 8192, 63, 31, 32, 8190, 8192)),
        (AttentionProblem(1, 1, 1, 8192, 8192, 128), TileConfig(128, 64), 0, (0, 128, 0, 31, 32, 0, 2)),
        (AttentionProblem(1, 1, 1, 8192, 8192, 128), TileConfig(128, 64), 4100, (4096, 4224, 32, 31, 32, 4099, 4101)),
        # 4096 KV tiles leave 4 rows of a tile of 128: those that end with the asked one.
        (
            AttentionProblem(1, 1, 1, 65536, 65536, 64),
            TileConfig(128, 16),
            65535,
            (65532, 65536, 511, 511, 512, 65535, 65536),
        ),
        # Above 131,072 keys no scores are kept; the state still is.
        (AttentionProblem(1, 1, 1, 16, 2**18, 64), TileConfig(16, 64), 7, (4, 8, 0, 63, 64, 8, 8)),
    ],
)
def test_plan(problem: AttentionProblem, tile: TileConfig, row: int | None, plan: tuple[int, ...]) -> None:
    found = planned(problem, tile, TraceRequest(row=row))
    assert found == TracePlan(*plan)
    kv_tiles = -(-problem.seq_len_kv // tile.BLOCK_N)
    assert found.row_start <= (problem.seq_len_q - 1 if row is None else row) < found.row_stop
    assert (found.row_stop - found.row_start) * kv_tiles <= STATE_VALUES
    assert -(-kv_tiles // found.acc_stride) * tile.BLOCK_M * problem.head_dim <= ACC_VALUES
    scores = (found.score_stop - found.score_start) * problem.seq_len_kv
    assert scores <= (SCORE_VALUES if found.score_stop - found.score_start > 1 else LONGEST_SCORES)
    assert found.row_start <= found.score_start <= found.score_stop <= found.row_stop


def test_a_row_too_long_to_record_is_refused() -> None:
    problem = AttentionProblem(1, 1, 1, 1, 2**20, 16)
    with pytest.raises(
        Refused, match=r"^One row has 65,536 KV tiles to record, above 16,384; choose a larger BLOCK_N\."
    ):
        planned(problem, TileConfig(16, 16), TraceRequest())


@pytest.mark.parametrize("name", [kernel.name for kernel in all_kernels().values() if kernel.has_trace])
@pytest.mark.parametrize(
    ("problem", "head"),
    [
        (AttentionProblem(1, 2, 1, 20, 100, 16, "float32", causal=True), 1),
        (AttentionProblem(1, 18, 1, 1, 100, 16, "float32", causal=True), 17),  # a row of a second Q tile, if packed
    ],
    ids=["queries", "decode"],
)
def test_every_kernel_that_records_writes_exact_states_whose_merge_is_the_row(
    device: str, name: str, problem: AttentionProblem, head: int
) -> None:
    """m, l and |acc| after every tile of every state; and the states' m and l joined give the LSE of the reference."""
    (workload,) = workloads((name,), problem, TileConfig(16, 16, num_stages=1), device, trace=TraceRequest(head=head))
    bench = Bench(workload, cpu_device())
    trace, _ = record_softmax(bench)
    walk = bench.schedule.walk
    assert walk is not None
    recording = Recording(trace, walk)
    for quantity in ("m", "l", "acc_norm"):
        found, exact = (getattr(trace, prefix + quantity).numpy() for prefix in ("", "exact_"))
        np.testing.assert_allclose(found, exact, rtol=5e-5, atol=5e-5, err_msg=quantity)
    assert (np.isfinite(trace.m.numpy()) == (recording.place >= 0)).all(), "every visited tile, and no other"
    m, l = recording.totals(exact=False)  # noqa: E741
    _, lse = reference(*bench.inputs, problem)
    np.testing.assert_allclose(m + np.log(l), lse[0, head].cpu().numpy(), rtol=1e-5)
