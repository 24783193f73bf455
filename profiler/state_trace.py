"""The softmax state of a running kernel, and each program's SM and clock, recorded into a Run's plain arrays."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import torch

from kernels.reference import score_chunks
from kernels.run import Output, StateTrace, Timeline
from kernels.tile_grid import TileGrid
from kernels.walk import Walk
from profiler.bench import Bench
from profiler.codec import PackedArray
from profiler.run import ProgramTrace, SoftmaxTrace
from profiler.tile_trace import AccessTrace
from profiler.trace_plan import MAX_TIMED_PROGRAMS, TracePlan, plan_trace
from profiler.workload import TraceRequest


def record_softmax(bench: Bench, accesses: AccessTrace | None = None) -> tuple[SoftmaxTrace, Output]:
    """One traced launch: the state after every KV tile beside its exact prefix values, and the launch's output.

    `accesses` are left without those that write the trace.
    """
    workload = bench.workload
    request, tile, walk = workload.trace, workload.tile, bench.schedule.walk
    if request is None or tile is None or walk is None:
        raise ValueError("This Workload asks for no trace.")
    problem, grid = workload.problem, walk.grid
    plan = plan_trace(problem, tile, request, bench.schedule)
    kv_tiles = -(-problem.seq_len_kv // tile.BLOCK_N)
    shape = (plan.row_stop - plan.row_start, kv_tiles)
    acc_shape = (-(-kv_tiles // plan.acc_stride), tile.BLOCK_M, problem.head_dim)
    batch, head = divmod(_head_of(walk, request), grid.problem.heads)
    trace = StateTrace(
        batch=batch,
        head=head,
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
        scores=_unwritten((plan.score_stop - plan.score_start, problem.seq_len_kv), workload.device),
        score_start=plan.score_start,
    )
    if accesses is not None:
        accesses.leave_out(trace.m, trace.l, trace.alpha, trace.acc_norm, trace.acc, trace.scores)
    output = bench.launch(trace=trace)
    bench.synchronize()
    m, l, acc_norm = exact_prefixes(bench.inputs, request, plan, walk)  # noqa: E741
    kept, acc_rows = _in_queries(plan, grid)
    softmax = SoftmaxTrace(
        batch=request.batch,
        head=request.head,
        row_start=kept.row_start,
        row_stop=kept.row_stop,
        BLOCK_N=tile.BLOCK_N,
        m=_pack(trace.m),
        l=_pack(trace.l),
        alpha=_pack(trace.alpha),
        acc_norm=_pack(trace.acc_norm),
        exact_m=_pack(m),
        exact_l=_pack(l),
        exact_acc_norm=_pack(acc_norm),
        acc=_pack(trace.acc[:, acc_rows]),
        acc_tile=kept.acc_tile,
        acc_start=plan.acc_start,
        acc_stride=plan.acc_stride,
        scores=_pack(trace.scores) if len(trace.scores) else None,
        score_start=kept.score_start,
    )
    return softmax, output


def _in_queries(plan: TracePlan, grid: TileGrid) -> tuple[TracePlan, slice]:
    """The plan in queries of the asked head, as a Run names them, and which rows of the recorded acc are theirs."""
    if grid.packs == 1:
        return plan, slice(0, int(grid.q_rows(plan.acc_tile)))
    # Of the rows one alone is the asked head's, whose one query it is.
    first, scores = plan.row_start % grid.BLOCK_M, plan.score_stop - plan.score_start
    queries = replace(plan, row_start=0, row_stop=1, acc_tile=0, score_start=0, score_stop=scores)
    return queries, slice(first, first + 1)


def exact_prefixes(
    inputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor], request: TraceRequest, plan: TracePlan, walk: Walk
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """m, l and |acc| [rows, kv_tiles] in float64 from the definition, over the keys that each state has met so far.

    These are the keys from the first tile of the state, in the order of the walk, to the tile at hand. NaN where the
    row's program skips the tile.
    """
    grid, problem = walk.grid, walk.grid.problem
    q, k, v = inputs
    kv_head = request.head // (problem.group * grid.packs)
    k64, v64 = (t[request.batch, kv_head].double() for t in (k, v))
    kept, _ = _in_queries(plan, grid)
    rows = torch.arange(kept.row_start, kept.row_stop, device=q.device)
    scores = torch.cat([s for _, s in score_chunks(q[request.batch, request.head], k64, problem, rows)])
    padding = grid.kv_tiles * grid.BLOCK_N - problem.seq_len_kv
    scores = torch.nn.functional.pad(scores, (0, padding), value=-torch.inf).unflatten(1, (grid.kv_tiles, -1))
    v_tiles = torch.nn.functional.pad(v64, (0, 0, 0, padding)).unflatten(0, (grid.kv_tiles, -1))
    found = torch.full((3, len(rows), grid.kv_tiles), torch.nan, dtype=torch.float64, device=q.device)
    for part, order in _states(walk, _head_of(walk, request), plan):
        tiles = torch.tensor(order, device=q.device)
        values = _prefixes(scores[part][:, tiles], v_tiles[tiles])
        found[:, part, tiles] = values
    return found[0], found[1], found[2]


def _states(walk: Walk, batch_head: int, plan: TracePlan) -> Iterator[tuple[slice, list[int]]]:
    """(recorded rows, KV tiles in order) of every running state; alike neighbours together."""
    block, start, stop = walk.grid.BLOCK_M, plan.row_start, plan.row_stop
    begun, alike = start, walk.states_of(batch_head, start // block)
    for edge in [*range((start // block + 1) * block, stop, block), stop]:
        orders = walk.states_of(batch_head, edge // block) if edge < stop else ()
        if orders != alike or edge == stop:
            for order in alike:
                if len(order):
                    yield slice(begun - start, edge - start), list(order)
            begun, alike = edge, orders


def _prefixes(scores: torch.Tensor, v_tiles: torch.Tensor) -> torch.Tensor:
    """m, l and |acc|, stacked [3, rows, tiles], after each tile of scores [rows, tiles, BLOCK_N]."""
    m = scores.amax(-1).cummax(1).values
    shift = m.masked_fill(m == -torch.inf, 0.0)
    l = (torch.logsumexp(scores, -1).logcumsumexp(1) - shift).exp()  # noqa: E741 - the name in the papers
    acc = torch.zeros(len(scores), v_tiles.shape[-1], dtype=torch.float64, device=scores.device)
    norms = torch.empty_like(m)
    for j in range(scores.shape[1]):
        if j:
            acc = acc * (m[:, j - 1] - shift[:, j]).exp()[:, None]
        acc = acc + (scores[:, j] - shift[:, j, None]).exp() @ v_tiles[j]
        norms[:, j] = acc.norm(dim=1)
    return torch.stack([m, l, norms])


def _head_of(walk: Walk, request: TraceRequest) -> int:
    """The (batch, head) of the walk, as one number, among whose rows the asked head's are."""
    return walk.grid.place_of(request.batch, request.head, 0)[0]


def record_timeline(bench: Bench) -> ProgramTrace | None:
    """One launch that notes each program's SM, start and end; None where there are too many programs to keep."""
    workload = bench.workload
    main = bench.schedule.main
    if main is None or main.walk is None or main.walk.total_programs > MAX_TIMED_PROGRAMS:
        return None
    programs = main.walk.total_programs
    sm = torch.full((programs,), -1, dtype=torch.int32, device=workload.device)
    start, end = (torch.zeros(programs, dtype=torch.int64, device=workload.device) for _ in range(2))
    timeline = Timeline(sm, start, end)
    bench.launch(timeline=timeline)  # compiles
    bench.prepare_l2()
    bench.launch(timeline=timeline)
    bench.synchronize()
    begun, ended = start.cpu().numpy(), end.cpu().numpy()
    origin = begun.min()
    ticks = np.concatenate([begun - origin, ended - origin])
    return ProgramTrace(
        launch=main.name,
        sm=PackedArray.pack(sm.cpu().numpy()),
        start_ns=PackedArray.pack(begun - origin),
        end_ns=PackedArray.pack(ended - origin),
        timer_step_ns=int(np.gcd.reduce(ticks)),
    )


def _unwritten(shape: tuple[int, ...], device: str) -> torch.Tensor:
    return torch.full(shape, torch.nan, dtype=torch.float32, device=device)


def _pack(tensor: torch.Tensor) -> PackedArray:
    return PackedArray.pack(tensor.float().cpu().numpy())
