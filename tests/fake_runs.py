"""Runs made by hand for tests: figures of an H200 from the facts sheet, and a softmax state computed in numpy."""

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kernels.base import all_kernels
from kernels.problem import AttentionProblem, TileConfig
from kernels.tile_grid import TileGrid
from profiler.codec import PackedArray
from profiler.run import DeviceInfo, LaunchSpan, Measurement, ProgramTrace, Run, Series, SoftmaxTrace
from profiler.workload import CPU, TraceRequest, Workload

PROBLEM = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
TILE = TileConfig(128, 64, num_warps=8, num_stages=3)
SMALL = AttentionProblem(1, 2, 2, 64, 64, 16, "float32", causal=True)
SMALL_TILE = TileConfig(16, 16)
NO_COUNTERS = "A CPU has no HBM counters; run on a GPU or open a recorded H200 run."

H200 = DeviceInfo(
    "cuda:0",
    "NVIDIA H200",
    memory_bytes=150_000_000_000,
    compute_capability=(9, 0),
    sm_count=132,
    l2_bytes=60 * 2**20,
    shared_memory_per_block=227 * 2**10,
    peak_hbm_bytes_per_second=4.814e12,
    peak_hbm_source="NVML: 2 × 3201 MHz × 6016 bit",
    peak_flops_per_second=989e12,
    peak_flops_source="datasheet",
    driver="580.159.04",
)
THIS_CPU = DeviceInfo(CPU, "Two-core CPU")
ENVIRONMENT = {"torch": "2.11.0+cu130", "triton": "3.6.0", "python": "3.12.3"}

# GB read, GB written, ms
NAIVE_LAUNCHES = {
    "qk": (0.105, 2.118, 0.65),
    "scale": (2.148, 2.121, 0.97),
    "softmax": (2.147, 2.127, 4.1),
    "pv": (2.209, 0.028, 0.68),
}


def naive_run(problem: AttentionProblem = PROBLEM, run_id: str = "fake-naive") -> Run:
    """Naive on an H200 with counters for the whole run and for each launch, and a GPM estimate beside them."""
    launches = [
        measurement
        for name, (read, write, ms) in NAIVE_LAUNCHES.items()
        for measurement in (
            Measurement("hbm_read_bytes", read * 1e9, "B", "cupti-range", launch=name),
            Measurement("hbm_write_bytes", write * 1e9, "B", "cupti-range", launch=name),
            Measurement("gpu_time_seconds", ms * 1e-3, "s", "cupti-range", launch=name),
        )
    ]
    return Run(
        run_id,
        "fake-request",
        "2026-11-29T12:00:00Z",
        Workload("naive", problem, None, "cuda:0", trace=None),
        H200,
        ENVIRONMENT,
        (*_requested("naive", problem, TILE), *_totals(6.610e9, 6.480e9, 15.5e9, 6.4e-3, 13.00e9, 4.43e9), *launches),
    )


def flash_run(problem: AttentionProblem = PROBLEM, tile: TileConfig = TILE, run_id: str = "fake-flash") -> Run:
    """Flash on an H200 with counters, the softmax state of its last 256 rows and a timeline of equal programs."""
    grid = TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    return Run(
        run_id,
        "fake-request",
        "2026-11-29T12:00:01Z",
        Workload("flash", problem, tile, "cuda:0", trace=TraceRequest()),
        H200,
        ENVIRONMENT,
        (*_requested("flash", problem, tile), *_totals(0.101e9, 0.034e9, 2.73e9, 1.28e-3, 0.1345e9, 0.147e9)),
        softmax=softmax_trace(problem, tile, max(0, problem.seq_len_q - 256), problem.seq_len_q),
        timeline=timeline(problem.batch * problem.heads * grid.q_tiles, sms=132, program_ns=160_000),
    )


def cpu_run(problem: AttentionProblem = SMALL, tile: TileConfig = SMALL_TILE, run_id: str = "fake-cpu") -> Run:
    """Flash through the interpreter: requested bytes as traced, no HBM bytes and the reason why."""
    modelled = _requested("flash", problem, tile)
    traced = [replace(m, source="interpreter") for m in modelled if m.name.startswith("requested")]
    return Run(
        run_id,
        "fake-cpu-request",
        "2026-11-29T12:00:02Z",
        Workload("flash", problem, tile, CPU, trace=TraceRequest()),
        THIS_CPU,
        ENVIRONMENT,
        (
            *modelled,
            *traced,
            Measurement("l2_sm_bytes", None, "B", "cupti-range", NO_COUNTERS),
            Measurement("hbm_read_bytes", None, "B", "cupti-range", NO_COUNTERS),
            Measurement("hbm_write_bytes", None, "B", "cupti-range", NO_COUNTERS),
            Measurement("relative_error", 2.1e-7, "1", "torch"),
        ),
        softmax=softmax_trace(problem, tile, 0, problem.seq_len_q),
    )


def _requested(kernel: str, problem: AttentionProblem, tile: TileConfig) -> tuple[Measurement, ...]:
    schedule = all_kernels()[kernel].schedule(problem, tile)
    return (
        Measurement("flops", problem.flops, "FLOP", "model"),
        Measurement("compulsory_bytes", problem.compulsory_bytes, "B", "model"),
        Measurement("requested_read_bytes", schedule.requested_read_bytes, "B", "schedule"),
        Measurement("requested_write_bytes", schedule.requested_write_bytes, "B", "schedule"),
        *(
            Measurement(f"requested_{direction}_bytes", sum(part.values()), "B", "schedule", launch=launch.name)
            for launch in schedule.launches
            if len(schedule.launches) > 1
            for direction, part in (("read", launch.reads), ("write", launch.writes))
        ),
    )


def _totals(
    read: float, write: float, l2_sm: float, time: float, gpm: float, peak_memory: float
) -> tuple[Measurement, ...]:
    return (
        Measurement("hbm_read_bytes", read, "B", "cupti-range", "cold L2, one pass"),
        Measurement("hbm_write_bytes", write, "B", "cupti-range", "cold L2, one pass"),
        Measurement("l2_sm_bytes", l2_sm, "B", "cupti-range"),
        Measurement("hbm_bytes", gpm, "B", "nvml-gpm", "estimate: utilisation × peak × time, no split"),
        Measurement("gpu_time_seconds", time, "s", "cuda-event", spread=(time * 0.99, time * 1.01)),
        Measurement("peak_allocated_bytes", peak_memory, "B", "torch"),
        Measurement("relative_error", 2.3e-3, "1", "torch"),
    )


def timeline(programs: int, sms: int, program_ns: int) -> ProgramTrace:
    """Programs of equal length, dealt to the SMs in turn, one at a time on each."""
    index = np.arange(programs)
    start = index // sms * program_ns
    return ProgramTrace(
        "flash",
        PackedArray.pack((index % sms).astype(np.int32)),
        PackedArray.pack(start.astype(np.int64)),
        PackedArray.pack((start + program_ns - 320).astype(np.int64)),
        32,
    )


@cache
def softmax_trace(problem: AttentionProblem, tile: TileConfig, row_start: int, row_stop: int) -> SoftmaxTrace:
    """The online softmax of random q, k, v in float32 beside the same recurrence in float64, head 0 of batch 0."""
    trace = TraceRequest()
    draw = np.random.default_rng(0)
    rows, head_dim = row_stop - row_start, problem.head_dim
    q = draw.standard_normal((rows, head_dim))
    k, v = draw.standard_normal((2, problem.seq_len_kv, head_dim))
    acc_tile = (problem.seq_len_q - 1) // tile.BLOCK_M
    state, accs = _recurrence(problem, tile, row_start, q, k, v, np.float32)
    exact, _ = _recurrence(problem, tile, row_start, q, k, v, np.float64)
    stride = max(1, len(accs) // 8)
    start = (len(accs) - 1) % stride  # so that the last is kept
    acc = np.stack(accs[start::stride])[:, max(0, acc_tile * tile.BLOCK_M - row_start) :]
    m, l, alpha, norm = (PackedArray.pack(part.astype(np.float32)) for part in state)  # noqa: E741
    exact_m, exact_l, _, exact_norm = (PackedArray.pack(part.astype(np.float32)) for part in exact)
    where = (trace.batch, trace.head, row_start, row_stop, tile.BLOCK_N)
    packed = (m, l, alpha, norm, exact_m, exact_l, exact_norm, PackedArray.pack(acc.astype(np.float32)))
    return SoftmaxTrace(*where, *packed, acc_tile, start, stride)


def _recurrence(
    problem: AttentionProblem,
    tile: TileConfig,
    row_start: int,
    q: NDArray[np.float64],
    k: NDArray[np.float64],
    v: NDArray[np.float64],
    dtype: type[np.floating],
) -> tuple[NDArray[np.floating], list[NDArray[np.floating]]]:
    """([m, l, alpha, |acc|] stacked [4, rows, kv_tiles], acc after every tile); NaN where the mask skips the tile."""
    grid = TileGrid(problem, tile.BLOCK_M, tile.BLOCK_N)
    rows = len(q)
    lo, hi = problem.visible_keys(row_start, row_start + rows)
    q_tile = np.arange(row_start, row_start + rows) // tile.BLOCK_M
    state = np.full((4, rows, grid.kv_tiles), np.nan, dtype)
    m, l, acc = np.full(rows, -np.inf, dtype), np.zeros(rows, dtype), np.zeros((rows, problem.head_dim), dtype)  # noqa: E741
    accs = []
    for j in range(grid.kv_tiles):
        keys = np.arange(j * tile.BLOCK_N, min((j + 1) * tile.BLOCK_N, problem.seq_len_kv))
        scores = (q.astype(dtype) @ k[keys].T.astype(dtype)) * dtype(problem.sm_scale)
        scores = np.where((keys >= lo[:, None]) & (keys < hi[:, None]), scores, -np.inf).astype(dtype)
        visited = (grid.first[q_tile] <= j) & (j < grid.last[q_tile])
        m_new = np.where(visited, np.maximum(m, scores.max(1)), m)
        shift = np.where(np.isinf(m_new), 0, m_new)
        alpha = np.exp(m - shift)
        p = np.where(visited[:, None], np.exp(scores - shift[:, None]), 0)
        l = np.where(visited, l * alpha + p.sum(1), l)  # noqa: E741
        acc = np.where(visited[:, None], acc * alpha[:, None] + p.astype(dtype) @ v[keys].astype(dtype), acc)
        m = m_new
        for slot, value in enumerate((m, l, alpha, np.linalg.norm(acc, axis=1))):
            state[slot, visited, j] = value[visited]
        accs.append(np.where(visited[:, None], acc, np.nan))
    return state, accs


INTERVAL = 20e-6
LEAD, TAIL = 0.4e-3, 0.2e-3  # s idle before the first launch, and after the drain
DRAIN_READ = 2 * 60 * 2**20 / 1e9  # GB: the scratch buffer of an H200
# GB read, GB written, GB between L2 and the SMs, ms: of each launch, of the pause after them and of the drain
NAIVE_SPANS = {
    "qk": (0.105, 2.118, 4.3, 0.65),
    "scale": (2.148, 2.121, 4.3, 0.97),
    "softmax": (2.147, 2.127, 4.3, 4.1),
    "pv": (2.210, 0.028, 2.6, 0.68),
    "": (0.0, 0.0, 0.0, 0.5),
    "drain": (DRAIN_READ, 0.086, DRAIN_READ, 0.06),
}
FLASH_SPANS = {
    "flash": (0.101, 0.006, 2.73, 1.28),
    "": (0.0, 0.0, 0.0, 0.5),
    "drain": (DRAIN_READ, 0.028, DRAIN_READ, 0.06),
}


def sampled_naive_run() -> Run:
    """naive_run with its bandwidths over time: 6.610 GB read by the launches, 6.480 GB written with the drain."""
    return _sampled(naive_run(run_id="fake-sampled-naive"), NAIVE_SPANS)


def sampled_flash_run() -> Run:
    """flash_run with its bandwidths over time: 0.101 GB read by the launch, 0.034 GB written with the drain."""
    return _sampled(flash_run(run_id="fake-sampled-flash"), FLASH_SPANS)


def _sampled(run: Run, moved: dict[str, tuple[float, float, float, float]]) -> Run:
    """Each launch moves its bytes evenly, up to noise that shifts bytes between neighbouring samples only."""
    ends = LEAD + np.cumsum([0.0, *(ms * 1e-3 for *_, ms in moved.values())])
    edges = np.arange(round((ends[-1] + TAIL) / INTERVAL) + 1) * INTERVAL
    noise = np.random.default_rng(8192).normal(0, 0.03, (3, len(edges)))
    noise[:, (edges < LEAD + INTERVAL) | (edges > ends[-1] - INTERVAL)] = 0
    series = []
    for index, name in enumerate(("hbm_read", "hbm_write", "l2_sm")):
        sizes = [part[index] * 1e9 for part in moved.values()]
        so_far = np.interp(edges, ends, np.cumsum([0.0, *sizes]))
        # The slower of both sides of an edge gives way, so that no bandwidth falls below zero.
        steps = np.diff(so_far)
        slack = np.minimum(np.append(0.0, steps), np.append(steps, 0.0))
        values = np.diff(so_far + noise[index] * slack) / INTERVAL
        seconds = tuple(edges[:-1].tolist())
        series.append(
            Series(f"{name}_bytes_per_second", "B/s", "cupti-sampling", seconds, tuple(values.tolist()), INTERVAL)
        )
    spans = [LaunchSpan(*part) for part in zip(moved, ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    return replace(run, series=tuple(series), spans=tuple(span for span in spans if span.launch))
