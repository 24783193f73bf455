"""The kernels, their traces and the worker on a real GPU: `python -m pytest -m gpu`."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from kernels.base import AttentionKernel, all_kernels
from kernels.problem import ELEMENT_BYTES, AttentionProblem, Refused, TileConfig
from kernels.run import Output
from profiler.bench import Bench
from profiler.child import admit_all, describe
from profiler.run import Run
from profiler.state_trace import record_timeline
from profiler.store import load
from profiler.trace_plan import MAX_TIMED_PROGRAMS
from profiler.worker import Worker, worker_for
from profiler.workload import Workload, workloads
from tests.attention_cases import T64, check, draw, in_every_dtype, takers
from tests.faults import break_flash, mend_flash
from tests.test_kernels import (  # noqa: F401 - collected here once more, with this module's device
    FLASH,
    test_a_nan_without_a_mask_reaches_every_query,
    test_a_strided_head_dim_is_refused_by_name,
    test_causal_is_aligned_bottom_right,
    test_enormous_equal_inputs,
    test_equals_float64,
    test_every_ragged_tail,
    test_first_tile_hidden_then_only_negative_scores,
    test_float32_means_ieee_float32,
    test_hidden_values_never_touch_the_result,
    test_launches_are_named_as_in_the_schedule,
    test_logits_far_below_any_finite_minus_infinity,
    test_one_nan_spoils_only_the_queries_that_see_it,
    test_strided_views_of_one_fused_tensor,
)
from tests.test_state_trace import (  # noqa: F401
    test_acc_is_the_chosen_q_tile_and_its_norms_agree,
    test_equals_exact_prefixes,
    test_every_kernel_that_records_writes_exact_states_whose_merge_is_the_row,
    test_sawtooth_is_recorded_in_the_order_of_each_program,
    test_scores_are_those_of_q_and_k,
)

pytestmark = [pytest.mark.gpu, pytest.mark.usefixtures("poisoned")]

ROOT = Path(__file__).parents[1]
GPU = "cuda:0"
GIB = 2**30
LONG = AttentionProblem(1, 16, 16, 8192, 8192, 128, "bfloat16")
LONG_TILE = TileConfig(128, 64, num_warps=8, num_stages=3)
TAIL_OF_LONG = [AttentionProblem(1, 8, 2, 4096, 8192, 128, "bfloat16", causal) for causal in (False, True)]
FAR = AttentionProblem(1, 3, 3, 53_936, 53_936, 128)
HEAD_DIMS = {
    f"head_dim_{size}": (AttentionProblem(2, 4, 2, 1025, 1025, size, causal=True), TileConfig(64, 32, num_stages=2))
    for size in (16, 63, 64, 80, 96, 128, 256)
}
SMALL = workloads(("naive", "flash"), AttentionProblem(1, 2, 1, 200, 300, 64, causal=True), T64, GPU)
PATIENCE = 120.0


@pytest.fixture
def device() -> str:
    return GPU


@pytest.fixture(autouse=True)
def no_memory_kept() -> Iterator[None]:
    """What one test cached is free again for the next, and for the worker's process."""
    yield
    torch.cuda.empty_cache()


@pytest.fixture(scope="module")
def gpu_worker() -> Iterator[Worker]:
    yield worker_for(GPU)
    worker_for(GPU).stop()


def need_free(size: int) -> None:
    free, _ = torch.cuda.mem_get_info(GPU)
    if free < size:
        pytest.skip(f"Needs {size / GIB:.0f} GiB of GPU memory, {free / GIB:.0f} are free.")


@in_every_dtype(HEAD_DIMS)
def test_every_head_dim(kernel: AttentionKernel, problem: AttentionProblem, tile: TileConfig) -> None:
    if kernel.row_block is not None:
        # 64 whole rows of 2,048 float32 scores spill so much that ptxas is at them for minutes.
        problem, tile = replace(problem, seq_len_q=513, seq_len_kv=513), replace(tile, BLOCK_M=16)
    # Whole rows leave no room for the guard against values that are not finite: 384 KB of 227 at 1,025 keys.
    check(kernel.forward, problem, tile, draw(problem, GPU), finite=kernel.row_block is not None)


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
@pytest.mark.parametrize("num_stages", [1, 2, 3])
@pytest.mark.parametrize("num_warps", [4, 8])
@pytest.mark.parametrize(("block_m", "block_n"), [(16, 16), (32, 64), (64, 16), (128, 64)])
def test_every_tile_gives_the_same(block_m: int, block_n: int, num_warps: int, num_stages: int, dtype: str) -> None:
    problem = AttentionProblem(1, 2, 1, 300, 500, 64, dtype, window=150)
    check(FLASH, problem, TileConfig(block_m, block_n, num_warps, num_stages), draw(problem, GPU))


@takers(*TAIL_OF_LONG, tile=LONG_TILE)
@pytest.mark.parametrize("problem", TAIL_OF_LONG, ids=str)
def test_a_long_sequence(kernel: AttentionKernel, problem: AttentionProblem) -> None:
    check(kernel.forward, problem, LONG_TILE, draw(problem, GPU))


@takers(FAR, tile=LONG_TILE)
def test_offsets_beyond_two_to_the_31(kernel: AttentionKernel) -> None:
    """The last 3 of 106 heads of one fused QKV tensor of 53,936 tokens; naive writes 8.7e9 scores on top."""
    scores = 2 * FAR.score_bytes if kernel.name == "naive" else 0
    need_free(scores + 12 * GIB)
    fused = torch.randn(1, 53_936, 3, 106, 128, device=GPU, dtype=torch.float16)
    q, k, v = (part[:, :, 0, -3:].transpose(1, 2) for part in fused.split(1, dim=2))
    assert fused.numel() > 2**31 and v.storage_offset() + 53_935 * v.stride(2) > 2**31
    if kernel.name in ("mem_efficient", "flex"):  # they would reach elsewhere, and take the context along
        with pytest.raises(
            ValueError, match=r"^The last row of q is 2,195,370,240 elements .* 32 bits; make q contiguous"
        ):
            kernel.forward(q, k, v, FAR, LONG_TILE, finite=True)
        return
    rows = torch.tensor([0, 1, 30_000, 53_900, 53_935])
    check(kernel.forward, FAR, LONG_TILE, (q, k, v), finite=True, rows=rows)


def test_70_000_batches_and_heads() -> None:
    """More programs than the y dimension of a grid can hold."""
    problem = AttentionProblem(700, 100, 100, 16, 16, 16)
    q, k, v = draw(problem, GPU)
    output: Output = FLASH(q, k, v, problem, TileConfig(16, 16))
    expected = torch.softmax(q.double() @ k.double().mT * problem.sm_scale, -1) @ v.double()
    assert float((output.o.double() - expected).abs().max()) < 5e-3


@pytest.mark.parametrize("problem", [LONG, AttentionProblem(2, 3, 1, 1000, 777, 64, causal=True)], ids=str)
def test_the_timeline_covers_every_program(problem: AttentionProblem) -> None:
    workload = Workload("flash", problem, LONG_TILE, GPU)
    info = describe(GPU)
    assert info.sm_count is not None
    timeline = record_timeline(Bench(workload, info))
    assert timeline is not None and timeline.launch == "flash"
    grid = workload.attention_kernel.schedule(problem, LONG_TILE).tiles
    assert grid is not None
    sm, start, end = timeline.sm.numpy(), timeline.start_ns.numpy(), timeline.end_ns.numpy()
    assert sm.shape == start.shape == end.shape == (grid.programs,)
    assert int(sm.min()) >= 0 and int(sm.max()) < info.sm_count
    assert len(np.unique(sm)) == min(info.sm_count, grid.programs) or problem != LONG
    assert int(start.min()) == 0 and bool((end >= start).all())
    assert 0 < timeline.timer_step_ns <= 1_000_000 and not (start % timeline.timer_step_ns).any()
    assert end.max() < 10**9


def test_a_timeline_of_too_many_programs_is_left_out() -> None:
    workload = Workload("flash", AttentionProblem(700, 100, 100, 16, 16, 16), TileConfig(16, 16), GPU)
    assert MAX_TIMED_PROGRAMS < 70_000 and record_timeline(Bench(workload, describe(GPU))) is None


@pytest.mark.parametrize("dtype", ELEMENT_BYTES)
@pytest.mark.parametrize("head_dim", [16, 80, 128])
@pytest.mark.parametrize("tile", [T64, LONG_TILE, TileConfig(32, 128, num_stages=1)], ids=str)
def test_shared_memory_is_that_of_the_launched_kernel(tile: TileConfig, head_dim: int, dtype: str) -> None:
    from kernels.flash.kernel import flash_forward, grid, launch_arguments

    problem = AttentionProblem(1, 2, 2, 256, 256, head_dim, dtype)
    q, k, v = draw(problem, GPU)
    lse = torch.empty(q.shape[:3], dtype=torch.float32, device=GPU)
    try:
        admit_all((Workload("flash", problem, tile, GPU),))
    except Refused as refusal:
        pytest.skip(str(refusal))
    arguments, constants = launch_arguments((q, k, v, torch.empty_like(q), lse), problem, tile, finite=True)
    launched = flash_forward[grid(problem, tile)](*arguments, **constants)
    told = all_kernels()["flash"].shared_memory(problem, tile)
    assert told == launched.metadata.shared > 0


@pytest.mark.parametrize(
    ("head_dim", "dtype", "tile"),
    [
        (256, "bfloat16", TileConfig(128, 128, num_stages=3)),
        (256, "float32", TileConfig(128, 64, num_warps=8)),
        (128, "float16", TileConfig(256, 256, num_warps=8)),
        (128, "float32", TileConfig(128, 128, num_warps=8, num_stages=4)),
        (64, "float32", TileConfig(64, 256, num_warps=8, num_stages=4)),
    ],
    ids=str,
)
def test_a_tile_too_large_is_refused_and_the_one_that_fits_runs(head_dim: int, dtype: str, tile: TileConfig) -> None:
    problem = AttentionProblem(1, 1, 1, 300, 300, head_dim, dtype)
    limit = describe(GPU).shared_memory_per_block
    assert limit is not None
    with pytest.raises(Refused) as refusal:
        admit_all((Workload("flash", problem, tile, GPU),))
    said = re.search(
        r"needs (?:at least )?(\d+) KB of shared memory; .+ gives a CTA (\d+) KB\. "
        r"BLOCK_M (\d+), BLOCK_N (\d+), num_stages (\d+) fits\.$",
        str(refusal.value),
    )
    assert said is not None, refusal.value
    needed, told_limit, block_m, block_n, num_stages = map(int, said.groups())
    assert needed * 1024 > limit - 1024 and told_limit == limit // 1024
    fit = TileConfig(block_m, block_n, tile.num_warps, num_stages)
    admit_all((Workload("flash", problem, fit, GPU),))
    check(FLASH, problem, fit, draw(problem, GPU))


@pytest.mark.parametrize(("name", "tile"), [("BLOCK_M", TileConfig(BLOCK_M=8)), ("BLOCK_N", TileConfig(BLOCK_N=4))])
def test_a_block_below_16_is_refused(name: str, tile: TileConfig) -> None:
    with pytest.raises(Refused, match=rf"^{name} is {getattr(tile, name)}, but a GPU's matrix units want at least 16"):
        admit_all((Workload("flash", LONG, tile, GPU),))


@pytest.fixture(scope="module")
def long_runs(gpu_worker: Worker, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """naive and flash at (1, 16, 8192, 128) bf16 with every counter."""
    folder = tmp_path_factory.mktemp("long")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYTESCOPE_RUNS", str(folder))
        status = gpu_worker.submit(workloads(("naive", "flash"), LONG, LONG_TILE, GPU)).wait(PATIENCE)
    assert status.state == "done", status
    return {run.workload.kernel: run for run_id in status.run_ids for run in load(folder / f"{run_id}.json")}


@pytest.mark.parametrize(("kernel", "gigabytes"), [("naive", 6.61), ("flash", 0.101)])
def test_hbm_reads_on_an_h200(long_runs: dict[str, Run], kernel: str, gigabytes: float) -> None:
    run = long_runs[kernel]
    if "H200" not in run.device.name:
        pytest.skip(f"The figure is an H200's; this is {run.device.name}.")
    found = run.find("hbm_read_bytes", source="cupti-range")
    assert found is not None
    if found.value is None:
        pytest.skip(f"No counters: {found.note}")
    assert found.value == pytest.approx(gigabytes * 1e9, rel=0.01)


def test_counted_launches_are_those_of_the_schedule(long_runs: dict[str, Run]) -> None:
    run = long_runs["naive"]
    whole = run.find("hbm_read_bytes", source="cupti-range")
    assert whole is not None
    if whole.value is None:
        pytest.skip(f"No counters: {whole.note}")
    parts = run.launches("hbm_read_bytes")
    schedule = run.workload.attention_kernel.schedule(LONG, LONG_TILE)
    assert [part.launch for part in parts] == [launch.name for launch in schedule.launches]
    assert sum(part.value or 0 for part in parts) == pytest.approx(whole.value, rel=0.02)


@pytest.mark.parametrize("kernel", ["naive", "flash"])
def test_peak_memory_is_what_was_predicted(long_runs: dict[str, Run], kernel: str) -> None:
    """Above the baseline, which holds the inputs: O and the temporaries, to a hundredth."""
    run = long_runs[kernel]
    peak, baseline = run.value("peak_allocated_bytes"), run.value("baseline_allocated_bytes")
    assert peak is not None and baseline is not None
    temporaries = run.workload.attention_kernel.temporaries(LONG, LONG_TILE)
    expected = LONG.tensor_bytes["o"] + sum(temporaries.values())
    assert peak - baseline == pytest.approx(expected, rel=0.01)


@pytest.mark.parametrize("kernel", ["naive", "flash"])
def test_times_and_errors_are_sane(long_runs: dict[str, Run], kernel: str) -> None:
    run = long_runs[kernel]
    time = run.find("gpu_time_seconds", source="cuda-event")
    assert time is not None and time.value is not None and time.spread is not None
    assert 0 < time.spread[0] <= time.value <= time.spread[1] < 1
    assert len(run.samples["gpu_time_seconds"]) == run.workload.repeats >= 20
    assert 1e-4 < (run.value("relative_error") or 0) < 1e-2
    assert (run.softmax is not None, run.timeline is not None) == (kernel == "flash",) * 2


def reads_by_order(
    worker: Worker, folder: Path, problem: AttentionProblem, orders: tuple[str, ...]
) -> dict[str, float]:
    """HBM reads as a multiple of Q + K + V, by order of flash and by cuDNN; on an H200 with counters only."""
    tile = TileConfig(128, 128, num_warps=8, num_stages=3)
    chosen = workloads(("flash", "cudnn"), problem, tile, GPU, repeats=3, trace=None, orders=orders)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYTESCOPE_RUNS", str(folder))
        status = worker.submit(chosen).wait(PATIENCE)
    assert status.state == "done", status
    runs = [run for run_id in status.run_ids for run in load(folder / f"{run_id}.json")]
    if "H200" not in runs[0].device.name:
        pytest.skip(f"The figures are an H200's; this is {runs[0].device.name}.")
    size = problem.tensor_bytes
    found = {}
    for run in runs:
        read = run.find("hbm_read_bytes", source="cupti-range")
        assert read is not None
        if read.value is None:
            pytest.skip(f"No counters: {read.note}")
        name = run.workload.tile.order if run.workload.tile else run.workload.kernel
        found[name] = read.value / (size["q"] + size["k"] + size["v"])
    return found


def test_sawtooth_reads_less_than_linear_and_cudnn(gpu_worker: Worker, tmp_path: Path) -> None:
    problem = AttentionProblem(1, 4, 4, 65536, 65536, 128, "bfloat16")
    found = reads_by_order(gpu_worker, tmp_path, problem, ("linear", "sawtooth"))
    assert found["sawtooth"] <= 0.62 * min(found["linear"], found["cudnn"]), found


def test_longest_first_keeps_causal_programs_in_step(gpu_worker: Worker, tmp_path: Path) -> None:
    problem = AttentionProblem(1, 2, 2, 131072, 131072, 128, "bfloat16", causal=True)
    found = reads_by_order(gpu_worker, tmp_path, problem, ("linear", "longest_first"))
    assert found["longest_first"] <= 3.5 and min(found["linear"], found["cudnn"]) > 25, found


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("illegal address", "illegal"),
        ("out of memory", "flash (phase: compile) ran out of GPU memory: "),
        ("kill", "was killed by SIGKILL"),
        ("raise", "the kernel is broken"),
    ],
)
def test_the_next_run_works_after(gpu_worker: Worker, runs: Path, fault: str, words: str) -> None:
    gpu_worker.schedule(break_flash, fault).result(PATIENCE)
    status = gpu_worker.submit(SMALL).wait(PATIENCE)
    assert status.state == "failed" and words in status.error, status
    assert [load(runs / f"{run_id}.json")[0].workload.kernel for run_id in status.run_ids] == ["naive"]
    gpu_worker.schedule(mend_flash).result(PATIENCE)
    after = gpu_worker.submit(SMALL).wait(PATIENCE)
    assert (after.state, len(after.run_ids)) == ("done", 2), after


def test_two_processes_never_measure_at_once(tmp_path: Path, runs: Path) -> None:
    script = """
import sys
from profiler.worker import Worker
from tests.faults import note_times
from tests.test_kernels_gpu import SMALL
if __name__ == "__main__":
    worker = Worker("cuda:0")
    worker.schedule(note_times, sys.argv[1]).result()
    for _ in range(8):
        status = worker.submit(SMALL).wait()
        assert status.state == "done", status
    worker.stop()
"""
    times = [tmp_path / name for name in ("a", "b")]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    started = [subprocess.Popen([sys.executable, "-c", script, str(t)], cwd=ROOT, env=environment) for t in times]
    assert [process.wait(PATIENCE * 2) for process in started] == [0, 0]
    by_process = [[tuple(map(int, line.split())) for line in file.read_text().splitlines()] for file in times]
    assert [len(spans) for spans in by_process] == [16, 16]
    spans = sorted(span for one in by_process for span in one)
    assert all(end <= begin for (_, end), (begin, _) in pairwise(spans))
    overlap = min(one[-1][1] for one in by_process) - max(one[0][0] for one in by_process)
    assert overlap > 0, "the two processes did not run at the same time"
