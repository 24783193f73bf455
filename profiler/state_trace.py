"""The softmax state of a running kernel, and each program's SM and clock, recorded into a Run's plain arrays."""

from dataclasses import dataclass

import numpy as np
import torch

from kernels.problem import AttentionProblem, Refused, TileConfig
from kernels.reference import score_chunks
from kernels.run import Output, StateTrace, Timeline
from kernels.schedule import TileGrid
from profiler.bench import Bench
from profiler.codec import PackedArray
from profiler.run import ProgramTrace, SoftmaxTrace
from profiler.workload import TraceRequest

STATE_VALUES = 2**15  # rows × KV tiles kept of each quantity
ACC_VALUES = 2**17  # values of acc kept
MAX_TIMED_PROGRAMS = 2**16


@dataclass(frozen=True)
class TracePlan:
    """Which rows and which steps of acc are recorded, so that a Run's file stays small."""

    row_start: int
    row_stop: int
    acc_tile: int
    acc_start: int
    acc_stride: int


def plan_trace(problem: AttentionProblem, tile: TileConfig, request: TraceRequest) -> TracePlan:
    """All rows where they fit, else as many as fit from the start of the asked row's Q tile. Raises Refused."""
    kv_tiles = -(-problem.seq_len_kv // tile.BLOCK_N)
    if kv_tiles > STATE_VALUES:
        raise Refused(f"One row has {kv_tiles:,} KV tiles to record, above {STATE_VALUES:,}; choose a larger BLOCK_N.")
    row = problem.seq_len_q - 1 if request.row is None else request.row
    acc_tile = row // tile.BLOCK_M
    count = min(problem.seq_len_q, STATE_VALUES // kv_tiles)
    start = max(acc_tile * tile.BLOCK_M, row - count + 1)
    start = min(start, problem.seq_len_q - count)
    steps = max(1, ACC_VALUES // (tile.BLOCK_M * problem.head_dim))
    stride = -(-kv_tiles // steps)
    # Counted back from the last tile, so that the acc which becomes O is among the kept ones.
    last = max(0, int(TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N).last[acc_tile]) - 1)
    return TracePlan(start, start + count, acc_tile, last % stride, stride)


def record_softmax(bench: Bench) -> tuple[SoftmaxTrace, Output]:
    """One traced launch: the state after every KV tile beside its exact prefix values, and the launch's output."""
    workload = bench.workload
    request, tile = workload.trace, workload.tile
    if request is None or tile is None:
        raise ValueError("This Workload asks for no trace.")
    problem = workload.problem
    plan = plan_trace(problem, tile, request)
    kv_tiles = -(-problem.seq_len_kv // tile.BLOCK_N)
    shape = (plan.row_stop - plan.row_start, kv_tiles)
    acc_shape = (-(-kv_tiles // plan.acc_stride), tile.BLOCK_M, problem.head_dim)
    trace = StateTrace(
        batch=request.batch,
        head=request.head,
        row_start=plan.row_start,
        row_stop=plan.row_stop,
        m=_unwritten(shape, workload.device),
        l=_unwritten(shape, workload.device),
        alpha=_unwritten(shape, workload.device),
        acc_norm=_unwritten(shape, workload.device),
        acc=_unwritten(acc_shape, workload.device),
        acc_tile=plan.acc_tile,
        acc_start=plan.acc_start,
        acc_stride=plan.acc_stride,
    )
    output = bench.launch(trace=trace)
    bench.synchronize()
    m, l, acc_norm = exact_prefixes(bench.inputs, problem, tile, request, plan)  # noqa: E741
    acc_rows = min(tile.BLOCK_M, problem.seq_len_q - plan.acc_tile * tile.BLOCK_M)
    softmax = SoftmaxTrace(
        batch=request.batch,
        head=request.head,
        row_start=plan.row_start,
        row_stop=plan.row_stop,
        BLOCK_N=tile.BLOCK_N,
        m=_pack(trace.m),
        l=_pack(trace.l),
        alpha=_pack(trace.alpha),
        acc_norm=_pack(trace.acc_norm),
        exact_m=_pack(m),
        exact_l=_pack(l),
        exact_acc_norm=_pack(acc_norm),
        acc=_pack(trace.acc[:, :acc_rows]),
        acc_tile=plan.acc_tile,
        acc_start=plan.acc_start,
        acc_stride=plan.acc_stride,
    )
    return softmax, output


def exact_prefixes(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    problem: AttentionProblem,
    tile: TileConfig,
    request: TraceRequest,
    plan: TracePlan,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """m, l and |acc| [rows, kv_tiles] over the keys up to the end of each KV tile, in float64 from the definition.

    NaN where the row's program skips the tile.
    """
    q, k, v = inputs
    kv_head = request.head // problem.group
    k64, v64 = (t[request.batch, kv_head].double() for t in (k, v))
    rows = torch.arange(plan.row_start, plan.row_stop, device=q.device)
    scores = torch.cat([s for _, s in score_chunks(q[request.batch, request.head], k64, problem, rows)])
    kv_tiles = -(-problem.seq_len_kv // tile.BLOCK_N)
    padding = kv_tiles * tile.BLOCK_N - problem.seq_len_kv
    scores = torch.nn.functional.pad(scores, (0, padding), value=-torch.inf).unflatten(1, (kv_tiles, tile.BLOCK_N))
    m = scores.amax(-1).cummax(1).values
    shift = m.masked_fill(m == -torch.inf, 0.0)
    l = (torch.logsumexp(scores, -1).logcumsumexp(1) - shift).exp()  # noqa: E741 - the name in the papers
    v_tiles = torch.nn.functional.pad(v64, (0, 0, 0, padding)).unflatten(0, (kv_tiles, tile.BLOCK_N))
    acc = torch.zeros(len(rows), problem.head_dim, dtype=torch.float64, device=q.device)
    norms = torch.empty_like(m)
    for j in range(kv_tiles):
        if j:
            acc = acc * (m[:, j - 1] - shift[:, j]).exp()[:, None]
        acc = acc + (scores[:, j] - shift[:, j, None]).exp() @ v_tiles[j]
        norms[:, j] = acc.norm(dim=1)
    grid = TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    q_tile = np.arange(plan.row_start, plan.row_stop) // tile.BLOCK_M
    j_all = np.arange(kv_tiles)
    visited = (j_all >= grid.first[q_tile, None]) & (j_all < grid.last[q_tile, None])
    skipped = torch.from_numpy(~visited).to(q.device)
    return tuple(t.masked_fill(skipped, torch.nan) for t in (m, l, norms))  # type: ignore[return-value]


def record_timeline(bench: Bench) -> ProgramTrace | None:
    """One launch that notes each program's SM, start and end; None where there are too many programs to keep."""
    workload = bench.workload
    tiles = bench.schedule.tiles
    if tiles is None or tiles.programs > MAX_TIMED_PROGRAMS:
        return None
    sm = torch.full((tiles.programs,), -1, dtype=torch.int32, device=workload.device)
    start, end = (torch.zeros(tiles.programs, dtype=torch.int64, device=workload.device) for _ in range(2))
    timeline = Timeline(sm, start, end)
    bench.launch(timeline=timeline)  # compiles
    bench.prepare_l2()
    bench.launch(timeline=timeline)
    bench.synchronize()
    begun, ended = start.cpu().numpy(), end.cpu().numpy()
    origin = begun.min()
    ticks = np.concatenate([begun - origin, ended - origin])
    return ProgramTrace(
        launch=bench.schedule.launches[0].name,
        sm=PackedArray.pack(sm.cpu().numpy()),
        start_ns=PackedArray.pack(begun - origin),
        end_ns=PackedArray.pack(ended - origin),
        timer_step_ns=int(np.gcd.reduce(ticks)),
    )


def _unwritten(shape: tuple[int, ...], device: str) -> torch.Tensor:
    return torch.full(shape, torch.nan, dtype=torch.float32, device=device)


def _pack(tensor: torch.Tensor) -> PackedArray:
    return PackedArray.pack(tensor.float().cpu().numpy())
