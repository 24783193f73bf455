"""The allocator's history on a real GPU: every tensor of a pass by name, and sums that agree with torch and NVML."""

from pathlib import Path

import pytest
import torch
from torch.cuda import _memory_viz

from app.memory_steps import peak, steps
from kernels.base import all_kernels
from kernels.problem import AttentionProblem, Refused, TileConfig
from profiler.memory_model import peak_tensors, placed
from profiler.memory_recorder import recording
from profiler.memory_snapshot import snapshot
from profiler.memory_trace import OTHER, WORKSPACE
from profiler.run import Run
from profiler.store import load, save
from profiler.worker import Worker
from profiler.workload import Workload, workloads

pytestmark = pytest.mark.gpu

GPU = "cuda:0"
MIB = 2**20
PROBLEM = AttentionProblem(1, 16, 16, 4096, 4096, 128, "bfloat16", causal=True)
TILE = TileConfig(128, 64, num_warps=8, num_stages=3)
PATIENCE = 240.0
KERNELS = ("flash", "naive", "flash_kv_outer", "split_kv")
UNNAMED = 1 * MIB  # what libraries take beside their tensors: states of random numbers, counters


def takers() -> list[Workload]:
    """The kernels that run this problem at all."""
    found = []
    for name in all_kernels():
        try:
            found += workloads((name,), PROBLEM, TILE, GPU, repeats=1, trace=None, counters="nvml-gpm")
        except Refused:
            continue
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """Naive, flash and the kernels that keep state in HBM, flash first, in a process of their own."""
    folder = tmp_path_factory.mktemp("memory")
    wanted = {work.kernel: work for work in takers()}
    worker = Worker(GPU)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BYTESCOPE_RUNS", str(folder))
        status = worker.submit(tuple(wanted[name] for name in KERNELS)).wait(PATIENCE)
    worker.stop()
    assert status.state == "done", status
    return {run.workload.kernel: run for run_id in status.run_ids for run in load(folder / f"{run_id}.json")}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_history_holds_every_predicted_tensor(runs: dict[str, Run], kernel: str) -> None:
    run = runs[kernel]
    assert run.memory is not None, run.find("allocator_events")
    alive = dict(peak(run.memory).alive)
    sizes = peak_tensors(run.workload.attention_kernel, PROBLEM, run.workload.tile)
    assert alive.pop(OTHER, 0) <= UNNAMED and alive.pop("", 0) == 0
    workspace = alive.pop(WORKSPACE, 0)
    assert workspace > 0 if kernel == "naive" else workspace == 0
    told = {name: size for name, size in alive.items() if " or " not in name}
    assert {name: sizes[name] for name in told} == told, "each with its exact size"
    together = {name for name in alive if " or " in name}
    named = set(told) | {part for name in together for part in name.split(" or ")}
    assert named == set(sizes)
    assert sum(alive.values()) == sum(sizes.values())


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_history_peaks_where_torch_says(runs: dict[str, Run], kernel: str) -> None:
    """Torch counts blocks, the history what was asked for: they differ by rounding alone."""
    run = runs[kernel]
    assert run.memory is not None
    found, baseline = steps(run.memory), run.value("baseline_allocated_bytes")
    top = run.value("peak_allocated_bytes")
    assert top is not None and baseline is not None
    assert 0 <= top - peak(run.memory).total <= 4 * MIB
    assert 0 <= baseline - found[0].total <= 4 * MIB


def test_the_first_reserve_of_a_process_is_what_was_predicted(runs: dict[str, Run]) -> None:
    """Q, K, V and O of 16 MiB have a segment each, LSE of 256 KiB one of 2 MiB."""
    sizes = peak_tensors(runs["flash"].workload.attention_kernel, PROBLEM, TILE)
    assert placed(sizes[name] for name in ("q", "k", "v", "lse", "o")).reserved == 66 * MIB
    assert runs["flash"].value("peak_reserved_bytes") == 66 * MIB


def test_naive_makes_s_then_p_in_their_launches(runs: dict[str, Run]) -> None:
    memory = runs["naive"].memory
    assert memory is not None
    made = {event.name: event for event in memory.events if event.action == "alloc"}
    assert (made["s"].launch, made["p"].launch, made["o"].launch) == ("qk", "softmax", "pv")
    assert any(frame.file == "kernels/naive/kernel.py" for frame in made["s"].frames)
    assert not any(frame.file.startswith("/") for event in memory.events for frame in event.frames)
    freed = [event.name for event in memory.events if event.action == "free_completed"]
    assert {"s", "p"} <= set(freed) and not {"q", "k", "v", "o"} & set(freed)


def test_torch_reads_what_is_handed_out(runs: dict[str, Run]) -> None:
    for run in runs.values():
        assert run.memory is not None
        assert "Device 0" in _memory_viz.trace(snapshot(run.memory))
        assert _memory_viz.segsum(snapshot(run.memory))


def test_nvml_adds_up(runs: dict[str, Run]) -> None:
    for run in runs.values():
        own, context, device = (
            run.find(name) for name in ("process_memory_bytes", "context_bytes", "device_memory_bytes")
        )
        assert own is not None and context is not None and device is not None and device.value is not None
        if context.value is None:
            pytest.skip(f"No context: {context.note}")
        assert own.value is not None and 50 * MIB < context.value < 4096 * MIB
        assert own.value == context.value + (run.value("peak_reserved_bytes") or 0)
        assert own.value + (run.value("other_processes_bytes") or 0) <= 1.01 * device.value


def test_history_is_off_afterwards() -> None:
    torch.empty(1, device=GPU)  # there is no allocator before
    with recording(GPU) as recorder:
        kept = torch.empty(MIB, device=GPU)
        recorder.stop()
    del kept
    before = len(torch.cuda.memory._snapshot()["device_traces"][0])
    torch.empty(MIB, device=GPU)
    assert len(torch.cuda.memory._snapshot()["device_traces"][0]) == before
    made = [event for event in recorder.trace().events if event.action == "alloc"]
    assert [event.size for event in made] == [4 * MIB]


def test_a_run_with_a_history_stays_small(runs: dict[str, Run], tmp_path: Path) -> None:
    assert all(save(run, tmp_path).stat().st_size < 200_000 for run in runs.values())
